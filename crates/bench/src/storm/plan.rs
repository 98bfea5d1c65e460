//! The plan of a storm: where, how much, how. Refuses a target that could belong to others.

use super::StormError;
use super::message;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Everything that decides a run. Public fields: the command line fills them, [`Plan::check`] judges them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub to: SocketAddr,
    /// Whether a server that is neither on this machine nor in a private network may be loaded.
    pub own_host: bool,
    /// Messages; `None` sends until `time` is over.
    pub messages: Option<u64>,
    /// No message is begun after this time.
    pub time: Option<Duration>,
    /// Connections at a time.
    pub sessions: u32,
    /// Octets of a message as the receiver stores it: header and body, no dot at the end.
    pub sizes: Sizes,
    /// Recipients of each message.
    pub recipients: u32,
    /// A connection for each message.
    pub new_connection: bool,
    /// Messages per second of all sessions together, however fast the server is; lateness is reported as delay.
    pub rate: Option<f64>,
    /// TLS. Certificates are never checked.
    pub tls: Tls,
    /// LMTP (RFC 2033): a reply for each recipient after the content.
    pub lmtp: bool,
    /// Content and final dot in writes of their own, as Postal and Perl's Net::SMTP do.
    pub split_dot: bool,
    /// MAIL, RCPT and DATA in one write (RFC 2920).
    pub pipelining: bool,
    /// BDAT instead of DATA (RFC 3030); with `pipelining` a whole transaction is one write.
    pub chunking: bool,
    /// Envelope sender.
    pub from: String,
    /// Envelope recipient; `{n}` becomes the number of the recipient within the message, `{seq}` that of the message.
    pub rcpt: String,
    /// Recipients by name, instead of `recipients` and `rcpt`: messages take these lists in turns, the first message
    /// the first. Empty: the pattern counts.
    pub lists: Arc<[Vec<String>]>,
    /// Each message has a text of its own; otherwise all share one, as those of a storm do.
    pub own_text: bool,
    /// Decides sizes and texts.
    pub seed: u64,
    /// Name of the run in every message.
    pub run: String,
    /// Source addresses 127.0.0.1 and up that connections take in turns; 0 leaves it to the system. Loopback only.
    pub sources: u8,
    /// The longest wait for a connection or a reply.
    pub patience: Duration,
    /// A line for each acknowledged message goes here.
    pub ledger: Option<PathBuf>,
    /// The number of each acknowledged message goes here at once. For callers that break the server in the middle.
    pub told: Option<Sender<u64>>,
    /// No message is begun once this is true; those under way come to their end.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Whether and how TLS is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// In the clear.
    #[default]
    None,
    /// After STARTTLS (RFC 3207).
    Starttls,
    /// From the first octet (RFC 8314).
    Implicit,
}

/// Octets of a message, from the smallest to the largest, every size equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest.
    pub from: usize,
    /// The largest.
    pub to: usize,
}

/// The largest message a storm makes.
const SIZE_MAX: usize = 1 << 30;

impl FromStr for Sizes {
    type Err = String;

    /// Reads `4096`, `4k`, `1k-50k`, `2M`; k and M are 1,024 and 1,048,576.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let sizes = Self { from: octets(from)?, to: octets(to)? };
        if sizes.from > sizes.to {
            return Err(format!("{text:?}: the smaller size comes first, as in 1k-50k"));
        }
        Ok(sizes)
    }
}

fn octets(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1).unwrap_or(""), 1 << 10),
        Some(b'm' | b'M') => (text.get(..text.len() - 1).unwrap_or(""), 1 << 20),
        _ => (text, 1),
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(number) if number <= SIZE_MAX => Ok(number),
        _ => Err(format!("{text:?} is no size; write octets as in 4096, 4k or 2M, at most {}M", SIZE_MAX >> 20)),
    }
}

/// The target is neither this machine nor in a private network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPrivate(pub IpAddr);

impl std::fmt::Display for NotPrivate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(address) = self;
        write!(
            f,
            "{address} is neither this machine nor in a private network, and a load generator pointed at somebody else's \
             server is an attack; if the server is yours, add --i-own-this-host"
        )
    }
}

impl Plan {
    /// A plan with the defaults of the command line: 2,030 messages of 4 KiB over 20 sessions, kept alive.
    #[must_use]
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            own_host: false,
            messages: Some(2_030),
            time: None,
            sessions: 20,
            sizes: Sizes { from: 4096, to: 4096 },
            recipients: 1,
            new_connection: false,
            rate: None,
            tls: Tls::None,
            lmtp: false,
            split_dot: false,
            pipelining: false,
            chunking: false,
            from: "storm@storm.example".to_owned(),
            rcpt: "user{n}@storm.example".to_owned(),
            lists: Arc::new([]),
            own_text: false,
            seed: 1,
            run: "1".to_owned(),
            sources: 0,
            patience: Duration::from_secs(60),
            ledger: None,
            told: None,
            stop: None,
        }
    }

    /// How many recipients the message with this number has.
    pub(super) fn recipients_of(&self, seq: u64) -> u32 {
        self.list(seq).map_or(self.recipients, |list| u32::try_from(list.len()).unwrap_or(u32::MAX))
    }

    /// One of them, counted from 0.
    pub(super) fn recipient(&self, n: u32, seq: u64) -> Cow<'_, str> {
        match self.list(seq) {
            Some(list) => Cow::Borrowed(list.get(n as usize).map_or("", String::as_str)),
            None => Cow::Owned(message::recipient(&self.rcpt, n, seq)),
        }
    }

    fn list(&self, seq: u64) -> Option<&Vec<String>> {
        let at = seq.checked_rem(self.lists.len() as u64)?;
        self.lists.get(usize::try_from(at).unwrap_or(0))
    }

    /// Whether the plan can be carried out.
    ///
    /// # Errors
    /// The option that cannot be carried out.
    pub(super) fn check(&self) -> Result<(), StormError> {
        let wrong = |text: String| Err(StormError::Plan(text));
        if !self.own_host && !is_private(self.to.ip()) {
            return wrong(NotPrivate(self.to.ip()).to_string());
        }
        if self.messages.is_none() && self.time.is_none() {
            return wrong("neither --messages nor --seconds ends this storm".to_owned());
        }
        if self.sessions == 0 || self.recipients == 0 {
            return wrong("--sessions and --recipients begin at 1".to_owned());
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return wrong("--rate is a number of messages per second above 0".to_owned());
        }
        if self.lists.iter().any(|list| list.is_empty() || list.iter().any(|one| !is_path(one))) {
            return wrong("a list of recipients is empty or names what is no address".to_owned());
        }
        if self.recipients > 1 && !self.rcpt.contains("{n}") {
            return wrong(format!("--rcpt {:?} lacks {{n}}, so all recipients would be the same", self.rcpt));
        }
        for (name, text) in [("--from", &self.from), ("--rcpt", &self.rcpt), ("--run", &self.run)] {
            if !is_path(text) {
                return wrong(format!("{name} {text:?} has a space, a bracket or a control character"));
            }
        }
        if self.sources > 0 && !matches!(self.to.ip(), IpAddr::V4(to) if to.is_loopback()) {
            return wrong("--sources spreads over 127.0.0.1 and up, so the target must be there".to_owned());
        }
        if self.split_dot && self.chunking {
            return wrong("--split-dot has no meaning with --chunking, which has no dot".to_owned());
        }
        let least = message::size_min(self);
        if self.sizes.from < least {
            return wrong(format!("--size {} leaves no room for the header; the least is {least}", self.sizes.from));
        }
        Ok(())
    }
}

/// Whether a text may stand between `<` and `>` without ending the command.
fn is_path(text: &str) -> bool {
    !text.bytes().any(|byte| byte <= b' ' || byte == b'<' || byte == b'>' || byte == 0x7f)
}

/// Whether an address can only belong to this machine or to a network of its owner.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, wanted) in [
            ("4096", Some((4096, 4096))),
            ("4k", Some((4096, 4096))),
            ("1k-2M", Some((1024, 2 << 20))),
            ("2k-1k", None),
            ("", None),
            ("k", None),
            ("-4", None),
            ("2000M", None),
            ("99999999999999999999", None),
        ] {
            let read = text.parse::<Sizes>().ok().map(|sizes| (sizes.from, sizes.to));
            assert_eq!(read, wanted, "{text}");
        }
    }

    #[test]
    fn somebody_elses_server_is_refused() {
        for (address, private) in [
            ("127.9.9.9", true),
            ("10.1.2.3", true),
            ("192.168.0.1", true),
            ("::1", true),
            ("fd00::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("172.32.0.1", false),
            ("::ffff:192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let mut plan = Plan::new(SocketAddr::new(address, 25));
            assert_eq!(plan.check().is_ok(), private, "{address}");
            plan.own_host = true;
            assert!(plan.check().is_ok(), "{address}");
        }
    }

    #[test]
    fn plans_that_cannot_be_are_refused() {
        type Change = fn(&mut Plan);
        let changes: [(Change, &str); 10] = [
            (|plan| plan.messages = None, "--seconds"),
            (|plan| plan.sessions = 0, "--sessions"),
            (|plan| plan.rate = Some(0.0), "--rate"),
            (|plan| "a@b.example".clone_into(&mut plan.from), ""),
            (|plan| "a@b.example\r\nRSET".clone_into(&mut plan.from), "--from"),
            (|plan| (plan.recipients, plan.rcpt) = (2, "a@b.example".to_owned()), "{n}"),
            (|plan| plan.lists = vec![vec![]].into(), "list"),
            (|plan| plan.lists = vec![vec!["a@b.example>\r\nRSET".to_owned()]].into(), "list"),
            (|plan| (plan.split_dot, plan.chunking) = (true, true), "--split-dot"),
            (|plan| plan.sizes.from = 10, "--size 10"),
        ];
        for (change, says) in changes {
            let mut plan = Plan::new(SocketAddr::from(([127, 0, 0, 1], 25)));
            change(&mut plan);
            let said = plan.check().err().map_or_else(String::new, |error| error.to_string());
            assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{says:?}: {said}");
        }
    }
}

//! A next hop in the test: takes mail over SMTP or LMTP, keeps it for inspection, and misbehaves where it is told to.
//!
//! A [`Script`] is asked at each [`At`] of each connection and says what to do; points without an answer are handled as
//! by a good server. Every hop has a loopback address of its own, so that it can close its port and open it again.

use crate::wire::Wire;
use rustls::ServerConfig;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::harness::{SOON, pause, poll};

/// In this the most that any test sends has come: some tens of thousands, on a machine that is busy with something else
/// too.
const STORM: Duration = Duration::from_secs(600);

/// A moment of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Greeting,
    /// EHLO and LHLO.
    Ehlo,
    Helo,
    StartTls,
    /// With the password in it; the lines behind a 334 are not asked about.
    Auth,
    Mail,
    Rcpt,
    Data,
    /// The content is there. In LMTP asked for each recipient.
    Dot,
    Quit,
}

/// The point of a dialog that the script is asked about.
#[derive(Debug)]
pub(crate) struct Moment<'a> {
    /// Number of the connection to this hop, from 0.
    pub(crate) connection: usize,
    pub(crate) at: At,
    /// The command, or in LMTP at the dot the RCPT command it is about.
    pub(crate) line: &'a str,
    /// Messages taken on this connection before.
    pub(crate) taken: usize,
    /// Under TLS.
    pub(crate) is_encrypted: bool,
}

/// The behaviour of the hop at that point.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// As a good server does.
    Well,
    /// This reply, and its effect.
    Say(&'static str),
    /// This reply, and close.
    SayAndClose(&'static str),
    /// No reply at all, until the other side closes.
    Hang,
    /// Close.
    Close,
    /// Keep the message, and close without a word.
    TakeAndClose,
    /// This line without end.
    Flood(&'static str),
    /// As a good server does, so much later.
    Late(Duration),
    /// After DATA, in place of a good server: 354, and then so many octets of the content ten times a second.
    Sip(usize),
    /// The reply of a good server, and then close.
    WellAndClose,
    /// So many octets of a good server's reply, and then close; after STARTTLS, so many octets of the handshake.
    Cut(usize),
    /// This line, an octet each 50 ms.
    Trickle(&'static str),
}

pub(crate) type Script = Arc<dyn Fn(&Moment<'_>) -> Act + Send + Sync>;

/// How a hop is.
#[derive(Clone)]
pub(crate) struct Manners {
    /// Extensions of EHLO.
    pub(crate) offers: Vec<&'static str>,
    pub(crate) lmtp: bool,
    /// For STARTTLS, which must be among `offers`. Without it each handshake fails, by an alert.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) script: Script,
}

impl Default for Manners {
    fn default() -> Self {
        let offers = vec!["PIPELINING", "8BITMIME", "SIZE 50000000", "SMTPUTF8", "ENHANCEDSTATUSCODES"];
        Self { offers, lmtp: false, tls: None, script: Arc::new(|_| Act::Well) }
    }
}

impl Manners {
    /// A good server with these extensions.
    pub(crate) fn offering(offers: &[&'static str]) -> Self {
        Self { offers: offers.to_vec(), ..Self::default() }
    }

    /// The same with a script.
    pub(crate) fn script(self, script: impl Fn(&Moment<'_>) -> Act + Send + Sync + 'static) -> Self {
        Self { script: Arc::new(script), ..self }
    }
}

/// A message that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Mail {
    /// The MAIL command.
    pub(crate) mail: String,
    /// The RCPT commands that were accepted; in LMTP also after the dot.
    pub(crate) rcpts: Vec<String>,
    /// As received, with trace lines, dots unstuffed.
    pub(crate) content: Vec<u8>,
    /// Under TLS.
    pub(crate) is_encrypted: bool,
}

impl Mail {
    /// The address of the only recipient.
    pub(crate) fn to(&self) -> &str {
        assert_eq!(self.rcpts.len(), 1, "{:?}", self.rcpts);
        address(&self.rcpts[0])
    }

    /// Whether this is the only recipient.
    pub(crate) fn to_is(&self, wanted: &str) -> bool {
        matches!(self.rcpts.as_slice(), [only] if address(only) == wanted)
    }

    /// The addresses of the recipients, sorted.
    pub(crate) fn all_to(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.rcpts.iter().map(|rcpt| address(rcpt)).collect();
        all.sort_unstable();
        all
    }

    /// The content behind the server's own trace line, which must stand first.
    pub(crate) fn own_content(&self) -> &[u8] {
        let mut at = 0;
        loop {
            let end = self.content[at..].windows(2).position(|two| two == b"\r\n").expect("a line ends");
            at += end + 2;
            if !matches!(self.content.get(at), Some(b' ' | b'\t')) {
                break;
            }
        }
        let (trace, rest) = self.content.split_at(at);
        let text = String::from_utf8_lossy(trace);
        assert!(text.starts_with("Received: from ") && text.contains(" mx.test "), "{text}");
        rest
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// Returns the text between the brackets of a command.
pub(crate) fn address(command: &str) -> &str {
    let start = command.find('<').expect("a bracket") + 1;
    &command[start..command.find('>').expect("a bracket")]
}

#[derive(Default)]
struct State {
    mails: Vec<Arc<Mail>>,
    /// The commands of each connection.
    talks: Vec<Vec<String>>,
    /// Where each connection came from.
    peers: Vec<IpAddr>,
    open: Vec<TcpStream>,
    manners: Manners,
    is_shut: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A next hop. Its port is closed when this is dropped.
pub(crate) struct Hop {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

/// An address of its own for each hop of this process, in a network of its own for each process.
pub(crate) fn own_ip() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), low, NEXT.fetch_add(1, Ordering::Relaxed).max(1))
}

impl Hop {
    pub(crate) fn new(manners: Manners) -> Self {
        Self::at(SocketAddr::new(own_ip().into(), 0), manners).expect("there is a free port")
    }

    /// A good server.
    pub(crate) fn good() -> Self {
        Self::new(Manners::default())
    }

    /// A server that has a message whole and says nothing to it until the gate is open.
    pub(crate) fn gated_at_dot() -> (Self, Arc<AtomicBool>) {
        let gate = Arc::new(AtomicBool::new(false));
        let is_open = Arc::clone(&gate);
        let hop = Self::new(Manners::default().script(move |moment| {
            if moment.at == At::Dot {
                poll("the gate", || is_open.load(Ordering::Acquire).then_some(()));
            }
            Act::Well
        }));
        (hop, gate)
    }

    /// A hop at this address; `None` if it is taken.
    pub(crate) fn at(address: SocketAddr, manners: Manners) -> Option<Self> {
        let shared = Arc::<Shared>::default();
        shared.lock().manners = manners;
        let mut hop = Self { address, shared, listener: None };
        hop.listen(TcpListener::bind(address).ok()?);
        Some(hop)
    }

    /// Hops at one port, each with an address of its own.
    pub(crate) fn neighbours(manners: Vec<Manners>) -> Vec<Self> {
        for _ in 0..20 {
            let mut hops: Vec<Self> = Vec::new();
            for manners in &manners {
                let port = hops.first().map_or(0, |first| first.address.port());
                hops.extend(Self::at(SocketAddr::new(own_ip().into(), port), manners.clone()));
            }
            if hops.len() == manners.len() {
                return hops;
            }
        }
        panic!("no port is free at all addresses")
    }

    /// As `route.smart_host` has it.
    pub(crate) fn name(&self) -> String {
        match self.address.ip() {
            IpAddr::V4(ip) => format!("[{ip}]:{}", self.address.port()),
            IpAddr::V6(_) => self.address.to_string(),
        }
    }

    /// The address as the log has it.
    pub(crate) fn ip(&self) -> String {
        format!("[{}]", self.address.ip())
    }

    /// An address whose domain is the literal of this hop.
    pub(crate) fn mailbox(&self, local: &str) -> String {
        format!("{local}@[{}]", self.address.ip())
    }

    fn listen(&mut self, listener: TcpListener) {
        self.address = listener.local_addr().expect("it has one");
        self.shared.lock().is_shut = false;
        let shared = Arc::clone(&self.shared);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let mut state = shared.lock();
                if state.is_shut {
                    return;
                }
                let number = state.talks.len();
                state.talks.push(Vec::new());
                state.peers.extend(stream.peer_addr().map(|peer| peer.ip()));
                state.open.extend(stream.try_clone());
                drop(state);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || Visit::new(&shared, stream, number).talk());
            }
        };
        self.listener = Some(std::thread::spawn(accept));
    }

    /// Closes the port and all connections: new connections are refused.
    pub(crate) fn shut(&mut self) {
        let Some(listener) = self.listener.take() else { return };
        self.shared.lock().is_shut = true;
        drop(TcpStream::connect(self.address));
        listener.join().expect("it ends");
        for stream in self.shared.lock().open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Opens the port again.
    pub(crate) fn reopen(&mut self) {
        self.listen(TcpListener::bind(self.address).expect("nobody else has this address"));
    }

    /// Other manners from now on, also on connections that are open.
    pub(crate) fn behave(&self, manners: Manners) {
        self.shared.lock().manners = manners;
    }

    /// Closes the connections that are open.
    pub(crate) fn hang_up(&self) {
        for stream in self.shared.lock().open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.shared.lock().mails.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().talks.len()
    }

    pub(crate) fn mails(&self) -> Vec<Arc<Mail>> {
        self.shared.lock().mails.clone()
    }

    /// The commands of each connection.
    pub(crate) fn talks(&self) -> Vec<Vec<String>> {
        self.shared.lock().talks.clone()
    }

    /// Where the connections came from.
    pub(crate) fn peers(&self) -> Vec<IpAddr> {
        self.shared.lock().peers.clone()
    }

    /// Waits until so many messages have come.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> Vec<Arc<Mail>> {
        self.wait_until(&format!("{count} messages"), |mails| mails.len() >= count)
    }

    /// Waits for something to be true of the messages: as long as there come more, and not longer than [`STORM`].
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "a limit for waiting")]
    pub(crate) fn wait_until(&self, what: &str, is_there: impl Fn(&[Arc<Mail>]) -> bool) -> Vec<Arc<Mail>> {
        let start = std::time::Instant::now();
        let mut state = self.shared.lock();
        while !is_there(&state.mails) {
            let (next, waited) = self.shared.changed.wait_timeout(state, SOON).unwrap_or_else(PoisonError::into_inner);
            state = next;
            assert!(
                !waited.timed_out() && start.elapsed() < STORM || is_there(&state.mails),
                "not at {}: {what}; there are {} messages and {} connections: {:#?}",
                self.address,
                state.mails.len(),
                state.talks.len(),
                state.talks.iter().rev().take(5).collect::<Vec<_>>()
            );
        }
        state.mails.clone()
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        self.shut();
    }
}

/// A connection.
struct Visit<'a> {
    shared: &'a Shared,
    wire: Wire,
    number: usize,
    taken: usize,
    is_encrypted: bool,
    mail: String,
    rcpts: Vec<String>,
    /// Content of BDAT so far.
    chunks: Vec<u8>,
    is_chunking: bool,
}

/// The connection is over.
struct Over;

impl<'a> Visit<'a> {
    fn new(shared: &'a Shared, stream: TcpStream, number: usize) -> Self {
        let (mail, rcpts, chunks) = (String::new(), Vec::new(), Vec::new());
        Self {
            shared,
            wire: Wire::new(stream),
            number,
            taken: 0,
            is_encrypted: false,
            mail,
            rcpts,
            chunks,
            is_chunking: false,
        }
    }

    fn manners(&self) -> Manners {
        self.shared.lock().manners.clone()
    }

    fn act(&self, at: At, line: &str) -> Act {
        let moment = Moment { connection: self.number, at, line, taken: self.taken, is_encrypted: self.is_encrypted };
        (self.manners().script)(&moment)
    }

    /// Does what the script says; whether the reply was positive.
    fn answer(&mut self, at: At, line: &str, well: &str) -> Result<bool, Over> {
        let act = self.act(at, line);
        self.play(act, well)
    }

    fn play(&mut self, act: Act, well: &str) -> Result<bool, Over> {
        match act {
            Act::Well => self.wire.say(well),
            Act::Say(reply) => {
                self.wire.say(reply);
                return Ok(matches!(reply.as_bytes(), [b'2' | b'3', ..]));
            }
            Act::SayAndClose(reply) => {
                self.wire.say(reply);
                self.wire.flush();
                return Err(Over);
            }
            Act::WellAndClose => {
                self.wire.say(well);
                self.wire.flush();
                return Err(Over);
            }
            Act::Hang => {
                self.wire.wait_for_end();
                return Err(Over);
            }
            Act::Cut(octets) => {
                self.wire.cut_after(octets);
                self.wire.say(well);
                self.wire.flush();
                return Err(Over);
            }
            Act::Trickle(line) => {
                for octet in line.chars() {
                    if !self.wire.part(octet.encode_utf8(&mut [0; 4])) {
                        return Err(Over);
                    }
                    pause(Duration::from_millis(50));
                }
                self.wire.say("");
            }
            Act::Close | Act::TakeAndClose => return Err(Over),
            Act::Flood(line) => {
                self.wire.flood(line);
                return Err(Over);
            }
            Act::Late(time) => {
                self.wire.flush();
                pause(time);
                self.wire.say(well);
            }
            Act::Sip(octets) => {
                self.wire.say("354 go on");
                while self.wire.octets(octets).is_some() {
                    pause(Duration::from_millis(100));
                }
                return Err(Over);
            }
        }
        Ok(true)
    }

    fn talk(mut self) {
        let protocol = if self.manners().lmtp { "LMTP" } else { "ESMTP" };
        if self.answer(At::Greeting, "", &format!("220 hop.test {protocol}")).is_err() {
            return;
        }
        while let Some(line) = self.wire.line() {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            self.shared.lock().talks[self.number].push(line.clone());
            if self.command(&line).is_err() {
                break;
            }
        }
        self.wire.flush();
    }

    fn command(&mut self, line: &str) -> Result<(), Over> {
        let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" | "LHLO" => {
                let mut offers = vec!["hop.test"];
                let manners = self.manners();
                offers.extend(manners.offers.iter().filter(|offer| **offer != "STARTTLS" || !self.is_encrypted));
                let last = offers.len() - 1;
                let lines: Vec<String> = offers
                    .iter()
                    .enumerate()
                    .map(|(at, offer)| format!("250{}{offer}", if at == last { ' ' } else { '-' }))
                    .collect();
                self.answer(At::Ehlo, line, &lines.join("\n"))?;
            }
            "HELO" => drop(self.answer(At::Helo, line, "250 hop.test")?),
            "STARTTLS" => {
                let act = self.act(At::StartTls, line);
                let (act, octets) = if let Act::Cut(octets) = act { (Act::Well, octets) } else { (act, usize::MAX) };
                if self.play(act, "220 2.0.0 go on")? {
                    match self.manners().tls {
                        Some(config) => self.wire.start_tls(&config, octets),
                        None => {
                            self.wire.break_handshake();
                            return Err(Over);
                        }
                    }
                    self.is_encrypted = true;
                }
            }
            "AUTH" => drop(self.answer(At::Auth, line, "235 2.7.0 welcome")?),
            "MAIL" => {
                if self.answer(At::Mail, line, "250 2.1.0 sender ok")? {
                    line.clone_into(&mut self.mail);
                }
            }
            "RCPT" if self.mail.is_empty() => self.wire.say("503 5.5.1 no sender"),
            "RCPT" => {
                if self.answer(At::Rcpt, line, "250 2.1.5 recipient ok")? {
                    self.rcpts.push(line.to_owned());
                }
            }
            "DATA" => self.data(line)?,
            "BDAT" => self.bdat(line)?,
            "RSET" => {
                self.forget();
                self.wire.say("250 2.0.0 forgotten");
            }
            "QUIT" => {
                self.answer(At::Quit, line, "221 2.0.0 bye")?;
                return Err(Over);
            }
            _ => self.wire.say("500 5.5.2 what?"),
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.mail.clear();
        self.rcpts.clear();
        self.chunks.clear();
        self.is_chunking = false;
    }

    fn data(&mut self, line: &str) -> Result<(), Over> {
        if self.rcpts.is_empty() {
            self.wire.say("554 5.5.1 no valid recipients");
            return Ok(());
        }
        if !self.answer(At::Data, line, "354 go on")? {
            self.forget();
            return Ok(());
        }
        let mut content = Vec::new();
        loop {
            let line = self.wire.line().ok_or(Over)?;
            match line.as_slice() {
                b".\r\n" => break,
                [b'.', rest @ ..] => content.extend_from_slice(rest),
                whole => content.extend_from_slice(whole),
            }
        }
        self.dot(content)
    }

    fn bdat(&mut self, line: &str) -> Result<(), Over> {
        let mut words = line.split(' ').skip(1);
        let octets = words.next().and_then(|word| word.parse().ok()).ok_or(Over)?;
        let chunk = self.wire.octets(octets).ok_or(Over)?;
        if self.rcpts.is_empty() {
            self.wire.say("503 5.5.1 no valid recipients");
            return Ok(());
        }
        if !self.is_chunking {
            self.is_chunking = true;
            let act = self.act(At::Data, line);
            if !matches!(act, Act::Well) && !self.play(act, "")? {
                self.forget();
                return Ok(());
            }
        }
        self.chunks.extend(chunk);
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("LAST")) {
            let content = std::mem::take(&mut self.chunks);
            return self.dot(content);
        }
        self.wire.say("250 2.0.0 chunk ok");
        Ok(())
    }

    fn dot(&mut self, content: Vec<u8>) -> Result<(), Over> {
        let rcpts = std::mem::take(&mut self.rcpts);
        let sender = std::mem::take(&mut self.mail);
        self.forget();
        let serial = self.shared.lock().mails.len();
        let well = format!("250 2.0.0 Ok: queued as {serial}");
        let keep = |visit: &mut Self, rcpts: Vec<String>| {
            visit.taken += 1;
            let is_encrypted = visit.is_encrypted;
            let mail = Mail { mail: sender.clone(), rcpts, content: content.clone(), is_encrypted };
            visit.shared.lock().mails.push(Arc::new(mail));
            visit.shared.changed.notify_all();
        };
        if self.manners().lmtp {
            let mut kept = Vec::new();
            for rcpt in rcpts {
                if self.answer(At::Dot, &rcpt, &well)? {
                    kept.push(rcpt);
                }
            }
            if !kept.is_empty() {
                keep(self, kept);
            }
            return Ok(());
        }
        let act = self.act(At::Dot, "");
        match act {
            // It is there before the other side can know.
            Act::Well | Act::TakeAndClose | Act::WellAndClose => keep(self, rcpts),
            Act::Late(time) => {
                self.wire.flush();
                pause(time);
                keep(self, rcpts);
                self.wire.say(&well);
                return Ok(());
            }
            Act::Say(reply) if reply.starts_with('2') => keep(self, rcpts),
            _ => {}
        }
        self.play(act, &well)?;
        Ok(())
    }
}

//! A filter that takes mail by SMTP and gives it back by SMTP, as amavisd-new: its replies, its offers, and the
//! commands of one message.
//!
//! The filter hears of the client by XFORWARD where it offers that (Postfix's XFORWARD_README). Not here: the
//! connection, and the mail that comes back.

use mail::{Address, Reply, encode_xtext};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Octets of one reply.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// Octets of a value of XFORWARD.
const VALUE_BYTES_MAX: usize = 255;
/// Octets of a greeting that are shown.
const SHOWN_BYTES: usize = 32;

/// The answer of a filter makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSmtpError(String);

impl fmt::Display for NoSmtpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no SMTP server: it begins with \"{}\"", self.0)
    }
}

impl std::error::Error for NoSmtpError {}

/// Replies of a filter, in whatever pieces they come.
#[derive(Clone, Debug, Default)]
pub struct SmtpReplyReader {
    octets: Vec<u8>,
}

impl SmtpReplyReader {
    /// Takes octets that have come.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// Returns the next whole reply, if there is one.
    ///
    /// # Errors
    /// No reply of SMTP comes here.
    // RFC 5321 §4.2.1
    pub fn next_reply(&mut self) -> Result<Option<Reply>, NoSmtpError> {
        let is_digit = |octet: Option<&u8>| octet.is_none_or(u8::is_ascii_digit);
        if !(0..3).all(|at| is_digit(self.octets.get(at))) {
            return Err(self.fault());
        }
        let mut end = 0;
        loop {
            let rest = self.octets.get(end..).unwrap_or_default();
            let Some(length) = memchr::memchr(b'\n', rest) else {
                return if self.octets.len() > REPLY_BYTES_MAX { Err(self.fault()) } else { Ok(None) };
            };
            end += length + 1;
            if rest.get(3) != Some(&b'-') {
                break;
            }
        }
        let reply = self.octets.get(..end).unwrap_or_default();
        let reply = Reply::parse(reply, REPLY_BYTES_MAX).map_err(|_| self.fault())?;
        self.octets.drain(..end);
        Ok(Some(reply))
    }

    fn fault(&self) -> NoSmtpError {
        let shown = self.octets.get(..SHOWN_BYTES).unwrap_or(&self.octets);
        NoSmtpError(shown.escape_ascii().to_string())
    }
}

/// Extensions that a filter offers in its answer to EHLO.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmtpOffers {
    /// Octets above 127 in content.
    pub eight_bit: bool,
    /// The size of the message at MAIL.
    pub size: bool,
    /// Addresses beyond ASCII.
    pub smtputf8: bool,
    /// The attributes of XFORWARD that it takes.
    pub xforward: Vec<String>,
}

impl SmtpOffers {
    /// Reads the answer to EHLO.
    #[must_use]
    pub fn of(reply: &Reply) -> Self {
        let mut offers = Self::default();
        for line in reply.lines().skip(1) {
            let mut words = line.split_ascii_whitespace().map(str::to_ascii_uppercase);
            match words.next().as_deref() {
                Some("8BITMIME") => offers.eight_bit = true,
                Some("SIZE") => offers.size = true,
                Some("SMTPUTF8") => offers.smtputf8 = true,
                Some("XFORWARD") => offers.xforward.extend(words),
                _ => {}
            }
        }
        offers
    }
}

/// The client of a message, as XFORWARD names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedClient<'a> {
    /// Its address; none for a program of this machine.
    pub client: Option<SocketAddr>,
    /// Its verified name.
    pub name: Option<&'a str>,
    /// The name that it gave.
    pub helo: &'a str,
    /// The word after `with` in the trace field.
    pub protocol: &'a str,
    /// The queue id of the message.
    pub queue_id: &'a str,
}

/// Returns the commands that name the client, without line ends; none where the filter takes no attribute.
#[must_use]
pub fn xforward(offers: &SmtpOffers, of: &ForwardedClient<'_>) -> Vec<String> {
    let unknown = || "[UNAVAILABLE]".to_owned();
    let value = |text: &str| match text.char_indices().nth(VALUE_BYTES_MAX) {
        Some((end, _)) => encode_xtext(text.get(..end).unwrap_or_default()),
        None if text.is_empty() => unknown(),
        None => encode_xtext(text),
    };
    let address = match of.client.map(|client| client.ip().to_canonical()) {
        Some(IpAddr::V4(ip)) => ip.to_string(),
        Some(IpAddr::V6(ip)) => format!("IPv6:{ip}"),
        None => unknown(),
    };
    let protocol = if of.protocol.starts_with("SMTP") { "SMTP" } else { "ESMTP" };
    let is_local = of.client.is_none_or(|client| client.ip().to_canonical().is_loopback());
    let groups = [
        vec![
            ("NAME", of.name.map_or_else(unknown, value)),
            ("ADDR", address),
            ("PORT", of.client.map_or_else(unknown, |client| client.port().to_string())),
        ],
        vec![
            ("PROTO", protocol.to_owned()),
            ("HELO", value(of.helo)),
            ("IDENT", value(of.queue_id)),
            ("SOURCE", if is_local { "LOCAL" } else { "REMOTE" }.to_owned()),
        ],
    ];
    let command = |group: Vec<(&str, String)>| {
        let taken = group.into_iter().filter(|(name, _)| offers.xforward.iter().any(|offered| offered == name));
        let words: Vec<String> = taken.map(|(name, value)| format!(" {name}={value}")).collect();
        (!words.is_empty()).then(|| format!("XFORWARD{}", words.concat()))
    };
    groups.into_iter().filter_map(command).collect()
}

/// Returns MAIL for a message, without its line end. `sender`: empty for the null sender.
#[must_use]
pub fn mail_command(offers: &SmtpOffers, sender: &str, recipients: &[Address], message: &[u8]) -> String {
    let mut command = format!("MAIL FROM:<{sender}>");
    if offers.size {
        command.push_str(&format!(" SIZE={}", message.len()));
    }
    if offers.eight_bit && !message.is_ascii() {
        command.push_str(" BODY=8BITMIME");
    }
    if offers.smtputf8 && !(sender.is_ascii() && recipients.iter().all(Address::is_ascii)) {
        command.push_str(" SMTPUTF8");
    }
    command
}

/// Writes a message for DATA, with its end.
// RFC 5321 §4.5.2: a dot is put in front of a line that begins with one
pub fn write_data(message: &[u8], out: &mut Vec<u8>) {
    if message.starts_with(b".") {
        out.push(b'.');
    }
    let mut written = 0;
    for hit in memchr::memmem::find_iter(message, b"\r\n.") {
        out.extend_from_slice(message.get(written..hit + 2).unwrap_or_default());
        out.push(b'.');
        written = hit + 2;
    }
    out.extend_from_slice(message.get(written..).unwrap_or_default());
    let ends_line = message.is_empty() || message.ends_with(b"\r\n");
    out.extend_from_slice(if ends_line { b".\r\n" } else { b"\r\n.\r\n" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_in_any_pieces() {
        let text = b"220 mx ESMTP\r\n250-mx\r\n250-8BITMIME\r\n250 XFORWARD NAME addr\r\n250 2.0.0 Ok\r\n";
        for piece in 1..text.len() {
            let (mut reader, mut found) = (SmtpReplyReader::default(), Vec::new());
            for octets in text.chunks(piece) {
                reader.push(octets);
                while let Some(reply) = reader.next_reply().expect("a reply") {
                    found.push(reply);
                }
            }
            assert_eq!(found.len(), 3, "{piece}");
            let offers = SmtpOffers::of(&found[1]);
            assert!(offers.eight_bit && !offers.size && offers.xforward == ["NAME", "ADDR"], "{offers:?}");
        }
    }

    #[test]
    fn another_protocol_is_named() {
        for text in ["UNKNOWN COMMAND\n", "\0\0\0\rO", "22x hello\r\n", "220-a\r\n250 b\r\n"] {
            let mut reader = SmtpReplyReader::default();
            reader.push(text.as_bytes());
            let error = reader.next_reply().expect_err("no reply").to_string();
            assert!(error.starts_with("this is no SMTP server: it begins with \""), "{error}");
        }
        let mut reader = SmtpReplyReader::default();
        reader.push(&[b'2'; REPLY_BYTES_MAX + 1]);
        assert!(reader.next_reply().is_err(), "a line without end");
    }

    #[test]
    fn the_client_is_named_as_far_as_the_filter_wants() {
        let all = ["NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE"].map(str::to_owned).to_vec();
        let mut offers = SmtpOffers { xforward: all, ..SmtpOffers::default() };
        let client = ForwardedClient {
            client: "[2001:db8::1]:4242".parse().ok(),
            name: Some("mx.client.test"),
            helo: "a+b\r\nQUIT",
            protocol: "ESMTPS",
            queue_id: "6AK9",
        };
        assert_eq!(
            xforward(&offers, &client),
            [
                "XFORWARD NAME=mx.client.test ADDR=IPv6:2001:db8::1 PORT=4242",
                "XFORWARD PROTO=ESMTP HELO=a+2Bb+0D+0AQUIT IDENT=6AK9 SOURCE=REMOTE",
            ]
        );
        offers.xforward = vec!["ADDR".to_owned(), "NAME".to_owned()];
        let program = ForwardedClient { client: None, name: None, ..client };
        assert_eq!(xforward(&offers, &program), ["XFORWARD NAME=[UNAVAILABLE] ADDR=[UNAVAILABLE]"]);
        assert!(xforward(&SmtpOffers::default(), &client).is_empty());
    }

    #[test]
    fn content_ends_once_and_dots_are_doubled() {
        for (message, wanted) in [
            ("a\r\n.\r\nb", "a\r\n..\r\nb\r\n.\r\n"),
            (".\r\n", "..\r\n.\r\n"),
            ("", ".\r\n"),
            ("a\r\n.b\r\n..c\r\n", "a\r\n..b\r\n...c\r\n.\r\n"),
        ] {
            let mut out = Vec::new();
            write_data(message.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), wanted, "{message:?}");
        }
    }

    #[test]
    fn mail_has_the_parameters_that_are_offered() {
        let offers = SmtpOffers { eight_bit: true, size: true, smtputf8: true, xforward: Vec::new() };
        let to = vec![Address::parse("ü@example.com".as_bytes()).expect("an address")];
        assert_eq!(mail_command(&offers, "", &[], b"abc"), "MAIL FROM:<> SIZE=3");
        let wanted = "MAIL FROM:<a@b.test> SIZE=3 BODY=8BITMIME SMTPUTF8";
        assert_eq!(mail_command(&offers, "a@b.test", &to, "aü".as_bytes()), wanted);
        assert_eq!(mail_command(&SmtpOffers::default(), "a@b.test", &to, "ü".as_bytes()), "MAIL FROM:<a@b.test>");
    }
}

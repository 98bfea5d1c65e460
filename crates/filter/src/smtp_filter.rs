//! A filter that takes mail by SMTP and gives it back by SMTP, as amavisd-new: its offers, and the commands
//! of one message.
//!
//! The filter hears of the client by XFORWARD where it offers that (Postfix's XFORWARD_README). Not here: the
//! connection, and the mail that comes back.

use mail::{Address, Reply, encode_xtext};
use std::net::{IpAddr, SocketAddr};

/// Octets of a value of XFORWARD.
const VALUE_BYTES_MAX: usize = 255;
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn mail_has_the_parameters_that_are_offered() {
        let offers = SmtpOffers { eight_bit: true, size: true, smtputf8: true, xforward: Vec::new() };
        let to = vec![Address::parse("ü@example.com".as_bytes()).expect("an address")];
        assert_eq!(mail_command(&offers, "", &[], b"abc"), "MAIL FROM:<> SIZE=3");
        let wanted = "MAIL FROM:<a@b.test> SIZE=3 BODY=8BITMIME SMTPUTF8";
        assert_eq!(mail_command(&offers, "a@b.test", &to, "aü".as_bytes()), wanted);
        assert_eq!(mail_command(&SmtpOffers::default(), "a@b.test", &to, "ü".as_bytes()), "MAIL FROM:<a@b.test>");
    }
}

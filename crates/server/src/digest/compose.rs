//! The mail with the list of what is held for a recipient, as plain text.

use super::held_mail::HeldMail;
use super::link::ReleaseLink;
use crate::config::Config;
use crate::secret_key::SecretKey;
use mail::{Address, QueueId, base64, encoded_word, submission};
use os::clock;

/// Octets of a line of base64.
const BASE64_OCTETS: usize = 76;
/// Octets of a header line of ours up to which encoded words go.
const HEADER_OCTETS: usize = 70;

/// Writes the mail for a recipient, whose queue id is `id`. `count`: messages that are held, of which those `listed`
/// are in it.
pub(super) fn compose(
    config: &Config,
    key: &SecretKey,
    (to, id): (&Address, QueueId),
    listed: &[HeldMail],
    count: usize,
) -> Vec<u8> {
    let text = text(config, key, to, listed, count);
    let from = config.quarantine.digest_from.clone().unwrap_or_else(|| config.postmaster());
    let date = local_date(clock::unix_us());
    let subject = encoded_word::encode(&config.quarantine.digest_subject, HEADER_OCTETS);
    let (encoding, body) = match text.is_ascii() {
        true => ("7bit", text),
        false => ("base64", in_base64(text.as_bytes())),
    };
    format!(
        "From: {from}\r\nTo: {to}\r\nSubject: {subject}\r\nDate: {date}\r\nMessage-ID: <{id}.digest@{}>\r\n\
         Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: {encoding}\r\n\r\n{body}",
        config.hostname
    )
    .into_bytes()
}

fn text(config: &Config, key: &SecretKey, to: &Address, listed: &[HeldMail], count: usize) -> String {
    let messages = if count == 1 { "message" } else { "messages" };
    let mut text = format!(
        "{} holds {count} {messages} for <{to}> in quarantine.\r\n\r\n\
         To get a message, open its link and press the button on that page.\r\n\
         A message that you do not want needs nothing: it is deleted at its time.\r\n",
        config.hostname
    );
    for (number, HeldMail { message, facts }) in listed.iter().enumerate() {
        let link = ReleaseLink { id: message.id, position: message.position, ends: message.ends };
        let url = config.http.public_url.trim_end_matches('/');
        text.push_str(&format!(
            "\r\n{}. From:    {}\r\n   Subject: {}\r\n   Date:    {}\r\n   Reason:  {}\r\n",
            number + 1,
            facts.from,
            facts.subject,
            local_date(facts.came_us),
            facts.by,
        ));
        if let Some(ends) = facts.ends {
            text.push_str(&format!("   Deleted: {}\r\n", local_date(u64::from(ends) * 1_000_000)));
        }
        text.push_str(&format!("   {url}/quarantine/{}\r\n", link.to_text(key)));
    }
    if count > listed.len() {
        text.push_str(&format!("\r\n{} older messages are not listed.\r\n", count - listed.len()));
    }
    text
}

/// Returns a time as header fields have it, in the local time of the server.
pub(super) fn local_date(unix_us: u64) -> String {
    submission::date(unix_us, clock::local_offset_seconds(unix_us))
}

fn in_base64(octets: &[u8]) -> String {
    let encoded: String = base64::encode(octets).map(char::from).collect();
    let mut out = String::with_capacity(encoded.len() + encoded.len() / 38);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(BASE64_OCTETS));
        out.push_str(line);
        out.push_str("\r\n");
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::held_mail::HeldMessage;
    use super::*;
    use operator::http::HeldFacts;

    fn held(subject: &str) -> HeldMail {
        let message = HeldMessage { id: QueueId::MIN, position: 0, ends: 1_790_000_000 };
        let facts = HeldFacts {
            id: message.id,
            recipient: "b@example.com".to_owned(),
            from: "Ann <ann@client.test>".to_owned(),
            subject: subject.to_owned(),
            came_us: 1_780_000_000_000_000,
            size: 10,
            by: "chinese_text".to_owned(),
            ends: Some(message.ends),
        };
        HeldMail { message, facts }
    }

    #[test]
    fn a_digest_lists_each_message_with_its_link() {
        let mut config = Config::default();
        config.http.public_url = "https://mail.example.com/".to_owned();
        let (key, to) = (SecretKey::of_process(), "b@example.com".parse().expect("an address"));
        let mail = compose(&config, &key, (&to, QueueId::MIN), &[held("hello"), held("two")], 9);
        let mail = String::from_utf8(mail).expect("ASCII");
        assert!(mail.starts_with("From: postmaster@localhost\r\nTo: b@example.com\r\nSubject: Mail in quarantine\r\n"));
        assert!(mail.contains("localhost holds 9 messages for <b@example.com> in quarantine."), "{mail}");
        assert!(mail.contains("\r\n   Subject: hello\r\n") && mail.contains("\r\n2. From:    Ann <ann@"), "{mail}");
        assert!(mail.ends_with("\r\n7 older messages are not listed.\r\n"), "{mail}");
        let link = mail.split("https://mail.example.com/quarantine/").nth(1).and_then(|rest| rest.lines().next());
        assert!(ReleaseLink::parse(link.expect("a link"), &key).is_some());
    }

    #[test]
    fn a_digest_beyond_ascii_is_base64() {
        let (key, to) = (SecretKey::of_process(), "b@example.com".parse().expect("an address"));
        let mail = compose(&Config::default(), &key, (&to, QueueId::MIN), &[held("你好")], 1);
        let mail = String::from_utf8(mail).expect("ASCII");
        let (header, body) = mail.split_once("\r\n\r\n").expect("a body");
        assert!(header.contains("Content-Transfer-Encoding: base64") && mail.is_ascii());
        let body: Vec<u8> = body.bytes().filter(|octet| !octet.is_ascii_whitespace()).collect();
        let body = String::from_utf8(base64::decode(&body).expect("base64")).expect("UTF-8");
        assert!(body.contains("   Subject: 你好\r\n"), "{body}");
    }
}

//! One body per decoder: feed it any bytes, and it asserts what must hold for all bytes.
//!
//! The test `fuzz_bodies` drives them with mutated seeds in every run; a fuzzer's targets call the same functions. They
//! are part of the crate, not of its tests, so that both can reach them. Asserted everywhere: no panic, no output out
//! of proportion to the input, and that a value that was read and written is read again as the same.

pub mod seeds;

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::header::{HeaderSection, Item, LineEnd, unfold};
use crate::header_address::{AddrSpec, parse_list, rewrite};
use crate::report::{Kind, Original, RecipientReport, Report, compose};
use crate::{
    Address, Charset, Client, Domain, DomainName, EnhancedCode, Envelope, ForwardPath, MailParams, Outcome, Protocol,
    QueueId, Received, Recipient, RecipientParams, Reply, ReplyCode, ReversePath, encoded_word, parameters, seven_bit,
};

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 11] = [
    ("address", address),
    ("path", path),
    ("parameters", esmtp_parameters),
    ("queue_id", queue_id),
    ("reply", reply),
    ("header", header),
    ("header_address", header_address),
    ("encoded_word", encoded_words),
    ("report", delivery_report),
    ("seven_bit", seven_bit_content),
    ("long_lines", long_lines),
];

/// Asserts that a value survives its text, and that the text holds no control character.
fn survives<T: Display + FromStr<Err: Debug> + PartialEq + Debug>(value: &T) {
    let text = value.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert_eq!(text.parse::<T>().as_ref().ok(), Some(value), "{text:?}");
}

/// Addresses and domains of the envelope.
pub fn address(data: &[u8]) {
    match Address::parse(data) {
        Ok(address) => {
            survives(&address);
            assert!(address.to_string().len() <= data.len().max(64) + 64, "literals may grow, nothing else");
            survives_as_key(&address);
        }
        Err(error) => {
            assert!(error.position() <= data.len(), "{error}");
            assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    }
    if let Ok(domain) = Domain::parse(data) {
        survives(&domain);
    }
    if let Some(name) = str::from_utf8(data).ok().and_then(|text| DomainName::new(text).ok()) {
        survives(&name);
        let ascii = DomainName::new(name.ascii()).expect("the DNS form of a name is a name");
        assert_eq!(ascii.ascii(), name.ascii());
        assert!(name.ascii().len() <= 253 && !name.ascii().contains(|c: char| c.is_ascii_uppercase()));
        assert!(!name.unicode().is_empty());
    }
}

fn survives_as_key(address: &Address) {
    let key = address.key();
    let again = Address::parse(key.as_str().as_bytes()).map(|address| address.key());
    // The DNS form may be longer than the spelling, and then too long for an address.
    assert!(again.is_err() || again == Ok(key), "{address}");
    if let Some(ascii) = address.to_ascii() {
        assert!(ascii.is_ascii());
        assert_eq!(ascii.key(), address.key());
    }
}

/// Paths of `MAIL` and `RCPT`.
pub fn path(data: &[u8]) {
    if let Ok((path, rest)) = ReversePath::split(data) {
        survives(&path);
        assert!(data.ends_with(rest));
    }
    if let Ok((path, rest)) = ForwardPath::split(data) {
        survives(&path);
        assert!(data.ends_with(rest));
    }
}

/// Parameters of `MAIL` and `RCPT`.
pub fn esmtp_parameters(data: &[u8]) {
    for parameter in parameters(data) {
        match parameter {
            Ok(parameter) => assert!(!parameter.keyword.is_empty() && parameter.value != Some("")),
            Err(error) => assert!(!error.to_string().chars().any(char::is_control), "{error:?}"),
        }
    }
    if let Ok(params) = MailParams::parse(data) {
        survives(&params);
        assert!(params.to_string().is_ascii());
    }
    if let Ok(params) = RecipientParams::parse(data) {
        survives(&params);
        assert!(params.to_string().is_ascii());
    }
}

/// Queue ids as text and as number.
pub fn queue_id(data: &[u8]) {
    if let Some(id) = str::from_utf8(data).ok().and_then(|text| text.parse::<QueueId>().ok()) {
        survives(&id);
        assert_eq!(id.text(), data, "an id has one text");
    }
    if let Some(number) = data.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
        && let Some(id) = QueueId::from_u64(number)
    {
        survives(&id);
        assert_eq!(id.to_u64(), number);
    }
}

/// Replies of other servers, enhanced codes, protocol keywords.
pub fn reply(data: &[u8]) {
    if let Ok(reply) = Reply::parse(data, 65_536) {
        let mut wire = Vec::new();
        reply.write_to(&mut wire);
        assert_eq!(Reply::parse(&wire, wire.len()), Ok(reply));
        // U+FFFD has three bytes, a broken line 16 bytes of frame, a missing enhanced code up to 12.
        assert!(wire.len() <= 20 * data.len() + 64, "{} bytes from {}", wire.len(), data.len());
        assert!(wire.split_inclusive(|byte| *byte == b'\n').all(|line| line.len() <= 512 && line.ends_with(b"\r\n")));
    }
    if let Ok(text) = str::from_utf8(data) {
        if let Ok(code) = text.parse::<EnhancedCode>() {
            survives(&code);
        }
        if let Ok(protocol) = text.parse::<Protocol>() {
            survives(&protocol);
        }
    }
}

/// Header sections, with both kinds of line ends.
pub fn header(data: &[u8]) {
    for line_end in [LineEnd::Crlf, LineEnd::CrlfOrLf] {
        let header = HeaderSection::read(data, line_end);
        let mut at = 0;
        for item in header.items() {
            let (raw, offset) = match item {
                Item::Field(field) => {
                    assert!(
                        !field.name().is_empty() && field.name().bytes().all(|b| b.is_ascii_graphic() && b != b':')
                    );
                    assert!(field.raw().starts_with(field.name().as_bytes()));
                    assert!(field.unfolded().len() <= field.value().len());
                    assert_eq!(unfold(&field.unfolded()), field.unfolded(), "what is unfolded has no folds");
                    (field.raw(), field.offset())
                }
                Item::Malformed(lines) => (lines.raw(), lines.offset()),
            };
            assert!(offset == at && !raw.is_empty(), "items leave no gap");
            assert_eq!(data.get(at..at + raw.len()), Some(raw));
            at += raw.len();
        }
        assert_eq!(at, header.as_bytes().len(), "items cover the section");
        let separator = data.get(at..header.body_offset()).unwrap_or_default();
        assert!(matches!(separator, b"" | b"\r\n" | b"\n"), "{}", separator.escape_ascii());
        assert_eq!(header.is_closed(), !separator.is_empty());
    }
}

/// Addresses in header fields.
pub fn header_address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match parse_list(&text, None) {
        Ok(items) => {
            assert!(items.len() <= text.len());
            for mailbox in items.iter().flat_map(|item| item.mailboxes()) {
                let address = mailbox.address();
                assert_eq!(AddrSpec::parse(&address.to_string()).as_ref(), Ok(address));
                if let Ok(address) = address.to_address() {
                    survives(&address);
                }
            }
        }
        Err(error) => assert!(error.position() <= text.len(), "{error}"),
    }
    if let (Ok(address), Ok(spec)) = (Address::parse(data), AddrSpec::parse(&text)) {
        assert_eq!(spec.to_address(), Ok(address), "both grammars agree on what both accept");
    }
    let new: Address = "new@out.example".parse().expect("an address");
    let replaced = |value: &[u8]| rewrite(value, |_| Ok::<_, std::convert::Infallible>(Some(new.clone())));
    if let Ok(Some(value)) = replaced(data) {
        assert_eq!(
            replaced(&value),
            Ok(None),
            "what was replaced is found again, and nothing else: {}",
            value.escape_ascii()
        );
    }
}

/// Encoded words, with and without a fallback for raw text.
pub fn encoded_words(data: &[u8]) {
    for fallback in [None, Charset::for_label("gb18030"), Charset::for_label("iso-2022-jp")] {
        let decoded = encoded_word::decode(data, fallback);
        assert!(decoded.text.len() <= 3 * data.len() + 16, "{} bytes from {}", decoded.text.len(), data.len());
        let encoded = encoded_word::encode(&decoded.text, 10);
        assert!(encoded.len() <= 8 * decoded.text.len() + 16);
        let again = encoded_word::decode(encoded.as_bytes(), None);
        assert!(again.text == decoded.text && !again.is_damaged && again.unknown_charsets.is_empty(), "{encoded}");
    }
}

/// Reports: the first line of the input is an address, the second what a server says and is called, and all of it the
/// message that is returned.
pub fn delivery_report(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let address = lines.next().and_then(|line| Address::parse(line.as_bytes()).ok());
    let address = address.unwrap_or_else(|| "bob@example.org".parse().expect("an address"));
    let said = lines.next().unwrap_or_default();
    let reply = Reply::new(ReplyCode::of(550), None, said);
    let envelope = Envelope {
        id: QueueId::MIN,
        sender: ReversePath::Address(address.clone()),
        params: MailParams { smtputf8: data.len().is_multiple_of(2), ..MailParams::default() },
        received: Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient::new(address.clone())],
    };
    let recipients: Vec<_> = [Kind::Failed, Kind::Delayed, Kind::Relayed]
        .into_iter()
        .zip(&envelope.recipients)
        .map(|(kind, recipient)| RecipientReport {
            recipient,
            kind,
            status: EnhancedCode::of(Outcome::Permanent, 1, 1),
            reply: Some(&reply),
            remote_mta: Some(said),
            text: &text,
            reason: Some(said),
            last_attempt_us: Some(u64::MAX),
            will_retry_until_us: Some(0),
            is_past_time: false,
        })
        .collect();
    let report = Report {
        reporting_mta: said,
        envelope: &envelope,
        recipients: &recipients,
        at_us: 0,
        offset_seconds: 0,
        id: QueueId::MIN,
        postmaster: false,
        is_further: false,
        to: &address,
    };
    for original in [Original::Whole(data), Original::Headers(data), Original::None] {
        let composed = compose(&report, original);
        let content = &composed.content;
        assert!(content.len() <= 8 * data.len() + 40_000, "{} bytes from {}", content.len(), data.len());
        assert!(composed.body.is_some() || seven_bit::is_seven_bit(content));
        assert!(content.split(|byte| *byte == b'\n').all(|line| line.len() <= 999), "lines of at most 998 octets");
        let newlines = memchr::memchr_iter(b'\n', content).count();
        assert!(memchr::memmem::find_iter(content, "\r\n").count() == newlines && memchr::memchr(0, content).is_none());
        let header = HeaderSection::read(content, LineEnd::Crlf);
        assert!(header.is_closed() && header.items().all(|item| matches!(item, Item::Field(_))));
        assert!(header.items().count() <= 11, "no field beyond our own");
        assert_eq!(report.envelope_for(&composed).sender, ReversePath::Null);
        // Nothing in it but the original can be past conversion.
        assert!(
            matches!(original, Original::Whole(_)) || seven_bit::convert(content).left.is_none() || composed.smtputf8
        );
    }
}

/// Content with lines that are too long.
pub fn long_lines(data: &[u8]) {
    const MAX: usize = 80;
    let found = seven_bit::shorten_lines(data, MAX);
    let out = &found.content;
    if !crate::long_line::has_long_line(data, MAX) {
        assert_eq!((out.as_slice(), found.left), (data, None), "what needs no change stays");
    }
    assert_eq!(seven_bit::shorten_lines(out, MAX).content, *out, "shortened once is enough");
}

/// Content for a next hop without 8BITMIME.
pub fn seven_bit_content(data: &[u8]) {
    let found = seven_bit::convert(data);
    let out = &found.content;
    assert!(out.len() <= 3 * data.len() + 128 * (1 + data.len() / 16), "{} bytes from {}", out.len(), data.len());
    if seven_bit::is_seven_bit(data) {
        assert_eq!((out.as_slice(), found.left), (data, None), "what needs no change stays");
    }
    assert_eq!(seven_bit::convert(out), found, "converted once is enough");
}

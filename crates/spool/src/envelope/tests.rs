//! That every envelope comes back from its bytes, and the errors for other bytes.

use super::*;
use bytes::Bytes;
use mail::{
    Body, Deadline, DeliverBy, EnvId, Hold, HoldSeconds, HoldTime, MtPriority, Notify, OriginalRecipient, Ret, Session,
    Submitter,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::num::NonZeroU32;

fn any_address() -> impl Strategy<Value = Address> {
    let local = prop_oneof!["[a-zA-Z0-9.+_-]{1,20}", r#""[a-z @"\\]{0,9}""#, "[a-zäöü用]{1,9}"];
    let domain = prop_oneof![
        r"[a-zA-Z0-9-]{1,12}(\.[a-z]{2,9}){0,3}",
        "[a-zß用]{1,9}\\.example",
        any::<Ipv4Addr>().prop_map(|ip| format!("[{ip}]")),
        any::<Ipv6Addr>().prop_map(|ip| format!("[IPv6:{ip}]")),
        "\\[future-tag:[a-zA-Z0-9!.:]{1,9}\\]",
    ];
    (local, domain).prop_filter_map("not in the grammar", |(local, domain)| format!("{local}@{domain}").parse().ok())
}

fn any_mail_params() -> impl Strategy<Value = MailParams> {
    let auth = prop_oneof![Just(Submitter::Unknown), any_address().prop_map(Submitter::Address)];
    let body = prop_oneof![Just(Body::SevenBit), Just(Body::EightBitMime), Just(Body::BinaryMime)];
    let hold = prop_oneof![
        (1..=999_999_999_u32).prop_filter_map("range", HoldSeconds::new).prop_map(Hold::For),
        (0..253_402_300_800_i64).prop_filter_map("range", HoldTime::new).prop_map(Hold::Until),
    ];
    let deadline = prop_oneof![
        (1..=999_999_999_u32).prop_filter_map("zero", NonZeroU32::new).prop_map(Deadline::Return),
        (-999_999_999..=999_999_999).prop_map(Deadline::Notify),
    ];
    let by = (deadline, any::<bool>()).prop_filter_map("range", |(deadline, trace)| DeliverBy::new(deadline, trace));
    (
        (option::of(any::<u64>()), option::of(body), any::<bool>(), any::<bool>()),
        option::of(prop_oneof![Just(Ret::Full), Just(Ret::Headers)]),
        option::of("[ -~]{1,33}".prop_filter_map("length", |text| EnvId::new(&text))),
        option::of(auth),
        option::of((-9..=9_i8).prop_filter_map("range", MtPriority::new)),
        option::of(hold),
        option::of(by),
    )
        .prop_map(|((size, body, smtputf8, requiretls), ret, envid, auth, mt_priority, hold, by)| MailParams {
            size,
            body,
            smtputf8,
            ret,
            envid,
            auth,
            mt_priority,
            requiretls,
            hold,
            by,
        })
}

fn any_received() -> impl Strategy<Value = Received> {
    let v6 = (any::<Ipv6Addr>(), any::<u16>(), any::<u32>(), any::<u32>());
    let client = prop_oneof![
        Just(Client::Internal),
        any::<u32>().prop_map(|uid| Client::Process { uid }),
        (any::<Ipv4Addr>(), any::<u16>()).prop_map(|(ip, port)| Client::Network(SocketAddrV4::new(ip, port).into())),
        v6.prop_map(|(ip, port, flow, scope)| Client::Network(SocketAddrV6::new(ip, port, flow, scope).into())),
    ];
    let session = any::<[bool; 3]>().prop_map(|[tls, auth, utf8]| Session { tls, auth, utf8 });
    let protocol = prop_oneof![
        Just(Protocol::Local),
        Just(Protocol::Smtp),
        session.clone().prop_map(Protocol::Esmtp),
        session.prop_map(Protocol::Lmtp),
    ];
    let helo = option::of(r"\PC{1,60}".prop_filter_map("no name", |text| HeloName::new(text.as_bytes())));
    (any::<u64>(), client, helo, protocol).prop_map(|(at_us, client, helo, protocol)| Received {
        at_us,
        client,
        helo,
        protocol,
    })
}

fn any_recipient() -> impl Strategy<Value = Recipient> {
    let orcpt = prop_oneof![("[a-zA-Z0-9-]{1,9}", "[ -~]{1,60}"), (Just("UTF-8".to_owned()), r"\PC{1,40}")];
    (
        any_address(),
        option::of((0..=7_u8).prop_filter_map("range", Notify::from_bits)),
        option::of(orcpt.prop_filter_map("charset", |(kind, address)| OriginalRecipient::new(&kind, &address))),
    )
        .prop_map(|(address, notify, orcpt)| Recipient { address, params: RecipientParams { notify, orcpt } })
}

fn any_envelope() -> impl Strategy<Value = Envelope> {
    let id = (QueueId::MIN.to_u64()..=QueueId::MAX.to_u64()).prop_filter_map("range", QueueId::from_u64);
    let sender = prop_oneof![Just(ReversePath::Null), any_address().prop_map(ReversePath::Address)];
    (id, sender, any_mail_params(), any_received(), vec(any_recipient(), 0..5))
        .prop_map(|(id, sender, params, received, recipients)| Envelope { id, sender, params, received, recipients })
}

/// Returns the envelope as the spool gives it back.
fn stored(encoded: &Encoded) -> StoredEnvelope {
    let recipients = encoded.recipients.iter().zip(0..).map(|((data, destination), position)| crate::StoredRecipient {
        position,
        data: Bytes::copy_from_slice(data),
        destination: Bytes::copy_from_slice(destination),
        state: crate::State::default(),
    });
    StoredEnvelope {
        head: Bytes::copy_from_slice(&encoded.head),
        body_bytes: 0,
        body_offset: 0,
        recipients: recipients.collect(),
    }
}

proptest! {
    #[test]
    fn every_envelope_comes_back(envelope in any_envelope()) {
        let encoded = Encoded::new(&envelope);
        prop_assert_eq!(decode(envelope.id, &stored(&encoded)), Ok(envelope));
    }

    #[test]
    fn a_record_of_screen_comes_back(envelope in any_envelope(), record in r"\PC{0,80}", cut in any::<prop::sample::Index>()) {
        prop_assert_eq!(decode_screening(&Encoded::new(&envelope).head), Ok(None));
        let encoded = Encoded::new(&envelope).with_screening(&record);
        prop_assert_eq!(decode_screening(&encoded.head), Ok(Some(record)));
        prop_assert_eq!(decode(envelope.id, &stored(&encoded)), Ok(envelope));
        prop_assert!(decode_screening(&encoded.head[..cut.index(encoded.head.len())]).is_err());
    }

    #[test]
    fn no_beginning_of_an_envelope_is_one(envelope in any_envelope(), cut in any::<prop::sample::Index>()) {
        let encoded = Encoded::new(&envelope);
        let head = &encoded.head[..cut.index(encoded.head.len())];
        prop_assert!(decode_head(envelope.id, head).is_err());
        for (data, _) in &encoded.recipients {
            prop_assert!(decode_recipient(&data[..cut.index(data.len())]).is_err());
        }
    }

    #[test]
    fn foreign_bytes_are_refused_or_read(bytes in vec(any::<u8>(), 0..80)) {
        let versioned = [VERSION, SCREENED_VERSION].map(|version| [&[version], bytes.as_slice()].concat());
        for bytes in std::iter::once(bytes).chain(versioned) {
            drop(decode_head(QueueId::MIN, &bytes));
            drop(decode_recipient(&bytes));
        }
    }
}

#[test]
fn destinations_have_one_spelling() {
    for (address, destination) in [
        ("a@Example.ORG", "example.org"),
        ("a@BÜCHER.example", "xn--bcher-kva.example"),
        ("a@[192.0.2.1]", "[192.0.2.1]"),
        ("a@[IPv6:2001:DB8:0::1]", "[IPv6:2001:db8::1]"),
    ] {
        assert_eq!(default_destination(&address.parse().unwrap()), destination.as_bytes(), "{address}");
    }
}

/// The bytes of version 1, which must never change.
#[test]
fn version_1_has_these_bytes() {
    let envelope = Envelope {
        id: QueueId::MIN,
        sender: ReversePath::Address("a@b.example".parse().unwrap()),
        params: "SIZE=9".parse().unwrap(),
        received: Received {
            at_us: 0x0102_0304_0506_0708,
            client: Client::Network("192.0.2.1:25".parse().unwrap()),
            helo: HeloName::new(b"mx"),
            protocol: Protocol::Smtp,
        },
        recipients: vec![Recipient::new("c@d.example".parse().unwrap())],
    };
    let encoded = Encoded::new(&envelope);
    let head =
        b"\x01\x0b\0a@b.example\x06\0SIZE=9\x08\x07\x06\x05\x04\x03\x02\x01\x02\xc0\0\x02\x01\x19\0\x02\0mx\x04\0SMTP";
    assert_eq!(encoded.head.escape_ascii().to_string(), head.escape_ascii().to_string());
    assert_eq!(encoded.recipients()[0].data, b"\x01\x0b\0c@d.example\0\0");
    let screened = encoded.clone().with_screening("{}");
    let rest = head.get(1..).unwrap_or_default();
    assert_eq!(screened.head, [b"\x02", rest, b"\x02\0\0\0{}"].concat(), "version 2 has a record of screen more");
}

#[test]
fn errors_name_the_field_or_the_version() {
    let says = |head: &[u8], text: &str| {
        let error = decode_head(QueueId::MIN, head).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(b"", "version: the bytes end before it");
    says(b"\x03", "version 3, 2 is the newest");
    says(b"\x02", "sender: the bytes end before it");
    says(b"\x01\x03\0a@@", "sender: ");
    says(b"\x01\0\0\x03\0X=1", "parameters: ");
    says(b"\x01\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x09", "client: kind 9 is unknown");
    let error = decode_recipient(b"\x01\x0b\0c@d.example\0\0!").unwrap_err().to_string();
    assert!(error.contains("1 bytes follow the last field"), "{error}");
    let error = decode_recipient(b"\x02").unwrap_err().to_string();
    assert!(error.contains("version 2, 1 is the newest"), "{error}");
}

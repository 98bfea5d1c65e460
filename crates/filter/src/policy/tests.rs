//! Requests and replies as data.

use super::*;

#[test]
fn a_request_has_every_attribute_of_postfix() {
    let attributes = PolicyAttributes {
        protocol_name: "ESMTP",
        helo_name: "client.example",
        sender: "a@b\nrecipient=forged",
        recipient: "c@d",
        client_address: "192.0.2.1",
        client_port: 4_242,
        size: 12_345,
        encryption_keysize: 256,
        stress: true,
        ..PolicyAttributes::default()
    };
    let mut out = Vec::new();
    write_request(PolicyState::Rcpt, &attributes, &mut out);
    let text = String::from_utf8(out).expect("ASCII");
    assert!(text.starts_with("request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\n"), "{text}");
    assert!(text.ends_with("\n\n"), "{text}");
    for line in [
        "sender=a@b?recipient=forged",
        "recipient=c@d",
        "client_port=4242",
        "size=12345",
        "stress=yes",
        "encryption_keysize=256",
        "queue_id=",
        "recipient_count=0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is missing in {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("recipient=")).count(), 1);
    // Attributes of Postfix 3.6, SMTPD_POLICY_README.
    let names = "request protocol_state protocol_name helo_name queue_id sender recipient recipient_count client_address \
                 client_name reverse_client_name instance sasl_method sasl_username sasl_sender size ccert_subject \
                 ccert_issuer ccert_fingerprint encryption_protocol encryption_cipher encryption_keysize etrn_domain \
                 stress ccert_pubkey_fingerprint client_port policy_context server_address server_port \
                 compatibility_level mail_version";
    for name in names.split_whitespace() {
        let lines = text.lines().filter(|line| line.split_once('=').is_some_and(|(of, _)| of == name));
        assert_eq!(lines.count(), 1, "{name}");
    }
}

/// Reads a reply, also octet by octet.
fn read(reply: &[u8]) -> Result<Option<PolicyAction>, PolicyError> {
    let whole = PolicyReplyReader::default().push(reply, true);
    let mut reader = PolicyReplyReader::default();
    let mut last = Ok(None);
    for octet in reply {
        last = reader.push(&[*octet], false);
        if !matches!(last, Ok(None)) {
            break;
        }
    }
    if last == Ok(None) {
        last = reader.push(b"", true);
    }
    assert_eq!(last.as_ref().ok(), whole.as_ref().ok(), "{}", reply.escape_ascii());
    whole
}

/// The text of a reply, behind the name of its action.
fn shown(action: &PolicyAction) -> String {
    match action {
        PolicyAction::Reject(reply) => format!("reject {reply}"),
        PolicyAction::Defer(reply) => format!("defer {reply}"),
        PolicyAction::DeferIfPermit(reply) => format!("defer if permit {reply}"),
        PolicyAction::DeferIfReject(reply) => format!("defer if reject {reply}"),
        PolicyAction::Disconnect(reply) => format!("disconnect {reply}"),
        PolicyAction::Prepend { name, value } => {
            format!("prepend {}:{}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        }
        PolicyAction::Redirect(address) => format!("redirect {address}"),
        PolicyAction::Copy(address) => format!("copy {address}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn actions_of_access_tables() {
    let rows = [
        ("DUNNO", "Dunno"),
        ("dunno", "Dunno"),
        ("OK", "Ok"),
        ("1234567", "Ok"),
        ("REJECT", "reject 554 5.7.1 Access denied"),
        ("REJECT go away", "reject 554 5.7.1 go away"),
        ("REJECT 5.7.23 SPF", "reject 554 5.7.23 SPF"),
        ("DEFER", "defer 450 4.7.1 Service is not available now"),
        ("DEFER_IF_PERMIT Greylisted, see http://x", "defer if permit 450 4.7.1 Greylisted, see http://x"),
        ("DEFER_IF_REJECT x", "defer if reject 450 4.7.1 x"),
        // The class of an enhanced code follows the code, as in Postfix.
        ("DEFER 5.2.0 later", "defer 450 4.2.0 later"),
        ("450 later", "defer 450 4.7.1 later"),
        ("550 5.1.1 nobody", "reject 550 5.1.1 nobody"),
        ("421 bye", "disconnect 421 4.7.1 bye"),
        ("521 bye", "disconnect 521 5.7.1 bye"),
        ("PREPEND X-Greylist: delayed 300 seconds", "prepend X-Greylist: delayed 300 seconds"),
        ("HOLD why", "Hold(\"why\")"),
        ("DISCARD", "Discard(\"\")"),
        ("REDIRECT a@example.com", "redirect a@example.com"),
        ("REDIRECT <a@example.com>", "redirect a@example.com"),
        ("BCC a@example.com", "copy a@example.com"),
        ("WARN look", "Log(\"look\")"),
        (
            "FILTER smtp:[127.0.0.1]",
            "NotSupported(\"the action \\\"FILTER smtp:[127.0.0.1]\\\" is not supported and counts as DUNNO\")",
        ),
        (
            "permit_mynetworks, reject",
            "NotSupported(\"the action \\\"permit_mynetworks, reject\\\" is not supported and counts as DUNNO\")",
        ),
    ];
    for (action, wanted) in rows {
        let reply = format!("action={action}\n\n");
        let got = read(reply.as_bytes()).unwrap_or_else(|error| panic!("{action}: {error}"));
        assert_eq!(shown(&got.expect("a whole reply")), wanted, "{action}");
    }
}

#[test]
fn replies_that_cannot_be_used() {
    for action in ["PREPEND no colon", "PREPEND : x", "PREPEND a b: x", "REDIRECT nowhere@", "BCC"] {
        let error = read(format!("action={action}\n\n").as_bytes()).expect_err(action);
        assert!(matches!(error, PolicyError::Malformed { .. }), "{action}: {error:?}");
    }
    for other in [b"220 mx ESMTP\r\n".as_slice(), b"result=x\n\n", b"\n", b"HTTP/1.1 400 Bad\r\n\r\n"] {
        let error = read(other).expect_err("another protocol");
        assert!(error.to_string().starts_with("this is no policy server"), "{error}");
    }
    assert_eq!(read(b"action=DUN"), Err(PolicyError::Incomplete));
    let long = [b"action=".as_slice(), &[b'x'; 20_000]].concat();
    assert_eq!(PolicyReplyReader::default().push(&long, false), Err(PolicyError::TooLong));
}

#[test]
fn a_connection_serves_several_requests() {
    let mut reader = PolicyReplyReader::default();
    assert_eq!(reader.push(b"action=DUNNO\n\naction=OK\n\n", false), Ok(Some(PolicyAction::Dunno)));
    assert!(reader.has_rest(), "an answer too many");
    assert_eq!(reader.push(b"", false), Ok(Some(PolicyAction::Ok)));
    assert!(!reader.has_rest());
    // Attributes that are not known are passed over.
    assert_eq!(reader.push(b"x=y\r\naction=DUNNO\r\n\r\n", false), Ok(Some(PolicyAction::Dunno)));
}

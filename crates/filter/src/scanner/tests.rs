//! Requests and replies as data. Replies are those of ClamAV 1.4.6, SpamAssassin 4.0.1 and rspamd 3.4.

use super::rspamd::RspamdRequest;
use super::spamd::SpamdMethod;
use super::*;
use crate::milter::{Edit, HeaderField, apply_header_edits};

fn result(action: ScanAction) -> ScanResult {
    ScanResult::of(action)
}

/// Reads a response in pieces of each size.
fn response(reader: fn() -> ResponseReader, octets: &[u8]) -> Result<Response, ScannerError> {
    let mut results = (1..=octets.len().max(1)).map(|size| {
        let mut reader = reader();
        for piece in octets.chunks(size) {
            if let Some(response) = reader.push(piece, false)? {
                return Ok(response);
            }
        }
        reader.push(b"", true).map(|response| response.expect("nothing more can come"))
    });
    let first = results.next().expect("at least one size");
    for other in results {
        // An error may show less of an answer that arrives in pieces.
        assert_eq!(other.as_ref().ok(), first.as_ref().ok(), "{}", octets.escape_ascii());
    }
    first
}

#[test]
fn replies_of_clamd() {
    let found = |name: &str| ScanResult { threat: Some(name.to_owned()), ..result(ScanAction::Reject(None)) };
    let rows: [(&str, ScanResult); 6] = [
        ("stream: OK", result(ScanAction::Pass)),
        ("stream: Eicar-Signature FOUND", found("Eicar-Signature")),
        (
            "stream: Win.Test(44d88612fea8a8f36de82e1278abb02f:68) FOUND",
            found("Win.Test(44d88612fea8a8f36de82e1278abb02f:68)"),
        ),
        ("INSTREAM size limit exceeded. ERROR", result(ScanAction::TooLarge("INSTREAM size limit exceeded".into()))),
        (
            "stream: Heuristics.Limits.Exceeded.MaxFileSize FOUND",
            result(ScanAction::TooLarge("Heuristics.Limits.Exceeded.MaxFileSize".into())),
        ),
        ("stream: Can't allocate memory ERROR", result(ScanAction::Failed("Can't allocate memory".into()))),
    ];
    for (reply, wanted) in rows {
        assert_eq!(clamd::read_scan(reply), Ok(wanted), "{reply}");
    }
    for reply in ["220 mx ESMTP", "UNKNOWN COMMAND", "", "PONG"] {
        let error = clamd::read_scan(reply).expect_err(reply);
        assert!(error.to_string().starts_with("this is no clamd"), "{error}");
    }
    assert!(matches!(clamd::read_scan("stream: well"), Err(ScannerError::Malformed { .. })));
    assert_eq!(clamd::read_pong("PONG"), Ok(()));
    assert!(clamd::read_pong("220 mx").is_err());
    assert_eq!(clamd::read_version("ClamAV 1.4.6").as_deref(), Ok("ClamAV 1.4.6"));
    assert!(clamd::read_version("nginx").is_err());
}

#[test]
fn replies_of_clamd_arrive_in_pieces() {
    let mut reader = clamd::ClamdReplyReader::default();
    assert_eq!(reader.push(b"stream: ", false), Ok(None));
    assert_eq!(reader.push(b"OK\0", false), Ok(Some("stream: OK".to_owned())));
    assert_eq!(clamd::ClamdReplyReader::default().push(b"500 no\r\n", false), Ok(Some("500 no".to_owned())));
    let cut = clamd::ClamdReplyReader::default().push(b"stream: O", true);
    assert_eq!(cut, Err(ScannerError::Incomplete { protocol: "clamd" }));
    assert!(matches!(
        clamd::ClamdReplyReader::default().push(&[b'x'; 5_000], false),
        Err(ScannerError::TooLong { limit: "reply_bytes_max", .. })
    ));
    assert_eq!(clamd::chunk_head(0x1_02), [0, 0, 1, 2]);
}

#[test]
fn requests_to_spamd() {
    let rows = [
        (SpamdMethod::Ping, Some("user"), "PING SPAMC/1.5\r\n\r\n"),
        (SpamdMethod::Check, None, "CHECK SPAMC/1.5\r\nContent-length: 5\r\n\r\n"),
        (SpamdMethod::Symbols, Some("a\r\nX: y"), "SYMBOLS SPAMC/1.5\r\nContent-length: 5\r\nUser: a  X: y\r\n\r\n"),
        (SpamdMethod::Headers, Some(""), "HEADERS SPAMC/1.5\r\nContent-length: 5\r\n\r\n"),
    ];
    for (method, user, wanted) in rows {
        let mut out = Vec::new();
        spamd::write_request(method, 5, user, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), wanted);
    }
}

fn added(result: &ScanResult) -> Vec<(String, String)> {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let add = |edit: &FieldEdit| match edit {
        FieldEdit::Add { name, value, .. } => Some((text(name), text(value))),
        FieldEdit::Remove { .. } => None,
    };
    result.edits.iter().filter_map(add).collect()
}

#[test]
fn scores_of_spamd() {
    let spam = b"SPAMD/1.1 0 EX_OK\r\nContent-length: 10\r\nSpam: True ; 7.5 / 5.0\r\n\r\nT_SPAMWORD";
    let read = response(spamd::response_reader, spam).expect("a response");
    let result = spamd::read_scan(SpamdMethod::Symbols, &read, b"").expect("a score");
    assert_eq!(result.action, ScanAction::Tag);
    assert_eq!(result.score, Some(Score { points: 7.5, threshold: 5.0 }));
    assert_eq!(result.rules, ["T_SPAMWORD"]);
    let fields = added(&result);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        fields,
        [
            ("X-Spam-Flag", " YES"),
            ("X-Spam-Status", " Yes, score=7.5 required=5.0\r\n\ttests=T_SPAMWORD"),
            ("X-Spam-Level", " *******"),
        ]
    );
    let ham = response(spamd::response_reader, b"SPAMD/1.1 0 EX_OK\r\nSpam: False ; -0.5 / 5.0\r\n\r\n");
    let result = spamd::read_scan(SpamdMethod::Check, &ham.expect("a response"), b"").expect("a score");
    assert_eq!(result.action, ScanAction::Pass);
    assert_eq!(added(&result), [("X-Spam-Status".into(), " No, score=-0.5 required=5.0\r\n\ttests=none".into())]);
    // The other three fields were perhaps written by the sender.
    assert_eq!(result.edits.len(), 4);
}

#[test]
fn fields_of_spamd() {
    let header = b"From: a@b\r\nSubject: [SPAM] x\r\nX-Spam-Status: Yes, score=7.5 required=5.0 tests=A,B,\r\n\tC_D \
                   autolearn=no\r\nX-Spam-Flag: YES\r\nContent-Type: multipart/mixed\r\n\r\n";
    let mut octets = format!("SPAMD/1.1 0 EX_OK\r\nContent-length: {}\r\n", header.len()).into_bytes();
    octets.extend_from_slice(b"Spam: True ; 7.5 / 5.0\r\n\r\n");
    octets.extend_from_slice(header);
    let read = response(spamd::response_reader, &octets).expect("a response");
    let shown = b"From: a@b\r\nx-spam-status: No\r\nX-Spam-Old: 1\r\nSubject: x\r\n\r\nbody";
    let result = spamd::read_scan(SpamdMethod::Headers, &read, shown).expect("a score");
    assert_eq!(result.action, ScanAction::TagSubject("[SPAM] x".into()));
    assert_eq!(result.rules, ["A", "B", "C_D"]);
    let names: Vec<String> = added(&result).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["X-Spam-Status", "X-Spam-Flag"], "no other field is taken");
    assert_eq!(result.edits.len(), 4, "two are removed: {:?}", result.edits);
}

#[test]
fn answers_of_spamd_that_are_no_score() {
    let read = |octets: &[u8]| response(spamd::response_reader, octets).expect("a response");
    assert_eq!(spamd::read_pong(&read(b"SPAMD/1.5 0 PONG\r\n")), Ok(()));
    let failed = read(b"SPAMD/1.0 76 Bad header line: FOO SPAMC/1.5\r\n");
    assert!(spamd::read_pong(&failed).is_err());
    let failed = spamd::read_scan(SpamdMethod::Check, &failed, b"").expect("a result");
    assert_eq!(failed, result(ScanAction::Failed("76 Bad header line: FOO SPAMC/1.5".into())));
    for spam in ["", "Spam: True\r\n", "Spam: maybe ; 1 / 2\r\n", "Spam: True ; NaN / 5\r\n", "Spam: True ; 1 / x\r\n"]
    {
        let read = read(format!("SPAMD/1.1 0 EX_OK\r\n{spam}\r\n").as_bytes());
        let error = spamd::read_scan(SpamdMethod::Check, &read, b"");
        assert!(matches!(error, Err(ScannerError::Malformed { .. })), "{spam}: {error:?}");
    }
    let other = response(spamd::response_reader, b"220 mx ESMTP\r\n").expect_err("SMTP");
    assert!(other.to_string().starts_with("this is no spamd: its answer begins with \"2"), "{other}");
}

#[test]
fn a_request_to_rspamd() {
    let request = RspamdRequest {
        queue_id: "id1",
        ip: "192.0.2.1",
        from: "a@b",
        recipients: &["c@d", "e@f"],
        user: "x\r\nInjected: y",
        ..RspamdRequest::default()
    };
    let mut out = Vec::new();
    rspamd::write_request("localhost", &request, 9, false, &mut out);
    assert_eq!(
        String::from_utf8_lossy(&out),
        "POST /checkv2 HTTP/1.1\r\nHost: localhost\r\nQueue-Id: id1\r\nIP: 192.0.2.1\r\nFrom: <a@b>\r\nRcpt: \
         <c@d>\r\nRcpt: <e@f>\r\nUser: x  Injected: y\r\nContent-Length: 9\r\nConnection: close\r\n\r\n"
    );
}

// RFC 9112 §9.3 (test)
#[test]
fn a_connection_stays_open_only_if_nothing_can_follow() {
    let keeps = |head: &str, body: &str| {
        let octets = format!("{head}\r\n\r\n{body}");
        response(rspamd::response_reader, octets.as_bytes()).expect("a response").stays_open
    };
    assert!(keeps("HTTP/1.1 200 OK\r\nContent-Length: 2", "{}"));
    assert!(keeps("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2", "{}"));
    assert!(!keeps("HTTP/1.0 200 OK\r\nContent-Length: 2", "{}"));
    assert!(!keeps("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2", "{}"));
    assert!(!keeps("HTTP/1.1 200 OK", "{}"), "the body ends with the connection");
    // More octets than the answer has are seen where they come with its last ones.
    let more = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK";
    let read = rspamd::response_reader().push(more, false).expect("well formed").expect("complete");
    assert!(!read.stays_open, "an answer too many");
}

/// Makes a response with a body.
fn http(status: &str, body: &str) -> Response {
    let octets = format!("HTTP/1.1 {status}\r\nServer: rspamd/3.4\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    response(rspamd::response_reader, octets.as_bytes()).expect("a response")
}

#[test]
fn actions_of_rspamd() {
    let rows = [
        (r#"{"action":"no action"}"#, ScanAction::Pass),
        (r#"{"action":"add header"}"#, ScanAction::Tag),
        (r#"{"action":"rewrite subject","subject":"[x] ä"}"#, ScanAction::TagSubject("=?utf-8?Q?[x]_=C3=A4?=".into())),
        (r#"{"action":"greylist"}"#, ScanAction::Defer(None)),
        (
            r#"{"action":"soft reject","messages":{"smtp_message":"Try\r\nagain"}}"#,
            ScanAction::Defer(Some("Try  again".into())),
        ),
        (
            r#"{"action":"reject","messages":{"smtp_message":"Gtube pattern"}}"#,
            ScanAction::Reject(Some("Gtube pattern".into())),
        ),
        (r#"{"action":"discard"}"#, ScanAction::Discard),
        (r#"{"action":"quarantine"}"#, ScanAction::Quarantine),
    ];
    for (body, wanted) in rows {
        let read = rspamd::read_scan(&http("200 OK", body)).unwrap_or_else(|error| panic!("{body}: {error}"));
        match (&read.action, &wanted) {
            (ScanAction::TagSubject(subject), ScanAction::TagSubject(_)) => {
                assert_eq!(mail::encoded_word::decode(subject.as_bytes(), None).text, "[x] ä");
            }
            (action, wanted) => assert_eq!(action, wanted, "{body}"),
        }
    }
    let failed = rspamd::read_scan(&http("500 invalid command", r#"{"error":"invalid command"}"#));
    assert_eq!(failed, Ok(result(ScanAction::Failed("500 invalid command".into()))));
    for body in ["", "[]", "{}", r#"{"action":"sing"}"#, r#"{"action":5}"#] {
        let error = rspamd::read_scan(&http("200 OK", body));
        assert!(matches!(error, Err(ScannerError::Malformed { .. })), "{body}: {error:?}");
    }
    assert_eq!(rspamd::read_pong(&http("200 OK", "pong\r\n")), Ok(()));
    assert!(rspamd::read_pong(&http("404 Not found", "")).is_err(), "another server");
}

#[test]
fn edits_of_rspamd() {
    let body = r#"{"action":"add header","score":7.0,"required_score":15.0,
        "symbols":{"T_GTUBE2":{"name":"T_GTUBE2","score":7.0}},
        "dkim-signature":"v=1;\r\n\tb=x",
        "milter":{"remove_headers":{"X-Old":0,"X-N":-1,"X-Two":[1,7]},
        "add_headers":{"X-Test":{"order":1,"value":"yes"},"X-A":[{"order":-1,"value":"a"},"b",3]}}}"#;
    let read = rspamd::read_scan(&http("200 OK", body)).expect("a result");
    assert_eq!(read.score, Some(Score { points: 7.0, threshold: 15.0 }));
    assert_eq!(read.rules, ["T_GTUBE2"]);
    let field = |text: &str| {
        let (name, value) = text.split_once(':').expect("a field");
        HeaderField { name: name.into(), value: value.into() }
    };
    let mut fields: Vec<HeaderField> =
        ["Received: own", "X-Old: 1", "x-n: 1", "X-N: 2", "X-OLD: 2", "X-Two: 1", "X-Two: 2"].map(field).to_vec();
    let edits: Vec<Edit> = as_milter_edits(&read.edits, &fields[1..]);
    apply_header_edits(&mut fields, 1, &edits);
    let lines: Vec<String> = fields
        .iter()
        .map(|field| format!("{}:{}", String::from_utf8_lossy(&field.name), String::from_utf8_lossy(&field.value)))
        .collect();
    assert_eq!(
        lines,
        [
            "Received: own",
            "DKIM-Signature: v=1;\r\n\tb=x",
            "X-Test: yes",
            "x-n: 1",
            "X-Two: 2",
            "X-A: a",
            "X-A: b",
            "X-A: 3"
        ]
    );
    for bad in [r#"{"X\r\nY":"z"}"#, r#"{"X":"a\nInjected: b"}"#, r#"{"X":{"order":1}}"#, r#"{"X":null}"#] {
        let body = format!(r#"{{"action":"no action","milter":{{"add_headers":{bad}}}}}"#);
        let error = rspamd::read_scan(&http("200 OK", &body));
        assert!(matches!(error, Err(ScannerError::Malformed { .. })), "{bad}: {error:?}");
    }
}

#[test]
fn bodies_end_as_their_fields_say() {
    let body = |octets: &[u8]| response(rspamd::response_reader, octets).map(|response| response.body);
    let head = b"HTTP/1.1 200 OK\r\n".as_slice();
    let chunked = b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n1;x=y\r\ne\r\n0\r\n\r\n".as_slice();
    assert_eq!(body(&[head, chunked].concat()).as_deref(), Ok(b"abcde".as_slice()));
    assert_eq!(body(&[head, b"\r\nto the end"].concat()).as_deref(), Ok(b"to the end".as_slice()));
    let bad: [&[u8]; 5] = [
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: +1\r\n\r\na",
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"no field\r\n\r\n",
    ];
    for rest in bad {
        let error = body(&[head, rest].concat());
        assert!(matches!(error, Err(ScannerError::Malformed { .. })), "{}: {error:?}", rest.escape_ascii());
    }
    for rest in [b"Content-Length: 5\r\n\r\nabc".as_slice(), b"Content-Le", b"Transfer-Encoding: chunked\r\n\r\n5\r\na"]
    {
        let error = body(&[head, rest].concat());
        assert!(matches!(error, Err(ScannerError::Incomplete { .. })), "{}: {error:?}", rest.escape_ascii());
    }
    for rest in [b"Content-Length: 99999999999\r\n\r\n".as_slice(), b"Transfer-Encoding: chunked\r\n\r\nfffffff0\r\n"] {
        let error = body(&[head, rest].concat());
        assert!(matches!(error, Err(ScannerError::TooLong { limit: "body_bytes_max", .. })), "{error:?}");
    }
    let mut reader = rspamd::response_reader();
    assert!(matches!(
        reader.push(&[head, &vec![b'x'; 70_000]].concat(), false),
        Err(ScannerError::TooLong { limit: "head_bytes_max", .. })
    ));
}

#[test]
fn replies_of_a_session_of_clamd_have_numbers() {
    for (reply, expected) in [
        ("1: stream: OK", "stream: OK"),
        ("12: stream: Test.Pattern FOUND", "stream: Test.Pattern FOUND"),
        ("stream: OK", "stream: OK"),
        ("stream: 1: x FOUND", "stream: 1: x FOUND"),
        (": stream: OK", ": stream: OK"),
        ("PONG", "PONG"),
        ("1: ", ""),
    ] {
        assert_eq!(clamd::without_number(reply), expected);
    }
}

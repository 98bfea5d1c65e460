//! The cases of isemail (Dominic Sayers), a collection of 164 addresses with a diagnosis for each, against both
//! grammars.
//!
//! The data and their licence are in `tests/data`. A case's category has the expected result:
//!
//! | category | RFC 5321 mailbox | RFC 5322 addr-spec |
//! |---|---|---|
//! | valid, `ISEMAIL_DNSWARN`, valid for SMTP but unusual | yes | yes |
//! | `ISEMAIL_CFWS`, `ISEMAIL_DEPREC`, valid in a message only | no | yes |
//! | `ISEMAIL_ERR` | no | no |
//!
//! "RFC 5321 mailbox" means that `Address::parse` takes it and its local part is within the limit of the RFC. Where we
//! differ, `EXCEPTIONS` says why. Both are exact: a case that changes its outcome, or an exception that is not needed,
//! fails.

use mail::Address;
use mail::header_address::AddrSpec;

const CASES: &str = include_str!("../data/isemail-tests.xml");

/// Number of the case, whether it is an RFC 5321 mailbox, whether it is an RFC 5322 addr-spec, why not as isemail says.
const EXCEPTIONS: [(u32, bool, bool, &str); 8] = [
    (15, true, true, "a dot may stand first: such mailboxes exist; it is written out quoted"),
    (16, true, true, "as 15, a dot at the end"),
    (30, false, true, "RFC 5322 dot-atoms may begin with a hyphen; only the envelope has rules for host names"),
    (31, false, true, "as 30, a label that ends with a hyphen"),
    (102, false, true, "as 30, the last label"),
    (60, true, true, "the length of the meaning counts: written without the needless backslash it has 64 octets"),
    (
        71,
        true,
        true,
        ":: for a single group is no longer to be written, but RFC 4291 §2.2 allows it and everybody reads it",
    ),
    (160, false, true, "RFC 6532 §3.2 allows non-ASCII after a backslash; RFC 6531 §3.3 does not"),
];

struct Case {
    number: u32,
    address: String,
    category: String,
    diagnosis: String,
}

// RFC 5321 §4.1.2 (test), RFC 5321 §4.1.3 (test), RFC 5322 §3.4.1 (test), RFC 5322 §3.2.2 (test), RFC 5322 §4.1 (test),
// RFC 5322 §4.2 (test), RFC 5322 §4.4 (test)
#[test]
fn every_case_has_its_outcome() {
    let cases = read_cases(CASES);
    assert_eq!(cases.len(), 164, "cases read");
    let mut wrong = Vec::new();
    for case in &cases {
        let by_category = match case.category.as_str() {
            "ISEMAIL_VALID_CATEGORY" | "ISEMAIL_DNSWARN" | "ISEMAIL_RFC5321" => (true, true),
            "ISEMAIL_CFWS" | "ISEMAIL_DEPREC" | "ISEMAIL_RFC5322" => (false, true),
            "ISEMAIL_ERR" => (false, false),
            other => panic!("case {}: unknown category {other}", case.number),
        };
        let exception = EXCEPTIONS.iter().find(|(number, ..)| *number == case.number);
        let expected = exception.map_or(by_category, |(_, envelope, header, _)| (*envelope, *header));
        assert!(exception.is_none() || expected != by_category, "case {} is no exception", case.number);

        let mailbox = Address::parse(case.address.as_bytes());
        let addr_spec = AddrSpec::parse(&case.address);
        let is_mailbox = mailbox.as_ref().is_ok_and(|address| !address.local_part().is_oversize());
        if (is_mailbox, addr_spec.is_ok()) != expected {
            wrong.push(format!(
                "{} {:?} {}: expected {expected:?}\n    {mailbox:?}\n    {addr_spec:?}",
                case.number, case.address, case.diagnosis
            ));
        }
        // An address that both parsers take means the same to both.
        if let (Ok(address), Ok(spec)) = (&mailbox, &addr_spec) {
            assert_eq!(spec.to_address().as_ref(), Ok(address), "case {}", case.number);
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Reads the test elements. The file is ours and never changes, so the reader knows no more XML than it has.
fn read_cases(xml: &str) -> Vec<Case> {
    let tests = xml.split("<test id=\"").skip(1);
    tests
        .map(|test| {
            let (number, body) = test.split_once("\">").expect("an id");
            let element = |name: &str| {
                let inside = body.split_once(&format!("<{name}>")).map(|(_, rest)| rest);
                unescape(inside.and_then(|rest| rest.split_once(&format!("</{name}>"))).map_or("", |(text, _)| text))
            };
            Case {
                number: number.parse().expect("a number"),
                address: element("address"),
                category: element("category"),
                diagnosis: element("diagnosis"),
            }
        })
        .collect()
}

/// Resolves entities. Control characters stand in the file as the symbols for them from U+2400 on.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, entity)) = rest.split_once('&') {
        let (name, after) = entity.split_once(';').expect("an entity");
        out.push_str(before);
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            code => {
                let code = code.strip_prefix("#x").and_then(|hex| u32::from_str_radix(hex, 16).ok()).expect("a number");
                char::from_u32(code).expect("a character")
            }
        });
        rest = after;
    }
    out.push_str(rest);
    out.chars()
        .map(|c| match u32::from(c) {
            code @ 0x2400..=0x241f => char::from_u32(code - 0x2400).expect("a control character"),
            _ => c,
        })
        .collect()
}

//! One body per reader: any bytes, and the assertions that hold for all bytes.
//!
//! The test `fuzz_bodies` drives them with generated input in every run; a fuzzer's targets call the same functions.

use mail::header::{HeaderSection, LineEnd};

use crate::auth_results::{MethodResult, field, forged};
use crate::dkim::Algorithm;
use crate::dkim::canonical::{CanonicalBody, Canonicalization};
use crate::dkim::key_record::compare;
use crate::dkim::signing::{SignatureValues, SignedFields, Unsigned, author_domain};
use crate::dkim::verification::{BodyHashes, Cryptography, DkimCode, KeyVerdict, Signatures};
use crate::dmarc::{self, DmarcCode, DmarcPolicy, DmarcRequest};
use crate::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind};
use crate::milter::{
    Actions, Agreement, EditLimits, HeaderField, MilterSession, Offer, PacketReader, Received, Sent, Steps,
    apply_header_edits,
};
use crate::mime::{DamageSet, walk};
use crate::policy::{PolicyAction, PolicyReplyReader};
use crate::scanner::spamd::SpamdMethod;
use crate::scanner::{Response, ScanAction, as_milter_edits, clamd, rspamd, spamd};
use crate::spf::{self, SpfRequest};
use crate::{Limits, Message, Recipient, RuleSet, header_text};

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 8] = [
    ("rules", rules),
    ("mime", mime),
    ("header_words", header_words),
    ("milter", milter_replies),
    ("policy", policy_replies),
    ("scanners", scanner_replies),
    ("sender_records", sender_records),
    ("signatures", signatures),
];

/// Rule files: problems have a line of the file, and a sound set can be evaluated.
pub fn rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match RuleSet::parse(&[("fuzz.rules", &text)]) {
        Ok(rules) => {
            let message = Message::new(data, LineEnd::CrlfOrLf);
            let evaluation = rules.evaluate(message, &Limits::default());
            assert!(evaluation.matches().len() <= rules.rules().len());
            assert!((0..rules.rules().len()).all(|rule| evaluation.explain(rule).is_some()));
        }
        Err(problems) => {
            let lines = text.lines().count().max(1);
            assert!(!problems.is_empty() && problems.iter().all(|one| (1..=lines).contains(&one.line)), "{problems:?}");
        }
    }
}

/// A set that asks for everything.
const RULES: &str = r#"
rule all {
  match any {
    header ~ /a.b/
    part header ~ /x/
    text ~ /hello\s+world/
    charset = "gbk"
    script = "Han"
    attachment name ~ /\.exe$/
    attachment type = "exe"
    part type = "text/html"
    damage
    not fully scanned
    recipient = "@example.com"
  }
  reject
}
"#;

/// Messages: the walk keeps its limits, and rules can be evaluated on them.
pub fn mime(data: &[u8]) {
    let limits = Limits { parts_max: 50, depth_max: 8, decoded_bytes_max: 10_000, ..Limits::default() };
    let tree = walk(data, LineEnd::Crlf, &limits);
    assert!((1..=limits.parts_max).contains(&tree.parts.len()));
    for part in &tree.parts {
        assert!(part.depth <= limits.depth_max);
        assert!(part.header.end <= part.body.start && part.body.start <= part.body.end && part.body.end <= data.len());
        let decoded = part.decode(data, 1_000);
        assert!(decoded.octets.len() <= 1_000);
        let _text = part.text(&decoded.octets, &mut DamageSet::default());
    }
    let rules = RuleSet::parse(&[("all.rules", RULES)]).expect("the rules are sound");
    let mut message = Message::new(data, LineEnd::Crlf);
    message.recipients = vec![Recipient { address: "a@example.com", list: None }];
    let evaluation = rules.evaluate(message, &limits);
    assert_eq!(evaluation.matches().len(), 1, "the recipient matches");
    assert!(evaluation.explain(0).is_some_and(|report| report.holds && report.is_in_scope));
}

/// Header values: the text is not out of proportion.
pub fn header_words(data: &[u8]) {
    let found = header_text::decode(data);
    // An octet of a single-byte charset takes three in UTF-8 at most.
    assert!(found.text.len() <= data.len() * 3 + 3);
    let _letters = crate::script::Letters::of(&found.text, true);
}

/// Packets of a filter: the octets are its whole stream, behind a negotiation that allows everything. Edits that are
/// taken leave a header section whose lines belong to fields, and our own field on top of those that were shown.
pub fn milter_replies(data: &[u8]) {
    let agreement = Agreement {
        version: 6,
        actions: Actions::ALL,
        steps: if data.first().is_some_and(|octet| octet & 1 == 1) { Steps::LEADING_BLANK } else { Steps(0) },
        macros: Vec::new(),
    };
    let mut session = MilterSession::new(agreement, EditLimits::default(), Vec::new());
    let mut reader = PacketReader::new(65_536);
    reader.push(data);
    let mut out = Vec::new();
    assert_eq!(session.end_of_body(&|_| None, &mut out), Sent::AwaitsReply);
    while let Ok(Some(packet)) = reader.next_packet() {
        if let Ok(agreement) = Agreement::read(&Offer::default(), &packet) {
            assert!(agreement.data_bytes_max() >= 65_535);
        }
        if !matches!(session.receive(&packet), Ok(Received::Progress | Received::Edit)) {
            break;
        }
    }
    let edits = session.take_edits();
    let field = |name: &str, value: &str| HeaderField { name: name.into(), value: value.into() };
    let mut fields = vec![field("Received", " own"), field("Subject", " a"), field("X", " b")];
    let own = apply_header_edits(&mut fields, 1, &edits.list);
    assert_eq!(fields.get(own - 1), Some(&field("Received", " own")));
    assert_whole(&fields);
}

/// Replies of policy servers: an action is read from the octets up to the empty line alone, and fields stay whole.
pub fn policy_replies(data: &[u8]) {
    let mut reader = PolicyReplyReader::default();
    let mut octets = data;
    while let Ok(Some(action)) = reader.push(octets, false) {
        octets = &[];
        if let PolicyAction::Prepend { name, value } = action {
            assert_whole(&[HeaderField { name, value }]);
        }
    }
    let mut reader = PolicyReplyReader::default();
    assert!(!matches!(reader.push(data, true), Ok(None)), "the end of the connection is an answer or a fault");
}

/// Replies of clamd, spamd and rspamd: scores are finite, and edits leave whole fields.
pub fn scanner_replies(data: &[u8]) {
    if let Ok(Some(reply)) = clamd::ClamdReplyReader::default().push(data, true) {
        let found = clamd::read_scan(&reply);
        let passes = found.as_ref().is_ok_and(|result| result.action == ScanAction::Pass);
        assert_eq!(passes, reply == "stream: OK", "{reply:?}");
        assert!(found.is_ok_and(|result| result.score.is_none()) || !passes);
    }
    let mut results = Vec::new();
    if let Ok(Some(response)) = spamd::response_reader().push(data, true) {
        for method in [SpamdMethod::Check, SpamdMethod::Symbols, SpamdMethod::Headers] {
            results.extend(spamd::read_scan(method, &response, data));
        }
    }
    if let Ok(Some(response)) = rspamd::response_reader().push(data, true) {
        results.extend(rspamd::read_scan(&response));
    }
    // The octets as the body of a response, too: a response by chance has none.
    let first_line = "HTTP/1.1 200 OK".to_owned();
    let body = Response { first_line, fields: Vec::new(), body: data.to_vec(), stays_open: false };
    results.extend(rspamd::read_scan(&body));
    for result in results {
        assert!(result.score.is_none_or(|score| score.points.is_finite() && score.threshold.is_finite()));
        let mut fields = vec![HeaderField { name: b"Received".to_vec(), value: b" own".to_vec() }];
        let edits = as_milter_edits(&result.edits, &[]);
        apply_header_edits(&mut fields, 1, &edits);
        assert_whole(&fields);
    }
}

/// Checks that no line of a field begins another or ends the header section.
fn assert_whole(fields: &[HeaderField]) {
    for field in fields {
        assert!(
            field.value.split(|&octet| octet == b'\n').skip(1).all(|line| matches!(line.first(), Some(b' ' | b'\t')))
        );
        assert!(!field.name.is_empty() && field.name.iter().all(u8::is_ascii_graphic));
    }
}

/// The most questions that a check of one sender has: what ten terms of SPF, ten names each, and two walks up the tree
/// need.
const QUESTIONS_MAX: usize = 250;

/// Calls a check with answers from lines of a text, the same lines for each name, until it has a result.
fn answered<T>(text: &str, mut check: impl FnMut(&DnsAnswers) -> Result<T, DnsQuestion>) -> T {
    let mut answers = DnsAnswers::default();
    for _ in 0..QUESTIONS_MAX {
        match check(&answers) {
            Ok(result) => return result,
            Err(question) => {
                let lines = text.lines().map(str::to_owned);
                let records: Vec<DnsRecord> = match question.kind {
                    RecordKind::Txt => lines.map(DnsRecord::Text).collect(),
                    RecordKind::Mx => lines.map(DnsRecord::Exchange).collect(),
                    RecordKind::Ptr => lines.map(DnsRecord::Name).collect(),
                    RecordKind::A | RecordKind::Aaaa => {
                        lines.filter_map(|line| line.parse().ok().map(DnsRecord::Address)).collect()
                    }
                };
                let answer = if records.len() > 40 { DnsAnswer::Failed } else { DnsAnswer::Records(records) };
                answers.insert(question, answer);
            }
        }
    }
    panic!("a check asks without end")
}

/// Records of SPF, DMARC and DKIM keys: each check has a result after a bounded number of questions, a result other
/// than `fail` asks for nothing, and text of strangers stays within its field.
pub fn sender_records(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let name = text.lines().next().unwrap_or_default();
    let request = SpfRequest {
        ip: if data.len().is_multiple_of(2) { [192, 0, 2, 1].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into() },
        helo: name,
        sender: &format!("a@{}", if name.contains('.') { name } else { "a.example" }),
        receiver: "mx.example",
        time: 0,
    };
    let found = answered(&text, |answers| spf::check(&request, answers));
    let request = DmarcRequest { author: "a.b.example", passed: &[], is_open: false };
    let dmarc = answered(&text, |answers| dmarc::check(&request, answers));
    assert!(dmarc.code == DmarcCode::Fail || dmarc.policy == DmarcPolicy::None);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let _state = compare(&lines, Algorithm::RsaSha256, "QUJD");
    let properties = vec![("smtp.mailfrom", text.clone().into_owned())];
    let result = MethodResult { method: "spf", code: found.code.name(), reason: found.reason, properties };
    let written = field("mx.example", &[result]);
    let header = HeaderSection::read(written.as_bytes(), LineEnd::Crlf);
    assert!(written.is_ascii() && header.items().count() == 1 && header.fields().count() == 1, "{written}");
    assert_eq!(forged(&header, "mx.example"), [0]);
}

/// Takes every signature whose text is its key.
struct AnySignature;

impl Cryptography for AnySignature {
    fn base64(&self, text: &str) -> Option<Vec<u8>> {
        Some(text.as_bytes().to_vec())
    }

    fn verify(&self, _: Algorithm, key: &[u8], _: &[u8], signature: &[u8]) -> KeyVerdict {
        if key == signature { KeyVerdict::Good } else { KeyVerdict::Bad }
    }
}

/// Messages with signatures: each is judged, a signature of ours is one field that can be read, and a canonical body
/// stays as it is.
pub fn signatures(data: &[u8]) {
    let header = HeaderSection::read(data, LineEnd::Crlf);
    let received = Signatures::of(&header, 1_000);
    let results = answered("v=DKIM1; p=x", |answers| received.verify(&BodyHashes::default(), answers, &AnySignature));
    assert!(results.iter().all(|one| (one.code == DkimCode::Pass) == one.reason.is_empty()));
    let canonical = |body: &[u8]| {
        let (mut canonical, mut found) = (CanonicalBody::new(Canonicalization::Relaxed), Vec::new());
        canonical.push(body, &mut |octets| found.extend_from_slice(octets));
        canonical.finish(&mut |octets| found.extend_from_slice(octets));
        found
    };
    let once = canonical(data);
    assert!(canonical(&once) == once);
    let _author = author_domain(&header);
    let Some(fields) = SignedFields::of(&header) else { return };
    let values = SignatureValues {
        algorithm: Algorithm::Ed25519Sha256,
        domain: "a.example",
        selector: "s",
        time: 1_000,
        body_hash: "hash",
    };
    let text = Unsigned::new(&fields, &values).complete("x");
    let own = HeaderSection::read(text.as_bytes(), LineEnd::Crlf);
    let again = Signatures::of(&own, 1_000);
    let hashes = BodyHashes { relaxed: "hash".to_owned(), ..BodyHashes::default() };
    let results = answered("k=ed25519; p=x", |answers| again.verify(&hashes, answers, &AnySignature));
    assert!(results.len() == 1 && results.iter().all(|one| one.code == DkimCode::Pass), "{results:?} {text}");
}

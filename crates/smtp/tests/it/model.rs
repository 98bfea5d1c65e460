//! Random sequences of commands against a small model of the states in RFC 5321.
//!
//! The model knows which class of reply each command gets, whether a transaction is open behind it, and which messages
//! are stored. It shares no code with the session. Content breaks rules, verdicts refuse at every question, chunks and
//! DATA mix, and the connection may end anywhere.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use smtp::dialog::Dialog;
use smtp::rehearsal::Rehearsal;
use smtp::server::Settings;

/// The verdicts of the driver, by local part.
const RULES: &str = "refuse helo evil.test 550 5.7.1 no\nrefuse sender bad@* 550 5.7.1 no\nrefuse recipient no@* 550 5.1.1 no\n\
    refuse recipient later@* 450 4.2.0 later\nrefuse data nodata@* 452 4.3.1 full\nrefuse message full@* 452 4.2.2 full";

const MESSAGE_MAX: usize = 60;

#[derive(Clone, Debug)]
enum Op {
    Ehlo(&'static str),
    Mail(&'static str),
    /// A line that no MAIL may have.
    WrongMail(&'static str),
    Rcpt(&'static str),
    Data(Vec<u8>),
    Bdat(Vec<u8>, bool),
    Rset,
    Noop,
    Unknown,
    Quit,
}

#[derive(Clone, Debug, Default)]
struct Model {
    hello: bool,
    open: Option<Open>,
    stored: Vec<(String, Vec<String>, Vec<u8>)>,
    closed: bool,
    /// The control: a server that does not end the transaction when its content is refused.
    forgetful: bool,
}

#[derive(Clone, Debug)]
struct Open {
    sender: &'static str,
    recipients: Vec<String>,
    /// Chunks so far.
    chunks: Option<Vec<u8>>,
}

/// Returns the code for a fault of content by the default settings.
fn fault(content: &[u8]) -> Option<u16> {
    // The rule that is broken at the earlier octet is named; both kinds are permanent here, so the class is enough.
    let bare = (0..content.len()).any(|at| match content[at] {
        b'\r' => content.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || content[at - 1] != b'\r',
        0 => true,
        _ => false,
    });
    (bare || content.len() > MESSAGE_MAX).then_some(5)
}

impl Model {
    /// The octets that the operation sends, and the first digits of the replies to them.
    fn apply(&mut self, op: &Op) -> (Vec<u8>, Vec<u16>) {
        let line = |text: &str| format!("{text}\r\n").into_bytes();
        match op {
            Op::Ehlo(name) => {
                let good = *name != "evil.test";
                if good {
                    self.hello = true;
                    self.open = None;
                }
                (line(&format!("EHLO {name}")), vec![if good { 2 } else { 5 }])
            }
            Op::Mail(local) => {
                let good = self.hello && self.open.is_none() && *local != "bad";
                if good {
                    self.open = Some(Open { sender: local, recipients: Vec::new(), chunks: None });
                }
                (line(&format!("MAIL FROM:<{local}@b.test>")), vec![if good { 2 } else { 5 }])
            }
            Op::WrongMail(text) => (line(text), vec![5]),
            Op::Rcpt(local) => {
                let open = self.open.as_mut().filter(|open| open.chunks.is_none());
                let class = match (open, *local) {
                    (None, _) | (_, "no") => 5,
                    (_, "later") => 4,
                    (Some(open), local) => {
                        open.recipients.push(format!("{local}@d.test"));
                        2
                    }
                };
                (line(&format!("RCPT TO:<{local}@d.test>")), vec![class])
            }
            Op::Data(content) => self.data(content),
            Op::Bdat(content, last) => self.bdat(content, *last),
            Op::Rset => {
                self.open = None;
                (line("RSET"), vec![2])
            }
            Op::Noop => (line("NOOP"), vec![2]),
            Op::Unknown => (line("FROB"), vec![5]),
            Op::Quit => {
                self.closed = true;
                (line("QUIT"), vec![2])
            }
        }
    }

    fn data(&mut self, content: &[u8]) -> (Vec<u8>, Vec<u16>) {
        let mut wire = b"DATA\r\n".to_vec();
        let Some(open) = self.open.clone().filter(|open| open.chunks.is_none() && !open.recipients.is_empty()) else {
            return (wire, vec![5]);
        };
        self.open = None;
        if open.sender == "nodata" {
            return (wire, vec![4]);
        }
        // A dot in front of every line that begins with one; a line ends in CRLF.
        let text = String::from_utf8(content.to_vec()).unwrap();
        for text in text.split_inclusive("\r\n") {
            wire.extend_from_slice(if text.starts_with('.') { b"." } else { b"" });
            wire.extend_from_slice(text.as_bytes());
        }
        let stored = if content.is_empty() || content.ends_with(b"\r\n") {
            content.to_vec()
        } else {
            wire.extend_from_slice(b"\r\n");
            [content, b"\r\n"].concat()
        };
        wire.extend_from_slice(b".\r\n");
        let class = self.finish(open, stored);
        (wire, vec![3, class])
    }

    fn bdat(&mut self, content: &[u8], last: bool) -> (Vec<u8>, Vec<u16>) {
        let word = if last { " LAST" } else { "" };
        let wire = [format!("BDAT {}{word}\r\n", content.len()).as_bytes(), content].concat();
        let Some(mut open) = self.open.take() else { return (wire, vec![5]) };
        if open.recipients.is_empty() {
            self.open = Some(open);
            return (wire, vec![5]);
        }
        let so_far = open.chunks.clone().unwrap_or_default();
        if so_far.len() + content.len() > MESSAGE_MAX {
            return (wire, vec![5]);
        }
        if open.chunks.is_none() && open.sender == "nodata" {
            return (wire, vec![4]);
        }
        let so_far = [so_far, content.to_vec()].concat();
        if last {
            let class = self.finish(open, so_far);
            return (wire, vec![class]);
        }
        // A CR at the end may still find its LF.
        if fault(so_far.strip_suffix(b"\r").unwrap_or(&so_far)).is_some() {
            return (wire, vec![5]);
        }
        open.chunks = Some(so_far);
        self.open = Some(open);
        (wire, vec![2])
    }

    fn finish(&mut self, open: Open, content: Vec<u8>) -> u16 {
        if let Some(class) = fault(&content) {
            self.open = Some(open).filter(|_| self.forgetful);
            return class;
        }
        if open.recipients.first().is_some_and(|first| first.starts_with("full@")) {
            return 4;
        }
        self.stored.push((format!("<{}@b.test>", open.sender), open.recipients, content));
        2
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    let names = proptest::sample::select(vec!["a.test", "a.test", "evil.test"]);
    let senders = proptest::sample::select(vec!["a", "a", "a", "a", "bad", "nodata"]);
    let recipients = proptest::sample::select(vec!["c", "c", "e", "no", "later", "full"]);
    let wrong = proptest::sample::select(vec![
        "MAIL FROM:<a@b.test> FROB=1",
        "MAIL FROM:<a@b.test> SIZE=100000000000",
        "MAIL FROM:<a@>",
        "MAIL",
        "RCPT TO:c@d.test",
        "DATA x",
        "EHLO a b",
        "RCPT TO:<c@d.test> X=1",
    ]);
    let content = || {
        let part =
            proptest::sample::select(vec!["a", "b\r\n", ".", "\r\n", "..", "QUIT\r\n", "\n", "\r", "\0", "A: b\r\n"]);
        let clean = proptest::sample::select(vec!["a", "b\r\n", ".", "\r\n", "..", ".\r\n.", "RSET\r\n"]);
        prop_oneof![1 => vec(part, 0..8), 3 => vec(clean, 0..8), 1 => vec(Just("0123456789"), 0..9)]
            .prop_map(|parts| parts.concat().into_bytes())
    };
    prop_oneof![
        3 => names.prop_map(Op::Ehlo),
        8 => senders.prop_map(Op::Mail),
        1 => wrong.prop_map(Op::WrongMail),
        8 => recipients.prop_map(Op::Rcpt),
        6 => content().prop_map(Op::Data),
        6 => (content(), any::<bool>()).prop_map(|(content, last)| Op::Bdat(content, last)),
        1 => Just(Op::Rset),
        1 => Just(Op::Noop),
        1 => Just(Op::Unknown),
        1 => Just(Op::Quit),
    ]
}

fn begin() -> Rehearsal {
    let mut settings = Settings::new("mx.test");
    settings.limits.message_bytes = MESSAGE_MAX as u64;
    settings.limits.errors = u32::MAX;
    settings.limits.content_piece_bytes = 7;
    let mut rehearsal = Rehearsal::new(settings, Dialog::parse(RULES).unwrap());
    rehearsal.greet();
    rehearsal.take_said();
    rehearsal
}

/// First digits of the replies; every line must be one, whole and printable.
fn classes(said: &[u8]) -> Vec<u16> {
    let text = std::str::from_utf8(said).expect("replies are UTF-8");
    assert!(text.is_empty() || text.ends_with("\r\n"), "{text:?}");
    let lines = text.split_terminator("\r\n");
    assert!(lines.clone().all(|line| !line.contains(char::is_control)), "{text:?}");
    lines
        .filter(|line| line.as_bytes()[3] == b' ')
        .map(|line| line[..3].parse::<u16>().expect("a reply begins with a code") / 100)
        .collect()
}

fn stored(rehearsal: &Rehearsal) -> Vec<(String, Vec<String>, Vec<u8>)> {
    let messages = rehearsal.stored.iter();
    messages.map(|m| (m.sender.clone(), m.recipients.clone(), m.content.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    // RFC 5321 §4.1.4 (test), RFC 3030 §2 (test)
    #[test]
    fn the_session_is_the_model(
        ops in vec(any_op(), 1..40),
        hello in proptest::bool::weighted(0.9),
        piece in 1..50_usize,
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut model = Model::default();
        let mut waiting = begin();
        let mut wire = Vec::new();
        let mut wanted = Vec::new();
        let first = hello.then_some(Op::Ehlo("a.test"));
        for op in first.iter().chain(&ops) {
            let (octets, replies) = model.apply(op);
            // One command after the other: each is answered at once and leaves the state that the model has.
            waiting.feed(&octets);
            prop_assert_eq!(classes(&waiting.take_said()), replies.clone(), "{:?}", op);
            prop_assert_eq!(waiting.closed, model.closed);
            if model.closed {
                wire.extend(octets);
                wanted.extend(replies);
                break;
            }
            let open = waiting.session.transaction().map(|transaction| transaction.recipients.len());
            prop_assert_eq!(open, model.open.as_ref().map(|open| open.recipients.len()), "{:?}", op);
            wire.extend(octets);
            wanted.extend(replies);
        }
        prop_assert_eq!(stored(&waiting), model.stored.clone());

        // All in one flight, cut anywhere: the same replies, the same messages.
        let mut pipelined = begin();
        for octets in wire.chunks(piece) {
            pipelined.feed(octets);
        }
        prop_assert_eq!(classes(&pipelined.said), wanted);
        prop_assert_eq!(stored(&pipelined), model.stored.clone());

        // The connection breaks: the stored messages are the first of those that would have been stored.
        let mut broken = begin();
        broken.feed(&wire[..cut.index(wire.len() + 1)]);
        let stored = stored(&broken);
        prop_assert_eq!(&stored[..], &model.stored[..stored.len()]);
    }
}

/// A model with one rule wrong is told from the session, so the sequences reach each rule.
#[test]
fn a_forgetful_model_differs() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let found = (0..2_000).any(|_| {
        let ops = vec(any_op(), 1..40).new_tree(&mut runner).expect("a sequence").current();
        let mut model = Model { forgetful: true, hello: true, ..Model::default() };
        let mut session = begin();
        session.feed(b"EHLO a.test\r\n");
        session.take_said();
        ops.iter().take_while(|op| !matches!(op, Op::Quit)).any(|op| {
            let (octets, replies) = model.apply(op);
            session.feed(&octets);
            classes(&session.take_said()) != replies
        })
    });
    assert!(found);
}

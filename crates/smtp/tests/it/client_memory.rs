//! The memory for replies of a next hop: a reply is stored once and in part, however long it is and however many
//! recipients it is about.

use mail::{MailParams, Recipient, Reply};
use smtp::client::{Answer, ClientSettings, ClientTransaction, Outcome};
use smtp::client_rehearsal::{ClientRehearsal, Job};
use std::collections::BTreeMap;

/// Recipients of the transaction.
const COUNT: usize = 100;
/// Octets that a transaction may keep of all replies to it: of the first 64 KiB as much as they have, and of the others
/// little.
const KEPT_MAX: usize = 200 << 10;

/// A reply just inside the limits: 199 lines of 2,000 octets.
fn wordy(code: u16, mark: &str) -> Vec<u8> {
    let line = |separator: char| format!("{code}{separator}{:x<1994}\r\n", format!("{mark} "));
    [line('-').repeat(198), line(' ')].concat().into_bytes()
}

/// The outcomes of a transaction in which the server says this to MAIL and to each RCPT.
fn outcomes(to_mail: &[u8], to_rcpt: impl Fn(usize) -> Vec<u8>) -> Vec<Outcome> {
    let mut rehearsal = ClientRehearsal::new(ClientSettings::new("client.test"));
    let recipient = |nth| Recipient::new(format!("r{nth}@d.test").parse().unwrap());
    let transaction = ClientTransaction {
        token: 1,
        sender: "<a@b.test>".parse().unwrap(),
        params: MailParams::default(),
        recipients: (0..COUNT).map(recipient).collect(),
        content_bytes: 0,
    };
    rehearsal.jobs.push_back(Job { transaction, content: bytes::Bytes::from_static(b"hi\r\n") });
    let mut said = vec![b"220 mx.test ESMTP\r\n".to_vec(), b"250-mx.test\r\n250 PIPELINING\r\n".to_vec()];
    said.push(to_mail.to_vec());
    said.extend((0..COUNT).map(to_rcpt));
    for reply in said {
        rehearsal.pump();
        for piece in reply.chunks(10_000) {
            rehearsal.session.receive(piece, rehearsal.now);
        }
    }
    rehearsal.pump();
    rehearsal.session.receive(b"503 5.5.1 no recipients\r\n", rehearsal.now);
    rehearsal.pump();
    rehearsal.done.pop().expect("it is over").outcomes
}

/// Octets of text that the outcomes keep; text that several share counts once.
fn kept(outcomes: &[Outcome]) -> usize {
    let mut texts = BTreeMap::new();
    for outcome in outcomes {
        let Answer::Reply(reply) = &outcome.answer else { panic!("{outcome:?}") };
        texts.extend(reply.lines().map(|line| (line.as_ptr() as usize, line.len())));
    }
    texts.into_values().sum()
}

fn first(outcomes: &[Outcome]) -> &Reply {
    let Answer::Reply(reply) = &outcomes[0].answer else { panic!("{outcomes:?}") };
    reply
}

#[test]
fn one_reply_for_all_is_kept_once() {
    let outcomes = outcomes(&wordy(451, "4.3.0 not now"), |_| b"503 5.5.1 MAIL first\r\n".to_vec());
    assert_eq!(outcomes.len(), COUNT);
    let kept = kept(&outcomes);
    assert!(kept < 5 << 10, "{kept} octets are kept");
    assert!(first(&outcomes).to_string().starts_with("451 4.3.0 not now "));
    assert!(first(&outcomes).lines().last().unwrap().ends_with(" octets more]"));
}

#[test]
fn a_reply_for_each_is_kept_in_part() {
    let outcomes = outcomes(b"250 2.1.0 ok\r\n", |nth| wordy(550, &format!("5.1.1 no {nth}")));
    let kept = kept(&outcomes);
    assert!(kept < KEPT_MAX, "{kept} octets are kept");
    for (nth, outcome) in outcomes.iter().enumerate() {
        let Answer::Reply(reply) = &outcome.answer else { panic!("{outcome:?}") };
        assert!(reply.to_string().starts_with(&format!("550 5.1.1 no {nth} ")), "{reply}");
    }
}

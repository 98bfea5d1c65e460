//! A client session and a server session talk to each other, with random messages, verdicts, offers, pieces and an end
//! that may come at any octet.
//!
//! Invariants: each message arrives octet for octet, once, for exactly the recipients that the client calls delivered.
//! A recipient that the client calls refused was refused by the server. When the connection ends early, a recipient
//! whose message the server has and that is not called delivered is called lost behind the end, never refused and never
//! untried.

use proptest::collection::vec;
use proptest::prelude::*;
use smtp::client::{Answer, ClientDialect, ClientTransaction, Finished, Loss, Stage, TlsUse};
use smtp::client_rehearsal::{ClientRehearsal, Job};
use smtp::dialog::Dialog;
use smtp::rehearsal::Rehearsal;

/// The replies of the server, by local part.
const RULES: &str = "refuse sender bad* 550 5.7.1 no\nrefuse sender slow* 450 4.7.1 later\nrefuse recipient no@* 550 5.1.1 no\n\
    refuse recipient later@* 450 4.2.0 later\nrefuse data nodata* 452 4.3.1 full\nrefuse message full@* 452 4.2.2 full";

#[derive(Clone, Debug)]
struct Message {
    sender: &'static str,
    recipients: Vec<&'static str>,
    content: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Set {
    lmtp: bool,
    pipelining: bool,
    chunking: bool,
    tls: bool,
    /// Octets of content before the recipients are known.
    ahead: usize,
    /// Octets of pieces of content, of output to the server, and of its replies.
    pieces: [usize; 3],
    /// Octets to the server after which the connection ends.
    end: Option<usize>,
    /// Octets from the server behind which nothing comes back any more.
    heard: usize,
}

fn any_message() -> impl Strategy<Value = Message> {
    let senders = proptest::sample::select(vec!["a", "a", "a", "a", "a", "bad", "slow", "nodata"]);
    let recipients = proptest::sample::select(vec!["c", "c", "e", "no", "later", "full"]);
    let parts: Vec<&'static [u8]> = vec![
        b"a",
        b"b\r\n",
        b".",
        b"\r\n",
        b"..",
        b".\r\n",
        b"QUIT\r\n",
        b"\r\n.\r\n",
        &[b'x'; 700],
        b"Received: x\r\n",
    ];
    let content = vec(proptest::sample::select(parts), 0..9).prop_map(|parts| parts.concat());
    (senders, vec(recipients, 1..4), content).prop_map(|(sender, recipients, content)| Message {
        sender,
        recipients,
        content,
    })
}

fn any_set() -> impl Strategy<Value = Set> {
    let size = || prop_oneof![Just(1_usize), 2..80_usize, Just(100_000_usize)];
    let ahead = proptest::sample::select(vec![1, 1_000, 100_000]);
    let end = proptest::option::weighted(0.4, (1..4_000_usize, 1..2_000_usize));
    (any::<[bool; 4]>(), ahead, [size(), size(), size()], end).prop_map(
        |([lmtp, pipelining, chunking, tls], ahead, pieces, end)| Set {
            lmtp,
            pipelining,
            chunking,
            tls,
            ahead,
            pieces,
            end: end.map(|(end, _)| end),
            heard: end.map_or(usize::MAX, |(_, heard)| heard),
        },
    )
}

/// Talks until nothing moves any more.
fn talk(messages: &[Message], set: Set) -> (ClientRehearsal, Rehearsal) {
    let mut theirs = smtp::server::Settings::new("mx.test");
    theirs.starttls = set.tls;
    theirs.limits.errors = u32::MAX;
    theirs.limits.content_piece_bytes = 50;
    let mut ours = smtp::client::ClientSettings::new("client.test");
    ours.tls = TlsUse::IfOffered;
    (ours.pipelining, ours.chunking) = (set.pipelining, set.chunking);
    ours.limits.content_ahead_octets = set.ahead;
    if set.lmtp {
        theirs.dialect = smtp::server::Dialect::Lmtp;
        ours.dialect = ClientDialect::Lmtp;
    }
    let mut server = Rehearsal::new(theirs, Dialog::parse(RULES).unwrap());
    server.greet();
    let mut client = ClientRehearsal::new(ours);
    client.piece = set.pieces[0];
    client.room = set.end.unwrap_or(usize::MAX);
    client.jobs = messages
        .iter()
        .enumerate()
        .map(|(token, message)| {
            let address = |local: &str| mail::Recipient::new(format!("{local}@d.test").parse().unwrap());
            let transaction = ClientTransaction {
                token: token as u64,
                sender: format!("<{}{token}@b.test>", message.sender).parse().unwrap(),
                params: mail::MailParams::default(),
                recipients: message.recipients.iter().map(|local| address(local)).collect(),
                content_bytes: 0,
            };
            Job { transaction, content: message.content.clone().into() }
        })
        .collect();
    let mut heard = set.heard;
    loop {
        client.pump();
        let mut said = server.take_said();
        said.truncate(heard);
        heard -= said.len();
        let wire = client.take_wire();
        for piece in wire.chunks(set.pieces[1]) {
            server.feed(piece);
        }
        for piece in said.chunks(set.pieces[2]) {
            client.session.receive(piece, client.now);
        }
        client.pump();
        if client.wants_tls && server.wants_tls {
            server.tls();
            client.tls(true);
        } else if client.jobs.is_empty() && client.session.is_greeted() {
            client.session.quit(client.now);
            client.pump();
        }
        if client.closed || (said.is_empty() && wire.is_empty() && client.wire.is_empty() && server.said.is_empty()) {
            break;
        }
    }
    client.session.end_of_input(client.now);
    client.pump();
    (client, server)
}

/// The content as it must arrive: a last line without an end may have got one.
fn arrives(content: &[u8], stored: &[u8]) -> bool {
    stored == content || (!content.ends_with(b"\r\n") && stored.strip_suffix(b"\r\n") == Some(content))
}

fn check(messages: &[Message], set: Set, client: &ClientRehearsal, server: &Rehearsal) -> Result<(), TestCaseError> {
    for Finished { token, outcomes, .. } in &client.done {
        let message = &messages[usize::try_from(*token).unwrap()];
        let sender = format!("<{}{token}@b.test>", message.sender);
        let stored: Vec<_> = server.stored.iter().filter(|stored| stored.sender == sender).collect();
        prop_assert!(stored.len() <= 1, "{} came more than once", sender);
        let mut has: Vec<String> = stored.iter().flat_map(|stored| stored.recipients.clone()).collect();
        prop_assert!(stored.iter().all(|stored| arrives(&message.content, &stored.content)), "{:?}", stored);
        for (local, outcome) in message.recipients.iter().zip(outcomes) {
            let place = has.iter().position(|recipient| recipient.contains(&format!("{local}@d.test")));
            match &outcome.answer {
                Answer::Reply(reply) if outcome.is_delivered() => {
                    prop_assert!(place.is_some(), "{} {} is not there: {}", sender, local, reply);
                }
                Answer::Reply(reply) => {
                    let wanted = match (message.sender, *local) {
                        ("bad", _) => (Stage::Mail, 550),
                        ("slow", _) => (Stage::Mail, 450),
                        (_, "no") => (Stage::Rcpt, 550),
                        (_, "later") => (Stage::Rcpt, 450),
                        ("nodata", _) => (if set.uses_bdat() { Stage::End } else { Stage::Data }, 452),
                        _ => (Stage::End, 452),
                    };
                    prop_assert_eq!((outcome.stage, reply.code().get()), wanted, "{} {}", sender, local);
                    prop_assert!(place.is_none(), "{} {} is there and refused", sender, local);
                }
                Answer::Lost(loss) => {
                    prop_assert!(set.end.is_some() && *loss == Loss::Closed, "{} {:?}", sender, outcome);
                    prop_assert!(place.is_none() || outcome.stage == Stage::End, "{} {} {:?}", sender, local, outcome);
                }
                Answer::NotTried => {
                    prop_assert!(set.end.is_some(), "{} {} not tried", sender, local);
                    prop_assert!(place.is_none(), "{} {} is there and not tried", sender, local);
                }
            }
            if let Some(place) = place {
                has.remove(place);
            }
        }
        prop_assert!(has.is_empty(), "{} also reached {:?}", sender, has);
    }
    Ok(())
}

impl Set {
    const fn uses_bdat(&self) -> bool {
        self.chunking && !self.lmtp
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    // RFC 5321 §4.5.2 (test), RFC 2920 §3.1 (test), RFC 3030 §2 (test), RFC 2033 §4.2 (test)
    #[test]
    fn what_is_said_of_recipients_is_true(messages in vec(any_message(), 1..8), set in any_set()) {
        let (client, server) = talk(&messages, set);
        prop_assert!(client.closed);
        if set.end.is_none() {
            prop_assert_eq!(client.done.len(), messages.len());
            let closing = client.session.closing().unwrap();
            prop_assert!(closing.orderly && closing.stage == Stage::Quit, "{:?}", closing);
        }
        check(&messages, set, &client, &server)?;
    }
}

/// Behind each other without waiting, where it is allowed: the rehearsal reaches pipelining.
#[test]
fn transactions_overlap() {
    let message = Message { sender: "a", recipients: vec!["c"], content: b"hi\r\n".to_vec() };
    let set = |pipelining, chunking| Set {
        lmtp: false,
        pipelining,
        chunking,
        tls: false,
        ahead: 100_000,
        pieces: [100_000; 3],
        end: None,
        heard: usize::MAX,
    };
    let open = |pipelining, chunking| talk(&vec![message.clone(); 9], set(pipelining, chunking)).0.most_open;
    assert_eq!([open(false, false), open(false, true), open(true, false), open(true, true)], [1, 1, 2, 4]);
}

/// The checker notices a server that loses a message, and a client that calls a recipient untried that has it.
#[test]
fn a_wrong_story_is_noticed() {
    let message = Message { sender: "a", recipients: vec!["c"], content: b"hi\r\n".to_vec() };
    let set = Set {
        lmtp: false,
        pipelining: true,
        chunking: true,
        tls: false,
        ahead: 10,
        pieces: [100; 3],
        end: None,
        heard: usize::MAX,
    };
    let messages = [message];
    let (mut client, mut server) = talk(&messages, set);
    assert!(check(&messages, set, &client, &server).is_ok());
    let stored = server.stored.pop().unwrap();
    assert!(check(&messages, set, &client, &server).is_err());
    server.stored.extend([stored.clone(), stored.clone()]);
    assert!(check(&messages, set, &client, &server).is_err());
    server.stored = vec![stored];
    client.done[0].outcomes[0].answer = Answer::NotTried;
    assert!(check(&messages, Set { end: Some(1), ..set }, &client, &server).is_err());
}

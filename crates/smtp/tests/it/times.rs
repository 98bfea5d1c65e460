//! Time that passes while the driver is busy, which dialogs cannot show: it is never held against the client. And time
//! that ran for a transaction that is over.

use mail::{Client, Reply, ReplyCode};
use smtp::server::{AuthOffer, Question, Session, Settings, Step, Verdict};
use std::sync::Arc;
use std::time::Duration;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A greeted session, at second 0.
fn session(set: impl FnOnce(&mut Settings)) -> Session {
    let mut settings = Settings::new("mx.test");
    set(&mut settings);
    let mut session = Session::new(Arc::new(settings), Client::Network(([192, 0, 2, 1], 1_025).into()), None);
    session.greet(Verdict::Accept, at(0));
    assert_eq!(session.advance(b"EHLO a.test\r\n", at(0)).1, Step::Ask(Question::Helo));
    session.answer(Verdict::Accept, at(0));
    session
}

#[test]
fn the_check_of_a_password_is_not_the_clients_time() {
    let refusal = || Verdict::Refuse(Reply::new(ReplyCode::of(535), None, "5.7.8 No"));
    let answers: [fn(&mut Session, Verdict, Duration); 3] = [
        |session, _, now| session.auth_challenge(b"", now),
        |session, _, now| session.auth_succeeded("tim", now),
        |session, refusal, now| session.auth_failed(refusal, now),
    ];
    for answer in answers {
        let mut session = session(|settings| {
            settings.auth = AuthOffer { mechanisms: vec!["PLAIN".into()], without_tls: true, required: false };
        });
        assert_eq!(session.advance(b"AUTH PLAIN AHRpbQB4\r\n", at(1)).1, Step::Ask(Question::Auth));
        answer(&mut session, refusal(), at(301));
        assert!(!session.expire(at(302)), "the client has had one second");
        assert!(session.expire(at(601)));
    }
}

#[test]
fn the_driver_that_looks_something_up_is_not_the_clients_time() {
    let mut session = session(|settings| settings.verify = true);
    assert_eq!(session.advance(b"VRFY tim\r\n", at(1)).1, Step::Ask(Question::Verify));
    session.answer_with(Reply::new(ReplyCode::of(252), None, "2.5.2 Perhaps"), at(301));
    assert!(!session.expire(at(302)));
    assert!(session.expire(at(601)));
}

#[test]
fn the_disk_is_not_the_clients_time() {
    let mut session = session(|settings| settings.limits.content_piece_bytes = 1_024);
    for (input, question) in [
        (&b"MAIL FROM:<a@b.test>\r\n"[..], Question::Mail),
        (b"RCPT TO:<c@d.test>\r\n", Question::Recipient),
        (b"DATA\r\n", Question::Data),
    ] {
        assert_eq!(session.advance(input, at(0)).1, Step::Ask(question));
        if question == Question::Data {
            session.begin_content(b"", at(0))
        } else {
            session.answer(Verdict::Accept, at(0))
        }
    }
    assert_eq!(session.advance(&[b'x'; 1_024], at(1)).1, Step::Content);
    assert_eq!(session.take_content().len(), 1_024);
    // The disk took four minutes, and the driver looks at the time before it reads again.
    assert!(!session.expire(at(241)), "nobody has looked for content since second 1");
    assert!(session.expire(at(241 + 180)), "now somebody has");
}

#[test]
fn the_time_of_a_transaction_ends_with_it() {
    let mut session = session(|settings| settings.limits.command_time = at(7_200));
    assert_eq!(session.advance(b"MAIL FROM:<a@b.test>\r\n", at(0)).1, Step::Ask(Question::Mail));
    session.answer(Verdict::Accept, at(0));
    session.advance(b"RSET\r\n", at(1));
    assert!(!session.expire(at(3_601)), "no transaction is open");
    assert!(session.expire(at(7_201)));
}

//! The state that a session drops and keeps, seen by its driver: dialogs see replies alone.

use mail::{Client, Reply, ReplyCode, Submitter};
use smtp::server::{AuthOffer, Question, Session, Settings, Step, Tls, Verdict};
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

fn settings() -> Settings {
    let mut settings = Settings::new("mx.test");
    settings.starttls = true;
    settings.auth = AuthOffer { mechanisms: vec!["PLAIN".into()], without_tls: true, required: false };
    settings
}

/// A session that has said EHLO.
fn session(settings: Settings) -> Session {
    let mut session = Session::new(Arc::new(settings), Client::Network(([192, 0, 2, 1], 1_025).into()), None);
    session.greet(Verdict::Accept, NOW);
    ask(&mut session, b"EHLO a.test\r\n", Question::Helo);
    session
}

/// A command whose question is answered with yes.
fn ask(session: &mut Session, command: &[u8], question: Question) {
    assert_eq!(session.advance(command, NOW).1, Step::Ask(question), "{}", command.escape_ascii());
    session.answer(Verdict::Accept, NOW);
}

/// A session of a user.
fn known() -> Session {
    let mut session = session(settings());
    assert_eq!(session.advance(b"AUTH PLAIN AGFuYQB4\r\n", NOW).1, Step::Ask(Question::Auth));
    session.auth_succeeded("ana", NOW);
    assert_eq!(session.identity(), Some("ana"));
    session
}

// RFC 3207 §4.2 (test)
#[test]
fn tls_forgets_who_the_client_was() {
    let mut session = known();
    assert_eq!(session.advance(b"STARTTLS\r\n", NOW).1, Step::StartTls);
    let tls = Tls { version: "TLSv1.3".into(), cipher: "X".into(), bits: 256, server_name: None };
    session.tls_started(tls, NOW);
    assert_eq!((session.identity(), session.helo()), (None, None));
}

#[test]
fn a_driver_decides_on_commands_that_are_not_known() {
    let mut session = session(settings());
    assert_eq!(session.advance(b"FROB x\r\n", NOW).1, Step::Read, "it is asked only if it wishes");
    session.ask_unknown();
    let said = |session: &mut Session| {
        let said = String::from_utf8_lossy(session.output()).into_owned();
        session.sent(session.output().len());
        said
    };
    said(&mut session);
    let asked = Step::Ask(Question::Unknown);
    assert_eq!(session.advance(b"FROB  x \r\n", NOW).1, asked);
    assert_eq!(session.unknown_command(), Some(b"FROB  x".as_slice()));
    session.answer(Verdict::Accept, NOW);
    assert_eq!(said(&mut session), "500 5.5.1 Command unrecognized: \"FROB\"\r\n");
    assert_eq!(session.unknown_command(), None);
    assert_eq!(session.advance(b"FROB\r\n", NOW).1, asked);
    let refusal = Reply::new(ReplyCode::of(451), None, "4.7.1 Not now");
    session.answer(Verdict::Refuse(refusal.clone()), NOW);
    assert_eq!(said(&mut session), "451 4.7.1 Not now\r\n");
    // Commands of the protocol are none of the driver's.
    assert_eq!(session.advance(b"ETRN x\r\nLHLO x\r\n", NOW).1, Step::Read);
    // A password that a client sends behind a failed AUTH.
    assert_eq!(session.advance(b"AUTH FOO\r\nsecret\r\n", NOW).1, Step::Read);
    // Refusals count as errors, whatever their class.
    let max = session.settings().limits.errors;
    for _ in 0..max {
        match session.advance(b"RSET\r\nFROB\r\n", NOW).1 {
            Step::Ask(Question::Unknown) => session.answer(Verdict::Refuse(refusal.clone()), NOW),
            step => return assert_eq!(step, Step::Close),
        }
    }
    assert_eq!(session.advance(b"", NOW).1, Step::Close);
}

#[test]
fn xclient_forgets_who_the_front_end_was() {
    let mut session = known();
    session.trust_xclient();
    ask(&mut session, b"XCLIENT ADDR=203.0.113.9\r\n", Question::Xclient);
    assert_eq!(session.identity(), None);
    ask(&mut session, b"XCLIENT LOGIN=bob\r\n", Question::Xclient);
    assert_eq!(session.identity(), Some("bob"));
}

// RFC 4954 §5 (test)
#[test]
fn a_stranger_vouches_for_nobody() {
    let submitter = |mut session: Session| {
        ask(&mut session, b"MAIL FROM:<a@b.test> AUTH=boss@b.test\r\n", Question::Mail);
        session.transaction().and_then(|transaction| transaction.params.auth.clone())
    };
    assert_eq!(submitter(session(settings())), Some(Submitter::Unknown));
    assert!(matches!(submitter(known()), Some(known) if known != Submitter::Unknown));
}

#[test]
fn new_settings_wait_for_the_end_of_the_transaction() {
    let mut session = session(settings());
    ask(&mut session, b"MAIL FROM:<a@b.test>\r\n", Question::Mail);
    let new = Arc::new(Settings { hostname: "new.test".into(), ..settings() });
    session.replace_settings(Arc::clone(&new));
    assert_eq!(&*session.settings().hostname, "mx.test");
    session.advance(b"RSET\r\n", NOW);
    assert_eq!(&*session.settings().hostname, "new.test");
    // While the driver thinks about MAIL the transaction has as good as begun.
    assert_eq!(session.advance(b"MAIL FROM:<a@b.test>\r\n", NOW).1, Step::Ask(Question::Mail));
    session.replace_settings(Arc::new(settings()));
    assert_eq!(&*session.settings().hostname, "new.test");
    session.answer(Verdict::Refuse(Reply::new(ReplyCode::of(451), None, "4.3.0 Later")), NOW);
    assert_eq!(&*session.settings().hostname, "mx.test");
}

#[test]
fn notes_that_nobody_takes_are_bounded() {
    let mut settings = settings();
    settings.limits.errors = u32::MAX;
    let mut session = session(settings);
    session.advance(&b"FROB\r\n".repeat(500), NOW);
    assert_eq!(session.take_notes().len(), 100);
}

#[test]
fn the_end_of_the_server_ends_an_exchange() {
    let mut session = session(settings());
    assert_eq!(session.advance(b"AUTH PLAIN\r\n", NOW).1, Step::Ask(Question::Auth));
    assert!(!session.shut_down(NOW), "a question is open");
    session.auth_challenge(b"", NOW);
    assert!(session.shut_down(NOW));
    assert_eq!(session.advance(b"", NOW).1, Step::Close);
}

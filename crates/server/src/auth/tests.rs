//! Exchanges against a password file and programs, with rsasl as the client and with bytes as curl and smtplib send
//! them.

use super::*;
use proptest::prelude::*;
use rsasl::prelude::{Mechname, SASLClient, SASLConfig, State};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// "anna's", bcrypt.
pub(super) const ANNA: &str = "anna:$2b$04$abcdefghijklmnopqrstuufq.JmBA36x4afO6Vv3PkpMyV9Aiz5xu";
/// "bert's", SHA-512-crypt.
pub(super) const BERT: &str = "bert:$6$rounds=1000$abc./$8LjNRo/jYFoFnZVEDY.WHf3RLHFlCJx6DFOe4BzlmNk9cl8v5xsMPKuUvjR/\
                               hS3ai3tgpGZyLwESINo42xEco.";
/// "carl's", SCRAM-SHA-256, by Python's hashlib.
pub(super) const CARL: &str = "carl:SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$JpAUZumOjXyzPiF3apMyZ6C6HmlxiUUiv3+qbZU3UX4=:\
                               btcFExTL8Y1NRgEAxOzDJNKthvFogEoOW9nLno5kRC8=";

const TLS: ExchangeContext = ExchangeContext { is_encrypted: true, client: None };
const CLEAR: ExchangeContext = ExchangeContext { is_encrypted: false, client: None };

/// A directory that lives as long as the authenticator is used.
struct Rig {
    authenticator: Arc<Authenticator>,
    dir: tempfile::TempDir,
}

fn settings(file: Option<PathBuf>, program: &[&str]) -> config::Auth {
    config::Auth {
        mechanisms: MECHANISMS.map(str::to_owned).to_vec(),
        file,
        program: program.iter().map(|&part| part.to_owned()).collect(),
        program_time_max: Duration::from_secs(60),
        without_tls: false,
        failures_per_client: 20,
        failures_per_user: 60,
        failures_window: Duration::from_secs(3_600),
        recipients_hour_max: 0,
    }
}

fn rig_with(program: &[&str], limits: AuthLimits) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    std::fs::write(&path, format!("{ANNA}\n{BERT}\n{CARL}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let authenticator = Authenticator::open_with(&settings(Some(path), program), limits).unwrap();
    assert_eq!(authenticator.take_problems(), []);
    Rig { authenticator, dir }
}

fn rig() -> Rig {
    rig_with(&[], AuthLimits::default())
}

fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Challenge(challenge) => format!("334 {}", challenge.escape_ascii()),
        Outcome::Success { identity } => format!("235 {identity}"),
        Outcome::Failed(failure) => format!("{} {}", failure.reply().code(), failure.why),
    }
}

/// Sends the initial response and the responses; returns the answer to each.
async fn talk(rig: &Rig, mechanism: &str, initial: Option<&[u8]>, responses: &[&[u8]]) -> Vec<String> {
    let mut exchange = rig.authenticator.exchange(TLS);
    let mut answers = vec![short(&exchange.start(mechanism, initial).await)];
    for response in responses {
        answers.push(short(&exchange.respond(response).await));
    }
    answers
}

#[tokio::test]
async fn curl_sends_plain_and_smtplib_login() {
    let rig = rig();
    assert_eq!(talk(&rig, "PLAIN", Some(b"\0anna\0anna's"), &[]).await, ["235 anna"]);
    assert_eq!(talk(&rig, "PLAIN", None, &[b"\0bert\0bert's"]).await, ["334 ", "235 bert"]);
    let answers = talk(&rig, "LOGIN", Some(b"carl"), &[b"carl's"]).await;
    assert_eq!(answers, ["334 Password:", "235 carl"]);
    let answers = talk(&rig, "login", None, &[b"anna", b"anna's"]).await;
    assert_eq!(answers, ["334 Username:", "334 Password:", "235 anna"]);
}

#[tokio::test]
async fn wrong_passwords_and_unknown_users_look_the_same() {
    let rig = rig();
    for response in [&b"\0anna\0x"[..], b"\0nobody\0x", b"\0nobody\0anna's", b"\0nobody\0carl's", b"\0carl\0bert's"] {
        let answers = talk(&rig, "PLAIN", Some(response), &[]).await;
        assert_eq!(answers, ["535 wrong password or unknown user"], "{}", response.escape_ascii());
    }
    assert_eq!(rig.authenticator.take_problems(), []);
}

/// Lets rsasl talk to us: its last state, and our last outcome.
async fn rsasl(rig: &Rig, mechanism: &str, user: &str, password: &str, authorization: Option<&str>) -> (bool, Outcome) {
    let config =
        SASLConfig::with_credentials(authorization.map(str::to_owned), user.to_owned(), password.to_owned()).unwrap();
    let offered = [Mechname::parse(mechanism.as_bytes()).unwrap()];
    let mut client = SASLClient::new(config).start_suggested(&offered).unwrap();
    let mut exchange = rig.authenticator.exchange(TLS);
    let mut outcome = exchange.start(mechanism, None).await;
    let mut is_sure = false;
    while let Outcome::Challenge(challenge) = &outcome {
        let mut response = Vec::new();
        let input = (!challenge.is_empty()).then_some(&challenge[..]);
        match client.step(input, &mut response) {
            Ok(state) => is_sure = matches!(state, State::Finished(_)),
            Err(error) => panic!("rsasl does not like {}: {error}", challenge.escape_ascii()),
        }
        outcome = exchange.respond(&response).await;
    }
    (is_sure, outcome)
}

#[tokio::test]
async fn rsasl_as_client() {
    let rig = rig();
    for mechanism in MECHANISMS {
        // The client is sure of us only if our proof was right.
        let (is_sure, outcome) = rsasl(&rig, mechanism, "carl", "carl's", None).await;
        assert!(is_sure, "{mechanism}");
        assert_eq!(short(&outcome), "235 carl", "{mechanism}");
        for (user, password) in [("carl", "anna's"), ("nobody", "carl's")] {
            let (_, outcome) = rsasl(&rig, mechanism, user, password, None).await;
            assert_eq!(short(&outcome), "535 wrong password or unknown user", "{mechanism}");
        }
    }
    for (authorization, expected) in [("carl", "235"), ("anna", "50")] {
        let (_, outcome) = rsasl(&rig, "SCRAM-SHA-256", "carl", "carl's", Some(authorization)).await;
        assert!(short(&outcome).starts_with(expected), "{outcome:?}");
    }
}

#[tokio::test]
async fn mechanisms_depend_on_users_and_encryption() {
    let rig = rig();
    assert_eq!(rig.authenticator.mechanisms(true), MECHANISMS);
    assert_eq!(rig.authenticator.mechanisms(false), [""; 0]);
    let mut exchange = rig.authenticator.exchange(CLEAR);
    assert!(short(&exchange.start("PLAIN", Some(b"\0anna\0anna's")).await).starts_with("538"));
    assert!(short(&exchange.start("CRAM-MD5", None).await).starts_with("504"));

    std::fs::write(rig.dir.path().join("users"), ANNA).unwrap();
    rig.authenticator.reload();
    assert_eq!(rig.authenticator.mechanisms(true), ["PLAIN", "LOGIN"]);
    assert!(talk(&rig, "SCRAM-SHA-256", None, &[]).await[0].starts_with("504"));
    std::fs::write(rig.dir.path().join("users"), "").unwrap();
    rig.authenticator.reload();
    assert_eq!(rig.authenticator.mechanisms(true), [""; 0]);

    let mut in_clear = settings(None, &["/bin/true"]);
    in_clear.without_tls = true;
    let authenticator = Authenticator::open(&in_clear).unwrap();
    assert_eq!(authenticator.mechanisms(false), ["PLAIN", "LOGIN"]);
}

#[tokio::test]
async fn a_program_is_asked_about_users_who_are_not_in_the_file() {
    let script = r#"read -r line; case "$line" in dora*) exit 0;; erna*) exit 3;; esac; exit 1"#;
    let rig = rig_with(&["/bin/sh", "-c", script], AuthLimits::default());
    for (response, expected) in [
        (&b"\0dora\0x"[..], "235 dora"),
        (b"\0fred\0x", "535 wrong password or unknown user"),
        (b"\0anna\0anna's", "235 anna"),
        (b"\0anna\0x", "535 wrong password or unknown user"),
    ] {
        assert_eq!(talk(&rig, "PLAIN", Some(response), &[]).await, [expected]);
    }
    assert!(talk(&rig, "PLAIN", Some(b"\0erna\0x"), &[]).await[0].starts_with("454 auth.program \"/bin/sh\""));
}

#[tokio::test]
async fn a_flood_waits_its_turn_and_then_gets_454() {
    let rig = rig_with(&[], AuthLimits { checks_max: 1, wait_max: Duration::ZERO, ..AuthLimits::default() });
    let turn = rig.authenticator.checks.take(None, false).await.unwrap();
    let answers = talk(&rig, "PLAIN", Some(b"\0anna\0anna's"), &[]).await;
    assert!(answers[0].starts_with("454 auth.checks_max"), "{answers:?}");
    drop(turn);
    assert_eq!(talk(&rig, "PLAIN", Some(b"\0anna\0anna's"), &[]).await, ["235 anna"]);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_turn_behind() {
    let wait_max = Duration::from_secs(60);
    let rig = rig_with(&[], AuthLimits { checks_max: 1, wait_max, ..AuthLimits::default() });
    for _ in 0..3 {
        let mut exchange = rig.authenticator.exchange(TLS);
        let start = exchange.start("PLAIN", Some(b"\0anna\0x"));
        // Polled once, then dropped.
        tokio::select! { biased; _ = start => {} () = std::future::ready(()) => {} }
    }
    let mut cancelled = rig.authenticator.exchange(TLS);
    assert_eq!(short(&cancelled.start("LOGIN", Some(b"anna")).await), "334 Password:");
    drop(cancelled);
    assert_eq!(talk(&rig, "PLAIN", Some(b"\0anna\0anna's"), &[]).await, ["235 anna"]);
}

#[tokio::test]
async fn a_changed_file_counts_at_once() {
    let rig = rig();
    assert_eq!(talk(&rig, "PLAIN", Some(b"\0bert\0bert's"), &[]).await, ["235 bert"]);
    std::fs::write(rig.dir.path().join("users"), format!("{ANNA}\nnonsense\n")).unwrap();
    assert!(talk(&rig, "PLAIN", Some(b"\0bert\0bert's"), &[]).await[0].starts_with("535"));
    let problems = rig.authenticator.take_problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("users line 2: no colon"), "{}", problems[0]);
}

#[test]
fn failures_slow_down_and_close() {
    let rig = rig();
    let mut failures = rig.authenticator.failures();
    let wrong = AuthFailure { kind: FailureKind::Credentials, why: "x".into() };
    let busy = AuthFailure::temporary("x".to_owned());
    let mut wire = |failure| match failures.verdict(failure) {
        (Verdict::Refuse(reply), pause) => (false, reply.code().get(), pause.as_secs()),
        (Verdict::Close(reply), pause) => (true, reply.code().get(), pause.as_secs()),
        other => panic!("{other:?}"),
    };
    let verdicts = [&wrong, &busy, &wrong, &busy, &wrong].map(&mut wire);
    let expected = [(false, 535, 1), (false, 454, 0), (false, 535, 2), (false, 454, 0), (true, 421, 4)];
    assert_eq!(verdicts, expected);
}

#[test]
fn settings_that_cannot_work_are_all_named() {
    let mut wrong = settings(Some("/nonexistent/users".into()), &[]);
    wrong.mechanisms.push("CRAM-MD5".to_owned());
    let problems = Authenticator::open(&wrong).unwrap_err();
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(texts[0].starts_with("auth.mechanisms: \"CRAM-MD5\" is not known"), "{texts:?}");
    assert!(texts[1].starts_with("/nonexistent/users: cannot read the password file"), "{texts:?}");
}

#[test]
fn an_operator_tries_a_password() {
    let rig = rig();
    assert_eq!(test_password(&rig.authenticator, "anna", "anna's"), Ok(()));
    assert_eq!(test_password(&rig.authenticator, "anna", "x"), Err(None));
    assert!(test_password(&rig.authenticator, "anna", "").unwrap_err().is_some());
}

#[tokio::test]
async fn secrets_are_not_for_logs() {
    let rig = rig();
    let mut exchange = rig.authenticator.exchange(TLS);
    exchange.start("LOGIN", Some(b"anna")).await;
    let users = rig.authenticator.file.as_ref().unwrap().users();
    for text in [format!("{exchange:?}"), format!("{:?}", rig.authenticator), format!("{users:?}")] {
        for secret in ["$2b$", "$6$", "JpAUZumO", "fq.JmBA36"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let outcome = exchange.respond(b"very wrong").await;
    assert!(!format!("{outcome:?}").contains("very wrong"));
}

#[test]
fn what_went_wrong_long_ago_is_forgotten() {
    let rig = rig();
    rig.authenticator.report((0..150).map(|line| Problem::new("x", Some(line), "y")).collect());
    let problems = rig.authenticator.take_problems();
    assert_eq!((problems.len(), problems[0].line), (PROBLEMS_MAX, Some(50)));
}

proptest! {
    #[test]
    fn random_responses_never_authenticate(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz::exchange(&data);
    }

    #[test]
    fn nearly_right_responses_never_authenticate(
        seed in proptest::sample::select(vec![
            &b"\x00n,,n=user,r=rOprNGfwEbeRWgbNEkqO\xfec=biws,r=rOprNGfwEbeRWgbNEkqOnonce,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=\xfe"[..],
            b"\x00y,a=user,n=user,r=x,e=f\xfec=eSxhPXVzZXIs,r=xnonce,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            b"\x01\0user\0password",
            b"\x02user\xfepassword",
            b"\x06user\xfepassword",
        ]),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut data = seed.to_vec();
        *at.get_mut(&mut data[1..]) = byte;
        fuzz::exchange(&data);
        data.truncate(cut.index(data.len()));
        fuzz::exchange(&data);
    }
}

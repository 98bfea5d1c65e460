//! Peers that are late or never come to an end, under a clock that stands still.

use super::*;
use crate::context::Context;
use crate::resolve::named;
use mail::{MailParams, Recipient};
use smtp::client::{Answer, ClientSettings, ClientTransaction, Finished, Login, Mechanism, Security};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};

const MINUTE: Duration = Duration::from_secs(60);
const LATE: Duration = Duration::from_secs(20);

/// Lets time pass on the clock that stands still otherwise.
async fn after(time: Duration) {
    drop(tokio::time::timeout(time, pending::<()>()).await);
}

/// Makes a server that answers properly up to DATA; the test decides about the content.
async fn up_to_data(stream: DuplexStream) -> BufReader<DuplexStream> {
    let mut stream = BufReader::new(stream);
    stream.write_all(b"220 mx.test\r\n").await.unwrap();
    let mut line = String::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        let reply = if line.starts_with("DATA") { "354 go on\r\n" } else { "250 ok\r\n" };
        stream.write_all(reply.as_bytes()).await.unwrap();
        if line.starts_with("DATA") {
            return stream;
        }
    }
}

/// Sends a message of so many octets. Returns its result, the time that took, how often its answer was reported as
/// late, and how often the peer as silent.
async fn send(theirs: DuplexStream, octets: usize) -> (Finished, Duration, [usize; 2]) {
    send_to(theirs, octets, 1).await
}

async fn send_to(theirs: DuplexStream, octets: usize, recipients: usize) -> (Finished, Duration, [usize; 2]) {
    let context = Context::trial(crate::config::Config::default(), None);
    let timer = pin!(timer());
    let stopping = pin!(context.stop.begun());
    let mut wait = Wait::new(timer, &context.stop, stopping);
    let peer = named("one", ([192, 0, 2, 1], 25).into(), 0);
    let mut settings = ClientSettings::new("mx.test");
    settings.limits.hurry = LATE;
    let session = ClientSession::new(Arc::new(settings));
    let mut link = Link::new(session, Transport::Memory(theirs), peer, false, Some(LATE));
    let mut nobody = pin!(pending());
    let (mut left, mut lags, mut silences, mut has_begun) = (octets, 0, 0, false);
    loop {
        let now = link.now();
        match link.next(&mut wait, nobody.as_mut(), has_begun, None).await {
            Next::Step(ClientStep::Ready) => {
                has_begun = true;
                let recipient = Recipient::new("b@d.test".parse().unwrap());
                let transaction = ClientTransaction {
                    token: 1,
                    sender: "<a@d.test>".parse().unwrap(),
                    params: MailParams::default(),
                    recipients: vec![recipient; recipients].into(),
                    content_bytes: octets as u64,
                };
                link.session.begin(transaction, now);
            }
            Next::Step(ClientStep::Content) => {
                let piece = left.min(4_096);
                left -= piece;
                let line = b"0123456789abc.\r\n".repeat(piece / 16);
                link.session.content(line.into(), now);
            }
            Next::Step(ClientStep::Done(finished)) => {
                let is_lost = matches!(finished.outcomes[0].answer, Answer::Lost(_));
                assert_eq!(link.has_failed(0), is_lost, "{:?}", link.session.closing());
                return (finished, link.now(), [lags, silences]);
            }
            Next::Lagging => lags += 1,
            Next::Silent => silences += 1,
            Next::Stalling { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_an_octet_now_and_then_is_cut_off() {
    let (ours, theirs) = duplex(1_024);
    tokio::spawn(async move {
        let mut stream = up_to_data(ours).await;
        // Not through the buffer, which would take all there is.
        while stream.get_mut().read_u8().await.is_ok() {
            after(2 * MINUTE).await;
        }
    });
    let (finished, took, [lags, silences]) = send(theirs, 1 << 20).await;
    assert_eq!(finished.outcomes[0].answer, Answer::Lost(Loss::TooLong));
    assert_eq!(took, 30 * MINUTE);
    // For each of its octets it was late.
    assert!((10..=16).contains(&lags), "{lags}");
    // And silent, for the first.
    assert_eq!(silences, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_the_content_is_waited_for_and_told_to_be_late_once() {
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(async move {
        let mut stream = up_to_data(ours).await;
        after(9 * MINUTE).await;
        stream.write_all(b"250 taken\r\n").await.unwrap();
        pending::<()>().await;
    });
    let (finished, took, told) = send(theirs, 1 << 10).await;
    assert!(finished.outcomes[0].is_delivered(), "{finished:?}");
    assert_eq!((took, told), (9 * MINUTE, [1, 0]));
}

/// Tests that a late answer is reported before the connection ends, so that the site can get into the slow lane.
#[tokio::test(start_paused = true)]
async fn who_is_given_up_was_late() {
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(async move {
        let mut stream = BufReader::new(ours);
        stream.write_all(b"220 mx.test\r\n").await.unwrap();
        stream.read_line(&mut String::new()).await.unwrap();
        stream.write_all(b"250 ok\r\n").await.unwrap();
        pending::<()>().await;
    });
    let (finished, took, told) = send(theirs, 1 << 10).await;
    assert_eq!(finished.outcomes[0].answer, Answer::Lost(Loss::TimedOut));
    assert_eq!((took, told), (LATE, [1, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_peer_is_never_late() {
    let (ours, theirs) = duplex(1 << 20);
    tokio::spawn(async move {
        let mut stream = up_to_data(ours).await;
        after(LATE / 2).await;
        stream.write_all(b"250 taken\r\n").await.unwrap();
        pending::<()>().await;
    });
    let (finished, took, told) = send(theirs, 1 << 10).await;
    assert!(finished.outcomes[0].is_delivered(), "{finished:?}");
    assert_eq!((took, told), (LATE / 2, [0, 0]));
}

/// Each of its silences would do, and together they hold the place of a fast one for minutes.
#[tokio::test(start_paused = true)]
async fn silences_of_a_transaction_are_counted_together() {
    for (recipients, each, late) in [(20, 5, true), (7, 5, false), (200, 0, false)] {
        let (ours, theirs) = duplex(1 << 20);
        tokio::spawn(async move {
            let mut stream = BufReader::new(ours);
            stream.write_all(b"220 mx.test\r\n").await.unwrap();
            let mut line = String::new();
            loop {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
                if line.starts_with("RCPT") {
                    after(Duration::from_secs(each) + Duration::from_millis(300)).await;
                }
                let reply = if line.starts_with("DATA") { "354 go on\r\n" } else { "250 ok\r\n" };
                stream.write_all(reply.as_bytes()).await.unwrap();
                if line.starts_with("DATA") {
                    break;
                }
            }
            while line != ".\r\n" {
                line.clear();
                stream.read_line(&mut line).await.unwrap();
            }
            stream.write_all(b"250 taken\r\n").await.unwrap();
            pending::<()>().await;
        });
        let (finished, took, [lags, silences]) = send_to(theirs, 16, recipients).await;
        assert!(finished.outcomes[0].is_delivered(), "{finished:?}");
        assert!(took >= Duration::from_secs(each * recipients as u64), "{took:?}");
        assert_eq!((lags > 0, silences), (late, usize::from(each > 0)), "{recipients}: {lags}");
    }
}

#[test]
fn a_transcript_begins_neither_in_a_login_nor_in_front_of_output() {
    let mut settings = ClientSettings::new("mx.test");
    settings.login = Some(Arc::new(Login {
        user: "ann".into(),
        on_behalf_of: None,
        password: b"secret".to_vec().into_boxed_slice().into(),
        mechanisms: vec![Mechanism::Login],
        password_needs: Security::Clear,
        is_required: true,
    }));
    let mut session = ClientSession::new(Arc::new(settings));
    let mut found = vec![is_between(&session)];
    for reply in ["220 mx.test", "250-mx.test\r\n250 AUTH LOGIN", "334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6", "235 ok"] {
        session.receive(format!("{reply}\r\n").as_bytes(), Duration::ZERO);
        let mut slices = [IoSlice::new(&[]); SLICES];
        let filled = session.output_slices(&mut slices);
        let octets = slices[..filled].iter().map(|slice| slice.len()).sum();
        if octets > 0 {
            assert!(!is_between(&session), "{reply}: there is output");
        }
        session.sent(octets, Duration::ZERO);
        found.push(is_between(&session));
    }
    assert_eq!(found, [true, true, false, false, false, true]);
}

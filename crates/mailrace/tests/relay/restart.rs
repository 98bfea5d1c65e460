//! `kill -9`, SIGTERM and full disks in the middle of work, with a ledger at both ends: accepted messages arrive.

use crate::hop::{Act, At, Hop, Mail, Manners};
use crate::world::{ends_empty, killed, relay, send, send_over, stopped, wait_line};
use bench::storm::{Plan, Sizes, arrived};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use testkit::client::{Plain, greeted};
use testkit::harness::{Setup, poll};

/// A storm of which the acknowledged numbers are told.
struct Storm {
    told: Receiver<u64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Storm {
    fn begin(to: SocketAddr, run: &str) -> Self {
        let (teller, told) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let plan = Plan {
            messages: Some(200_000),
            sessions: 10,
            sizes: Sizes { from: 600, to: 3_000 },
            run: run.to_owned(),
            told: Some(teller),
            stop: Some(Arc::clone(&stop)),
            pipelining: true,
            ..Plan::new(to)
        };
        let thread = std::thread::spawn(move || drop(bench::storm::run(&plan, &mut |_| ())));
        Self { told, stop, thread }
    }

    /// Waits until so many are acknowledged.
    fn wait(&self, count: usize) -> Vec<u64> {
        self.told.iter().take(count).collect()
    }

    /// Ends it; all that were acknowledged since.
    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends");
        self.told.try_iter().collect()
    }
}

/// How often each message of a storm came.
fn came(mails: &[Arc<Mail>]) -> BTreeMap<(String, u64), usize> {
    let mut count = BTreeMap::new();
    for mail in mails {
        let of = arrived(&mail.content).unwrap_or_else(|why| panic!("{why}: {}", mail.text()));
        *count.entry((of.run, of.seq)).or_default() += 1;
    }
    count
}

fn setup(hop: &Hop) -> Setup {
    relay(&[hop]).set("spool.size_max", "\"128MiB\"").set("log.level", "7")
}

#[test]
fn kill_9_loses_nothing_and_repeats_little() {
    kill_9("durable");
}

/// A message with a 250 was stored or delivered; a message that was delivered without a 250 is sent again by its
/// sender.
#[test]
fn kill_9_loses_nothing_that_was_delivered_before_it_was_durable() {
    kill_9("race");
    kill_9("interactive");
}

fn kill_9(acknowledge: &str) {
    let hop = Hop::new(Manners::offering(&["PIPELINING", "CHUNKING", "SIZE", "8BITMIME"]));
    let mut setup = setup(&hop).listen(&format!("acknowledge = {acknowledge:?}"));
    let mut promised = BTreeSet::new();
    for run in ["one", "two", "three"] {
        let server = setup.start();
        let storm = Storm::begin(server.address(), run);
        let mut told = storm.wait(700);
        // It delivers while it accepts.
        hop.wait(1);
        setup = killed(server);
        told.extend(storm.end());
        promised.extend(told.into_iter().map(|seq| (run.to_owned(), seq)));
    }
    let server = setup.start();
    let mails = hop.wait_until("all that was promised", |mails| {
        if mails.len() < promised.len() {
            return false;
        }
        let there = came(mails);
        promised.iter().all(|one| there.contains_key(one))
    });
    ends_empty(server);
    let count = came(&mails);
    let twice = count.values().filter(|copies| **copies > 1).count();
    // A crash repeats only messages delivered within the last 50 ms and the batch before it.
    eprintln!("{acknowledge}: promised {}, came {}, more than once {twice}", promised.len(), count.len());
    assert!(count.values().all(|copies| *copies <= 4), "{count:?}");
    assert!(twice * 2 < count.len(), "{twice} of {} came more than once", count.len());
}

#[test]
fn sigterm_loses_nothing_and_repeats_nothing() {
    // Slow enough that much waits and much is on its way.
    let hop = Hop::good();
    let mut setup = setup(&hop).set("delivery.connections_per_destination", "2");
    let mut promised = BTreeSet::new();
    for run in ["one", "two"] {
        let server = setup.start();
        let storm = Storm::begin(server.address(), run);
        let mut told = storm.wait(500);
        let (ended, left) = stopped(server);
        setup = left;
        assert!(
            ended.log.last().is_some_and(|line| line.ends_with("cut_off=0, deliveries_cut_off=0")),
            "{:#?}",
            ended.log
        );
        told.extend(storm.end());
        promised.extend(told.into_iter().map(|seq| (run.to_owned(), seq)));
    }
    let server = setup.start();
    hop.wait(promised.len());
    ends_empty(server);
    let count = came(&hop.mails());
    assert_eq!(count.keys().cloned().collect::<BTreeSet<_>>(), promised);
    assert!(count.values().all(|copies| *copies == 1), "{:?}", count.iter().filter(|(_, copies)| **copies > 1));
}

/// The end comes between the final dot and its reply: the reply is waited for.
#[test]
fn sigterm_waits_for_the_answer_to_a_message() {
    let (hop, gate) = Hop::gated_at_dot();
    let mut server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["b@d.test"], b"Subject: x\r\n\r\n");
    poll("no DATA", || hop.talks().concat().contains(&"DATA".to_owned()).then_some(()));
    server.signal(rustix::process::Signal::TERM);
    server.wait_log("stopping daemon");
    gate.store(true, Ordering::Release);
    let (path, _dir) = (server.setup.path("spool"), server.setup.dir.clone());
    let ended = server.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(testkit::harness::letters(&path).len(), 0);
    assert_eq!(hop.count(), 1);
}

/// A next hop that never answers is waited for no longer than the grace, and the log says what that cost.
#[test]
fn deliveries_that_are_cut_off_are_counted() {
    let hop = Hop::new(Manners::default().script(|moment| if moment.at == At::Dot { Act::Hang } else { Act::Well }));
    let server = relay(&[&hop]).set("server.shutdown_grace", "\"0s\"").start();
    send(&server, "a@client.test", &["b@d.test"], b"Subject: x\r\n\r\n");
    poll("no DATA", || hop.talks().concat().contains(&"DATA".to_owned()).then_some(()));
    // The client's session counts until a moment after its connection is closed.
    poll("a session is open", || (server.status("/connections/open") == 0).then_some(()));
    let (path, _dir) = (server.setup.path("spool"), server.setup.dir.clone());
    let ended = server.stop();
    assert!(ended.log.last().is_some_and(|line| line.ends_with("cut_off=0, deliveries_cut_off=1")), "{:#?}", ended.log);
    assert_eq!(testkit::harness::letters(&path).len(), 1);
}

#[test]
fn what_waits_survives_and_goes_out_after_a_restart() {
    let mut hop = Hop::good();
    hop.shut();
    let mut server = relay(&[&hop]).start();
    let mut client = greeted(server.address());
    for number in 0..200 {
        let to = [format!("r{number}@d.test"), format!("s{number}@d.test")];
        send_over(&mut client, "a@client.test", &[&to[0], &to[1]], format!("Subject: {number}\r\n\r\n").as_bytes());
    }
    drop(client);
    wait_line(&mut server, &["stat=Deferred: Connection refused"]);
    let (_, setup) = stopped(killed(server).start());
    let server = setup.start();
    hop.reopen();
    let mails = hop.wait(200);
    for mail in &mails {
        let number = mail.text().split("Subject: ").nth(1).expect("a subject").trim_end().to_owned();
        assert_eq!(mail.all_to(), [format!("r{number}@d.test"), format!("s{number}@d.test")]);
    }
    ends_empty(server);
    assert_eq!(hop.count(), 200);
}

/// Sends until the server refuses, and returns the accepted messages and the last reply.
pub(crate) fn fill(client: &mut Plain, content: &[u8], from: usize) -> (BTreeSet<String>, String) {
    let mut taken = BTreeSet::new();
    for number in from..from + 1_000 {
        let to = format!("r{number}@d.test");
        let reply = client.command("MAIL FROM:<a@client.test>");
        if !reply.starts_with("250") {
            return (taken, reply);
        }
        client.expect(&format!("RCPT TO:<{to}>"), "250");
        client.expect("DATA", "354");
        client.send(content);
        client.send(b".\r\n");
        let reply = client.reply();
        if !reply.starts_with("250") {
            return (taken, reply);
        }
        taken.insert(to);
    }
    panic!("a small spool holds everything")
}

#[test]
fn a_full_spool_empties_when_the_next_hop_is_back() {
    let mut hop = Hop::good();
    hop.shut();
    let content = [b"Subject: x\r\n\r\n".as_slice(), &b"a line of thirty-two octets....\r\n".repeat(1_500)].concat();
    let setup = relay(&[&hop]).set("spool.size_max", "\"8MiB\"").set("message.size_max", "\"100KiB\"");
    let server = setup.start();
    let mut client = greeted(server.address());
    let (taken, reply) = fill(&mut client, &content, 0);
    assert_eq!(reply, "452 4.3.1 Insufficient system storage, try again later");
    assert!(taken.len() > 5, "{}", taken.len());
    hop.reopen();
    let mails = hop.wait(taken.len());
    assert!(mails.iter().all(|mail| mail.own_content() == content));
    assert_eq!(mails.iter().map(|mail| mail.to().to_owned()).collect::<BTreeSet<_>>(), taken);
    // There is room again.
    let id = poll("no room", || {
        let reply = client.command("MAIL FROM:<a@client.test>");
        reply.starts_with("250").then(|| {
            client.expect("RCPT TO:<again@d.test>", "250");
            client.data(&content)
        })
    });
    assert!(!id.is_empty());
    client.quit();
    hop.wait(taken.len() + 1);
    ends_empty(server);
    assert_eq!(hop.count(), taken.len() + 1);
}

/// Disk full in the middle of a storm with a next hop that is slow: each refused message had a reply, the rest arrives
/// once.
#[test]
fn a_storm_against_a_full_spool() {
    let mut hop = Hop::good();
    hop.shut();
    let setup = relay(&[&hop]).set("spool.size_max", "\"8MiB\"").set("message.size_max", "\"100KiB\"");
    let server = setup.set("log.level", "7").start();
    let (teller, told) = channel();
    let plan = Plan {
        messages: Some(1_200),
        sessions: 8,
        sizes: Sizes { from: 8_000, to: 30_000 },
        told: Some(teller),
        ..Plan::new(server.address())
    };
    let storm = std::thread::spawn(move || bench::storm::run(&plan, &mut |_| ()).expect("a storm"));
    // The first 20 wait; then deliveries and refusals go on side by side.
    let mut promised: BTreeSet<u64> = told.iter().take(20).collect();
    poll("no refusal", || (server.status("/messages/accepted") > 100 || storm.is_finished()).then_some(()));
    hop.reopen();
    let report = storm.join().expect("it ends");
    promised.extend(told.try_iter());
    assert_eq!(report.accepted, promised.len() as u64);
    assert_eq!((report.failed, report.unanswered), (0, 0), "{report:?}");
    assert!(report.errors.iter().all(|(text, _)| text.contains("452 4.3.1")), "{:?}", report.errors);
    hop.wait(promised.len());
    ends_empty(server);
    let count = came(&hop.mails());
    assert_eq!(count.keys().map(|(_, seq)| *seq).collect::<BTreeSet<_>>(), promised);
    assert!(count.values().all(|copies| *copies == 1));
}

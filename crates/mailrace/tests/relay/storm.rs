//! Much mail from other programs: each message arrives exactly once and as it was sent.

use crate::hop::{Act, At, Hop, Mail, Manners, Moment};
use crate::world::{ends_empty, relay, send};
use bench::storm::{Plan, Sizes, arrived};
use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::harness::{needs, poll};

/// Messages of `smtp-source`.
const MESSAGES: usize = 20_000;

const BDAT: [&str; 4] = ["PIPELINING", "CHUNKING", "SIZE", "8BITMIME"];

/// Returns the common part of two messages of `smtp-source`, which may be of two runs.
fn common(content: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(content.to_vec()).expect("ASCII");
    let lines = text.split_inclusive("\r\n");
    let own = ["Message-Id:", "To:", "Date:"];
    lines.filter(|line| !own.iter().any(|field| line.starts_with(field))).collect::<String>().into_bytes()
}

/// Runs Postfix's load generator; false if there is none.
fn smtp_source(to: std::net::SocketAddr, messages: usize) -> bool {
    let Some(program) = needs::program("smtp-source") else { return false };
    let mut command = Command::new(program);
    command.args(["-s", "20", "-l", "1000", "-N", "-f", "a@client.test", "-t", "r@d.test", "-m"]);
    command.arg(messages.to_string()).arg(format!("{to}"));
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn from_smtp_source() {
    let hop = Hop::good();
    let server = relay(&[&hop]).set("spool.size_max", "\"256MiB\"").set("log.level", "7").start();
    // A message of `smtp-source` without mailrace between.
    let direct = Hop::good();
    if !smtp_source(direct.address, 1) {
        return;
    }
    let sample = common(&direct.wait(1)[0].content);
    assert!(smtp_source(server.address(), MESSAGES));
    let mails = hop.wait(MESSAGES);
    ends_empty(server);
    assert_eq!(hop.count(), MESSAGES);
    let names: HashSet<&str> = mails.iter().map(|mail| mail.to()).collect();
    assert_eq!(names.len(), MESSAGES, "each of them once");
    for mail in &mails {
        assert!(common(mail.own_content()) == sample, "{}", mail.text());
    }
}

fn storm(manners: Manners, messages: u64, change: impl FnOnce(&mut Plan)) {
    let hop = Hop::new(manners);
    let server = relay(&[&hop]).set("spool.size_max", "\"256MiB\"").set("log.level", "7").start();
    let mut plan = Plan {
        messages: Some(messages),
        sizes: Sizes { from: 600, to: 9_000 },
        pipelining: true,
        ..Plan::new(server.address())
    };
    change(&mut plan);
    let report = bench::storm::run(&plan, &mut |_| ()).expect("a storm");
    assert_eq!((report.accepted, report.refused, report.failed, report.unanswered), (messages, 0, 0, 0), "{report:?}");
    let transactions = usize::try_from(messages).expect("few");
    let mails = hop.wait(transactions);
    ends_empty(server);
    assert_eq!(hop.count(), transactions);
    let number = |mail: &Arc<Mail>| arrived(&mail.content).unwrap_or_else(|why| panic!("{why}: {}", mail.text())).seq;
    let numbers: HashSet<u64> = mails.iter().map(number).collect();
    assert_eq!(numbers.len(), transactions);
    assert!(mails.iter().all(|mail| mail.rcpts.len() == usize::try_from(plan.recipients).expect("few")));
    for mail in &mails {
        // Nothing but our line was added.
        let own = mail.own_content();
        assert!(own.starts_with(b"From: <storm@storm.example>\r\n"), "{}", mail.text());
        assert!(arrived(own).is_ok());
    }
}

#[test]
fn from_a_storm_by_bdat() {
    storm(Manners::offering(&BDAT), 5_000, |plan| plan.chunking = true);
}

#[test]
fn from_a_storm_command_by_command() {
    storm(Manners::offering(&["SIZE"]), 1_500, |plan| plan.recipients = 3);
}

/// A host that sends us away after a few messages, at different points, but never behind the dot.
#[test]
fn into_a_host_that_hangs_up_often() {
    let run = |offers: &[&'static str]| {
        let dots = AtomicUsize::new(0);
        let manners = Manners::offering(offers).script(move |moment| match (moment.at, moment.connection % 4) {
            (At::Mail, 0) if moment.taken == 7 => Act::SayAndClose("421 4.7.0 enough"),
            (At::Mail, 1) if moment.taken == 5 => Act::Close,
            (At::Rcpt, 2) if moment.taken == 3 => Act::SayAndClose("421 4.7.0 enough"),
            (At::Dot, 3) if moment.taken == 4 => Act::WellAndClose,
            (At::Dot, _) if dots.fetch_add(1, Ordering::Relaxed).is_multiple_of(40) => Act::Say("451 4.3.0 once more"),
            _ => Act::Well,
        });
        storm(manners, 400, |_| ());
    };
    std::thread::scope(|scope| {
        for offers in [&BDAT[..], &["PIPELINING"], &[]] {
            scope.spawn(move || run(offers));
        }
    });
}

/// A transaction in progress cannot be called back: of a list that is one transaction, with many recipients or few.
fn a_single_message_waits_for_one_transaction(recipients: usize) {
    let (dots, gate) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let is_open = Arc::clone(&gate);
    // The third waits for its answer until the single message is in line.
    let script = move |moment: &Moment<'_>| {
        if moment.at == At::Dot && dots.fetch_add(1, Ordering::Relaxed) == 2 {
            poll("the gate", || is_open.load(Ordering::Acquire).then_some(()));
        }
        Act::Well
    };
    let hop = Hop::new(Manners::offering(&["PIPELINING", "CHUNKING"]).script(script));
    let setup = relay(&[&hop]).set("delivery.connections_per_destination", "1");
    let server = setup.set("delivery.recipients_per_transaction", recipients.to_string()).start();
    let list: Vec<String> = (0..12 * recipients).map(|number| format!("r{number}@d.test")).collect();
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    send(&server, "a@client.test", &list, b"Subject: list\r\n\r\nhello\r\n");
    hop.wait(2);
    send(&server, "a@client.test", &["single@d.test"], b"Subject: single\r\n\r\nhello\r\n");
    let before = hop.count();
    gate.store(true, Ordering::Release);
    let mails = hop.wait_until("the single message", |mails| mails.iter().any(|mail| mail.to_is("single@d.test")));
    let at = mails.iter().position(|mail| mail.to_is("single@d.test")).expect("it is there");
    // The one that was on its way.
    assert!(before == 2 && at <= before + 1, "{at} came before it, {before} of them when it was accepted");
    drop(ends_empty(server));
    assert_eq!(hop.count(), 13);
}

#[test]
fn a_single_message_waits_for_one_large_transaction_of_a_list() {
    a_single_message_waits_for_one_transaction(50);
}

#[test]
fn a_single_message_waits_for_one_small_transaction_of_a_list() {
    a_single_message_waits_for_one_transaction(5);
}

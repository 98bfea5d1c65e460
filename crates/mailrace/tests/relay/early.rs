//! `listen.acknowledge`: the time of the reply, and the records written, where delivery comes before the disk.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{ends_empty, relay, send, send_over, waiting};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{Setup, poll};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

fn early(how: &str, hops: &[&Hop]) -> Setup {
    // Longer than a delivery takes, on a busy machine too.
    let setup = relay(hops).set("delivery.interactive_time", "\"1m\"");
    setup.listen(&format!("acknowledge = {how:?}"))
}

fn at_the_dot(act: impl Fn() -> Act + Send + Sync + 'static) -> Manners {
    Manners::default().script(move |moment| if moment.at == At::Dot { act() } else { Act::Well })
}

/// Messages that were written, by the counters of the server.
fn written(server: &testkit::harness::Server) -> u64 {
    server.status("/spool/commits")
}

#[test]
fn interactive_delivers_before_it_answers_and_writes_nothing() {
    let hop = Hop::good();
    let server = early("interactive", &[&hop]).start();
    let mut client = greeted(server.address());
    for number in 1..=20 {
        send_over(&mut client, "a@client.test", &["b@d.test", "c@e.test"], CONTENT);
        assert_eq!(hop.count(), number, "it is there when the client hears of it");
    }
    assert_eq!(written(&server), 0);
    let ended = ends_empty(server);
    let of = |part: &str| ended.log.iter().filter(|line| line.contains(part)).count();
    assert_eq!((of("stat=Sent"), of("from=<a@client.test>")), (20, 20));
}

#[test]
fn interactive_stores_what_a_next_hop_puts_off() {
    for act in [Act::Say("451 4.3.0 later"), Act::Close] {
        let is_first = AtomicBool::new(true);
        let hop =
            Hop::new(at_the_dot(move || if is_first.swap(false, Ordering::AcqRel) { act.clone() } else { Act::Well }));
        let server = early("interactive", &[&hop]).start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        assert_eq!(written(&server), 1, "it is promised, so it is stored");
        hop.wait(1);
        ends_empty(server);
        assert_eq!(hop.count(), 1);
    }
}

#[test]
fn interactive_waits_no_longer_than_it_may() {
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let hop = Hop::new(at_the_dot(move || {
        poll("the gate", || is_open.load(Ordering::Acquire).then_some(()));
        Act::Well
    }));
    let server = early("interactive", &[&hop]).set("delivery.interactive_time", "\"1s\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    assert_eq!((hop.count(), written(&server), waiting(&server)), (0, 1, 1));
    gate.store(true, Ordering::Release);
    ends_empty(server);
    assert_eq!(hop.count(), 1, "the delivery that was under way is the only one");
}

#[test]
fn a_rule_says_it_for_its_recipients_and_the_safest_holds_for_all() {
    let hop = Hop::good();
    let rules = "[{ recipient = [\"@soon.test\"], acknowledge = \"interactive\" }, \
                  { recipient = [\"@safe.test\"], acknowledge = \"durable\" }]";
    for (listener, to, stored) in [
        ("durable", &["a@soon.test", "b@soon.test"][..], 0),
        ("durable", &["a@soon.test", "b@d.test"], 1),
        ("interactive", &["a@soon.test", "b@d.test"], 0),
        ("interactive", &["a@soon.test", "b@safe.test"], 1),
        ("durable", &["a@d.test"], 1),
    ] {
        let server = early(listener, &[&hop]).set("route.rule", rules).start();
        send(&server, "a@client.test", to, CONTENT);
        assert_eq!(written(&server), stored, "{listener} {to:?}");
        ends_empty(server);
    }
    assert_eq!(hop.count(), 5);
}

#[test]
fn a_dead_next_hop_costs_no_wait() {
    for how in ["race", "interactive"] {
        let mut hop = Hop::good();
        hop.shut();
        let server = early(how, &[&hop]).set("delivery.interactive_time", "\"600s\"").start();
        for _ in 0..3 {
            send(&server, "a@client.test", &["b@d.test"], CONTENT);
        }
        assert_eq!(waiting(&server), 3, "{how}");
        hop.reopen();
        ends_empty(server);
        assert_eq!(hop.count(), 3, "{how}");
    }
}

#[test]
fn a_refusal_comes_back_as_a_report() {
    for how in ["race", "interactive"] {
        let hop = Hop::new(Manners::default().script(|moment| match moment.at {
            At::Rcpt if moment.line.contains("<b@d.test>") => Act::Say("550 5.1.1 unknown"),
            _ => Act::Well,
        }));
        let server = early(how, &[&hop]).start();
        send(&server, "a@client.test", &["b@d.test", "c@d.test"], CONTENT);
        let mails = hop.wait(2);
        ends_empty(server);
        let of = |to: &str| mails.iter().filter(|mail| mail.to_is(to)).count();
        assert_eq!((hop.count(), of("c@d.test"), of("a@client.test")), (2, 1, 1), "{how}");
    }
}

#[test]
fn race_delivers_once() {
    let hop = Hop::new(at_the_dot(|| Act::Late(Duration::from_millis(2))));
    let server = early("race", &[&hop]).start();
    let mut client = greeted(server.address());
    for _ in 0..200 {
        send_over(&mut client, "a@client.test", &["b@d.test"], CONTENT);
    }
    ends_empty(server);
    assert_eq!(hop.count(), 200);
}

#[test]
fn who_asks_for_a_receipt_or_sends_much_is_durable_first() {
    let hop = Hop::good();
    let server = early("interactive", &[&hop]).start();
    send(&server, "<a@client.test>", &["<b@d.test> NOTIFY=SUCCESS"], CONTENT);
    let large = format!("Subject: x\r\n\r\n{}", "0123456789abcdef\r\n".repeat(8_000));
    send(&server, "a@client.test", &["b@d.test"], large.as_bytes());
    // The two, and the receipt.
    hop.wait(3);
    assert_eq!(written(&server), 3);
    ends_empty(server);
}

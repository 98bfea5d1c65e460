//! A message whose end a host never answers, and a recipient at which it hangs up: the other mail goes its way.

use crate::hop::{Act, At, Hop, Manners, Moment};
use crate::world::{relay, send, send_over, waiting};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use testkit::client::greeted;
use testkit::harness::poll;

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// A host that never answers the end of a message for `hang@`; how often it did not.
fn hanging(offers: &[&'static str]) -> (Hop, Arc<AtomicUsize>) {
    let (hangs, hung) = (Mutex::new(BTreeSet::new()), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&hung);
    let manners = Manners::offering(offers).script(move |moment: &Moment<'_>| {
        let mut hangs = hangs.lock().expect("nobody panicked");
        match moment.at {
            At::Mail => hangs.remove(&moment.connection),
            At::Rcpt if moment.line.contains("hang@") => hangs.insert(moment.connection),
            At::Dot if hangs.contains(&moment.connection) => {
                count.fetch_add(1, Ordering::SeqCst);
                return Act::Hang;
            }
            _ => false,
        };
        Act::Well
    });
    (Hop::new(manners), hung)
}

#[test]
fn nothing_waits_behind_a_message_whose_end_is_not_answered() {
    for offers in [&["PIPELINING"][..], &[][..]] {
        let (hop, hung) = hanging(offers);
        let server = relay(&[&hop]).start();
        send(&server, "a@client.test", &["hang@d.test"], CONTENT);
        poll("it is sent", || (hung.load(Ordering::SeqCst) == 1).then_some(()));
        let mut client = greeted(server.address());
        for _ in 0..5 {
            send_over(&mut client, "a@client.test", &["b@d.test"], CONTENT);
        }
        client.quit();
        hop.wait(5);
        // Ten minutes before its time is over.
        poll("it alone waits", || (waiting(&server) == 1).then_some(()));
        assert_eq!(hung.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_message_that_hangs_does_not_keep_the_only_connection() {
    let (hop, hung) = hanging(&["PIPELINING", "CHUNKING"]);
    let server = relay(&[&hop])
        .set("delivery.connections_per_destination", "1")
        .set("delivery.messages_per_connection", "1")
        .set("delivery.end_time", "\"1s\"")
        .start();
    let mut client = greeted(server.address());
    for to in ["hang@d.test", "b@d.test", "c@d.test", "d@d.test"] {
        send_over(&mut client, "a@client.test", &[to], CONTENT);
    }
    client.quit();
    hop.wait(3);
    poll("it is tried again", || (hung.load(Ordering::SeqCst) > 1).then_some(()));
    send(&server, "a@client.test", &["e@d.test"], CONTENT);
    hop.wait(4);
    poll("one is left", || (waiting(&server) == 1).then_some(()));
}

#[test]
fn a_recipient_at_whom_the_host_hangs_up_waits_alone() {
    let closes = |moment: &Moment<'_>| {
        if moment.at == At::Rcpt && moment.line.contains("drop@") { Act::Close } else { Act::Well }
    };
    let hop = Hop::new(Manners::offering(&["PIPELINING"]).script(closes));
    let server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["b@d.test", "drop@d.test", "c@d.test"], CONTENT);
    hop.wait_until("both neighbours have it", |mails| {
        let all: BTreeSet<&str> = mails.iter().flat_map(|mail| mail.all_to()).collect();
        all.len() == 2
    });
    poll("one is left", || (waiting(&server) == 1).then_some(()));
    send(&server, "a@client.test", &["e@d.test"], CONTENT);
    hop.wait_until("it is not kept", |mails| mails.iter().any(|mail| mail.to_is("e@d.test")));
}

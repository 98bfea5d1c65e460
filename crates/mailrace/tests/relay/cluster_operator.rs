//! Commands of operators on mail in a cluster with real engines: what they change is seen by the node that adopts the
//! mail, and they end no mail that another node may have adopted.

use crate::cluster::{came, deferring, holders_have_all, three};
use crate::hop::{Hop, Manners};
use crate::world::{send, waiting};
use serde_json::Value;
use std::process::Output;
use std::time::Duration;
use testkit::harness::{Server, pause, poll, text};

fn queue(server: &Server, words: &[&str]) -> Output {
    server.control(&[&["queue"], words].concat(), b"")
}

#[track_caller]
fn done(server: &Server, words: &[&str]) {
    let output = queue(server, words);
    assert!(output.status.success(), "{words:?}: {}", text(&output));
}

/// The same for an order that leaves messages alone which are under an attempt: said until none is.
#[track_caller]
fn done_with_all(server: &Server, words: &[&str]) {
    poll("a message is always under an attempt", || {
        let output = queue(server, words);
        assert!(output.status.success(), "{words:?}: {}", text(&output));
        (!text(&output).contains("left alone")).then_some(())
    });
}

/// Sends messages with the subjects m0, m1 and so on, which cannot be delivered yet.
fn send_some(server: &Server, messages: usize) -> Vec<String> {
    let send_one = |number| {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        send(server, "a@client.test", &["later@x.test"], content.as_bytes())
    };
    (0..messages).map(send_one).collect()
}

#[test]
fn a_reroute_and_a_release_after_the_250_are_known_to_the_node_that_adopts_the_mail() {
    let (hop, other) = (Hop::new(deferring()), Hop::new(deferring()));
    let Some((mut engines, mut servers)) = three(&hop) else { return };
    let ids = send_some(&servers[0], 4);
    poll("three are not held", || {
        done(&servers[0], &["hold", &ids[1], &ids[2], &ids[3]]);
        // The outcome of an attempt that is recorded just then replaces the hold.
        servers[0].rests();
        (servers[0].status("/queue/held") == 3).then_some(())
    });
    // The copies are written again within moments, and those of released mail after ten seconds.
    pause(Duration::from_secs(2));
    done(&servers[0], &["release", &ids[1]]);
    pause(Duration::from_secs(11));
    let via = format!("smtp:{}", other.name());
    done_with_all(&servers[0], &["reroute", "--via", &via, &ids[0], &ids[2]]);
    pause(Duration::from_secs(2));
    holders_have_all(&servers[0]);
    servers[0].kill();
    engines[0].kill();
    hop.behave(Manners::default());
    other.behave(Manners::default());
    poll("the rerouted and the released message", || {
        (came(&other).contains_key("m0") && came(&hop).contains_key("m1")).then_some(())
    });
    let held = |server: &Server| server.status("/queue/held");
    poll("the two that are held", || (servers.iter().skip(1).map(held).sum::<u64>() == 2).then_some(()));
    for server in servers.iter().skip(1) {
        done(server, &["release", "--all"]);
    }
    poll("the held messages", || (came(&other).contains_key("m2") && came(&hop).contains_key("m3")).then_some(()));
    let names = |hop: &Hop| came(hop).into_keys().filter(|name| name.starts_with('m')).collect::<Vec<_>>();
    assert_eq!((names(&hop), names(&other)), (vec!["m1".into(), "m3".into()], vec!["m0".into(), "m2".to_owned()]));
}

#[test]
fn mail_whose_holder_is_away_is_neither_deleted_nor_bounced_until_it_is_back() {
    let hop = Hop::new(deferring());
    let Some((mut engines, servers)) = three(&hop) else { return };
    let server = &servers[0];
    let ids = send_some(server, 4);
    // The owner ends its mail.
    done(server, &["delete", &ids[0]]);
    done_with_all(server, &["bounce", &ids[1]]);
    poll("the report", || (waiting(server) == 2).then_some(()));
    let reports = |hop: &Hop| hop.mails().iter().filter(|mail| mail.text().contains("Given up by")).count();
    poll("the report is sent", || (reports(&hop) == 1).then_some(()));

    let status = server.whole_status();
    let streams = status["cluster"]["streams"].as_array().cloned().unwrap_or_default();
    let has_mail = |stream: &&Value| stream["messages"].as_u64() > Some(0);
    let holder = |stream: &Value| stream["holder"].as_u64().and_then(|holder| usize::try_from(holder).ok());
    let holders: Vec<usize> = streams.iter().filter(has_mail).filter_map(holder).collect();
    assert!(!holders.is_empty(), "{status}");
    holders.iter().for_each(|holder| engines[holder - 1].kill());
    pause(Duration::from_secs(14));
    for words in [["delete", &ids[2]], ["bounce", &ids[3]], ["expire", &ids[3]]] {
        // A message under an attempt is left alone anyway.
        let said = poll("a refusal", || {
            let output = queue(server, &words);
            (output.status.code() == Some(75)).then(|| text(&output))
        });
        for part in
            [words[1], "left as it is: node ", "has stored nothing of this node for so long", "next: wait until"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert_eq!((waiting(server), reports(&hop)), (2, 1), "nothing is ended, and the sender is told nothing");
    holders.iter().for_each(|holder| engines[holder - 1].restart());
    poll("the node owns its mail again", || {
        queue(server, &["delete", &ids[2]]);
        queue(server, &["bounce", &ids[3]]);
        (waiting(server) == 0).then_some(())
    });
    poll("the second report", || (reports(&hop) == 2).then_some(()));
}

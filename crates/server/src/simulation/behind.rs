//! Single messages to a host that is busy with much other mail: tests how much mail goes before them that was not
//! sent yet when they came.

use super::book::{Answer, Sent, Taken};
use super::run;
use super::scene::Scene;
use crate::sabotage::Sabotage;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// How long the host takes for an answer.
const FLIGHT: Duration = Duration::from_millis(200);
/// Single messages, and how long after each other: far more than one needs, so that none waits for another.
const SINGLES: u32 = 8;
const EACH: Duration = Duration::from_millis(2_070);

/// Load of the host.
#[derive(Clone, Copy)]
enum Load {
    /// A list that goes in small transactions.
    List,
    /// Messages each with as many recipients as one may have and still go before lists.
    Messages,
}

/// Returns the most transactions of the load that were answered between the `250` for a single message and the host's
/// for it, and when the load was over.
fn before(load: Load, sabotage: Option<Sabotage>) -> (usize, Duration) {
    let plan = || {
        let mut scene = Scene::new(2, FLIGHT);
        (scene.hosts[0].manners.pipelining, scene.hosts[0].manners.chunking) = (true, true);
        scene.config.delivery.connections_per_destination = 1;
        scene.postmaster_at(1);
        let (messages, recipients, each) = match load {
            Load::List => (1, 600, 5),
            Load::Messages => (150, 20, 20),
        };
        scene.config.delivery.recipients_per_transaction = each;
        for number in 0..messages {
            let all = (0..recipients).map(|nth| scene.at(&format!("r{number}.{nth}"), 0)).collect();
            scene.send(scene.at("s0", 1), all, SECOND);
        }
        for number in messages..messages + SINGLES as usize {
            let nth = u32::try_from(number - messages).unwrap();
            scene.send(scene.at("s0", 1), vec![scene.at(&format!("r{number}.0"), 0)], 2 * SECOND + EACH * nth);
            // It goes before mail that is not urgent.
            scene.book.facts().sent[number].priority = Some(4);
        }
        scene.plan(5 * MINUTE, 120 * MINUTE)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let facts = book.facts();
    let is_load = |taken: &Taken| taken.recipients.len() > 1;
    let singles = facts.sent.iter().filter(|sent| sent.recipients.len() == 1);
    let others = |single: &Sent| {
        let Answer::Accepted(accepted) = single.answer else { panic!("{single:?}") };
        let is_it = |taken: &&Taken| taken.recipients.iter().any(|(name, _)| *name == single.recipients[0].0);
        let at = facts.taken.iter().find(is_it).unwrap().acked;
        facts.taken.iter().filter(|taken| is_load(taken) && taken.acked > Some(accepted) && taken.acked < at).count()
    };
    let most = singles.map(others).max().unwrap();
    (most, facts.taken.iter().filter(|taken| is_load(taken)).filter_map(|taken| taken.acked).max().unwrap())
}

#[test]
fn a_message_waits_for_one_transaction_of_a_list_however_small_these_are() {
    let (most, time) = before(Load::List, None);
    let (most_ahead, time_ahead) = before(Load::List, Some(Sabotage::ListsAhead));
    println!("{most} before it and {time:?} in all, or {most_ahead} and {time_ahead:?}");
    assert!(most <= 1, "{most} transactions of a list before a single message");
    assert!(time > 2 * SECOND + EACH * SINGLES, "the list was over before them: {time:?}");
    assert!(most_ahead > 1, "not noticed");
}

#[test]
fn a_message_waits_for_one_transaction_with_many_recipients() {
    let (most, time) = before(Load::Messages, None);
    assert!(time > 2 * SECOND + EACH * SINGLES, "the messages were over before them: {time:?}");
    assert!(most <= 1, "{most} messages before an urgent one");
    assert!(before(Load::Messages, Some(Sabotage::SendAhead)).0 > 1, "not noticed");
}

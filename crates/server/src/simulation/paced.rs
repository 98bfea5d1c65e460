//! A host that takes one message in so long and says 421 to others: it gets as many as it accepts, one after the
//! other.

use super::run;
use super::scene::Scene;
use crate::sabotage::Sabotage;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Messages that come at once.
const COUNT: usize = 150;
/// The host takes one in a second, and would have them all in half of this.
const SPAN: Duration = Duration::from_secs(300);

/// Returns how many the host had by then: those that it refused at first are tried again later.
fn had(sabotage: Option<Sabotage>) -> usize {
    let plan = || {
        let mut scene = Scene::new(2, SECOND / 50);
        scene.hosts[0].manners.interval = Some(SECOND);
        scene.postmaster_at(1);
        for number in 0..COUNT {
            scene.send(scene.at("s0", 1), vec![scene.at(&format!("r{number}.0"), 0)], SECOND);
        }
        scene.plan(MINUTE, 10 * 60 * MINUTE)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let facts = book.facts();
    facts.taken.iter().filter(|taken| taken.host == 0 && taken.at <= SPAN).count()
}

#[test]
fn a_host_that_takes_one_message_in_a_second_is_given_about_as_many() {
    let (paced, unpaced) = (had(None), had(Some(Sabotage::NoPace)));
    println!("{paced}, and {unpaced} where nothing is learned");
    assert!(paced >= COUNT * 3 / 5, "{paced} of {COUNT}");
    assert!(unpaced < COUNT * 3 / 5, "not noticed: {unpaced}");
}

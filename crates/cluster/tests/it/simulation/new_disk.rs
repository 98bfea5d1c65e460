//! Adopters that die within a part and come back with a new disk, while other nodes have copies of what they took.

use super::by_hand::number;
use super::faults::{Fault, FaultKind, fault};
use super::world::{Plan, SECOND, World};
use super::{calm, campaign, dying_adopters};
use crate::chance::Chance;
use cluster::{Sabotage, StreamId, holders_of};

/// A cluster in which the first node is gone, and the holder that adopts its mail dies within its first part when some
/// of the part has copies elsewhere. The holder is back with a new disk after so many seconds.
///
/// `None` if there is no such moment.
fn returned_adopter(seed: u64, wait_s: u64, sabotage: Sabotage) -> Option<World> {
    let holders = holders_of(number(0), (0..5).map(number));
    let holder = usize::from(holders[0].0) - 1;
    let stream = StreamId { owner: number(0), holder: holders[0], generation: 0 };
    let mut plan = Plan { sabotage, ..calm() };
    plan.faults = vec![fault(45, 230, 0, FaultKind::Crash), fault(55, 60, holder, FaultKind::SlowEngine)];
    let mut world = World::new(seed, plan);
    for at in (56 * SECOND..115 * SECOND).step_by(50_000) {
        world.play_until_us(at).unwrap();
        let status = world.status(holder).unwrap();
        let is_taking = status.adoptions.iter().any(|one| one.stream == stream && (one.step, one.taken) == ("take", 0));
        let machine = &world.machines[holder];
        let copies = |id| machine.node.as_ref().unwrap().copies(id);
        let is_copied = machine.log.entries.iter().any(|(id, entry)| entry.hops > 0 && copies(*id) > 0);
        if is_taking && is_copied {
            world.crash(holder);
            world.replace_disk(holder);
            world.engines[holder].is_slow = false;
            world.play_until_us(at + wait_s * SECOND).unwrap();
            world.start(holder);
            return Some(world);
        }
    }
    None
}

/// The runs that end, and those that fail with the reasons.
fn returned_adopters(sabotage: Sabotage) -> (usize, Vec<String>) {
    let (mut runs, mut failed) = (0, Vec::new());
    for (seed, wait_s) in [4, 7, 11, 12].into_iter().flat_map(|seed| [0, 3, 8, 20].map(|wait_s| (seed, wait_s))) {
        let Some(mut world) = returned_adopter(seed, wait_s, sabotage) else { continue };
        runs += 1;
        if let Err(error) = world.run() {
            failed.push(format!("seed {seed}, back after {wait_s} s: {error}"));
        }
    }
    (runs, failed)
}

/// The adopter is back at once, or while its earlier copies are adopted, or behind that.
#[test]
fn an_adopter_with_a_new_disk_leaves_the_mail_that_others_took_from_its_copies() {
    let (runs, failed) = returned_adopters(Sabotage::default());
    assert!(runs >= 8 && failed.is_empty(), "{} of {runs} runs failed: {failed:#?}", failed.len());
}

#[test]
fn an_adopter_with_a_new_disk_that_goes_on_at_once_is_noticed() {
    let (runs, failed) = returned_adopters(Sabotage { no_former_copies: true, ..Sabotage::default() });
    assert!(!failed.is_empty(), "none of {runs} runs notices it");
    println!("{} of {runs} runs: {failed:#?}", failed.len());
}

/// Adopters die within their parts, and one of them comes back with a new disk.
pub(super) fn adopters_with_new_disks(seed: u64) -> Plan {
    let mut plan = dying_adopters(seed);
    let mut chance = Chance::new(seed ^ 0x2e3d);
    let crashes: Vec<usize> = (1..plan.faults.len()).filter(|at| plan.faults[*at].kind == FaultKind::Crash).collect();
    let Fault { begin_s, node, .. } = plan.faults[chance.pick(&crashes)];
    plan.faults.retain(|fault| fault.node != node || fault.kind != FaultKind::Crash);
    let kind = FaultKind::ReplaceDisk { with_engine: false };
    plan.faults.push(Fault { begin_s, seconds: chance.between(1, 12), node, kind });
    plan
}

#[test]
fn adopters_that_lose_their_disks_within_parts_lose_nothing() {
    campaign(&[318, 2052], 60, adopters_with_new_disks);
}

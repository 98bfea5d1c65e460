//! Reasons to refuse a node, and their texts.

use super::*;

fn entry(node: u16, name: &str) -> NodeEntry {
    NodeEntry {
        cluster: ClusterId([7; 16]),
        node: NodeId(node),
        name: name.to_owned(),
        incarnation: Incarnation(0xabc),
        start: 4,
        reads: BlockVersions { oldest: 1, newest: 2 },
        writes: 1,
        is_draining: false,
        is_departing: false,
        clock_us: 1_000_000_000,
    }
}

/// The text names the object, both values and the next step.
#[track_caller]
fn says(error: &MembershipError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "\"{part}\" is not in: {text}");
    }
    assert!(!text.ends_with('.') && text.contains(';'), "{text}");
}

#[test]
fn versions_that_do_not_meet_are_named() {
    let ours = entry(1, "mx1");
    let newer = NodeEntry { reads: BlockVersions { oldest: 3, newest: 4 }, writes: 3, ..entry(2, "mx2") };
    let error = judge_node(&ours, &[newer]).unwrap_err();
    says(&error, &["node \"mx2\"", "version 3 and reads 3 to 4", "reads 1 to 2", "; upgrade this node"]);
    let older = NodeEntry { reads: BlockVersions { oldest: 1, newest: 1 }, ..entry(2, "mx2") };
    assert_eq!(judge_node(&ours, std::slice::from_ref(&older)), Ok(()), "version 1 is written while it is there");
    let ours = NodeEntry { reads: BlockVersions { oldest: 2, newest: 3 }, ..ours };
    let error = judge_node(&ours, &[older]).unwrap_err();
    says(&error, &["node \"mx2\"", "version 1 and reads 1", "reads 2 to 3", "; upgrade that node first"]);
}

#[test]
fn an_entry_reads_back_and_may_lack_later_fields() {
    let entry = entry(1, "mx1");
    let text = entry.to_string();
    assert_eq!(NodeEntry::parse(text.as_bytes()), Some(entry.clone()));
    let early = text.replace(" oldest=1 writes=1", "").replace("blocks=2", "blocks=1");
    let reads = BlockVersions { oldest: 1, newest: 1 };
    assert_eq!(NodeEntry::parse(early.as_bytes()), Some(NodeEntry { reads, ..entry.clone() }));
    let departing = NodeEntry { is_departing: true, ..entry };
    assert_eq!(NodeEntry::parse(departing.to_string().as_bytes()), Some(departing));
}

#[test]
fn another_cluster_is_named() {
    let found = NodeEntry { cluster: ClusterId([9; 16]), ..entry(2, "mx2") };
    let error = judge_node(&entry(1, "mx1"), &[found]).unwrap_err();
    let (ours, other) = ("07".repeat(16), "09".repeat(16));
    says(&error, &[&ours, &other, "; point the node to its own engine", "join the other cluster"]);
}

#[test]
fn two_nodes_of_one_name_are_named() {
    let found = NodeEntry { start: 9, ..entry(1, "mx1") };
    let OwnEntryDecision::Refuse(error) = judge_own_entry(&entry(1, "mx1"), &found, true) else {
        panic!("a node that lives is no earlier start")
    };
    says(&error, &["node \"mx1\" with number 1", "start 9", "; stop it, or give this node a name"]);
}

#[test]
fn a_number_of_another_name_is_named() {
    let OwnEntryDecision::Refuse(error) = judge_own_entry(&entry(1, "mx1"), &entry(1, "old"), false) else {
        panic!("the number is taken")
    };
    says(&error, &["number 1", "node \"old\"", "this node is \"mx1\"", "; join the cluster again"]);
}

#[test]
fn a_wrong_clock_is_named_with_its_direction() {
    let ours = entry(1, "mx1");
    let with = |seconds: u64| NodeEntry { clock_us: seconds * 1_000_000, ..entry(2, "mx2") };
    let error = judge_node(&ours, &[with(1_061)]).unwrap_err();
    says(&error, &["61 s behind", "node \"mx2\"", "60 s are allowed", "; set the clock (chronyc makestep)"]);
    let error = judge_node(&ours, &[with(900)]).unwrap_err();
    says(&error, &["100 s ahead of", "node \"mx2\""]);
    assert_eq!(judge_node(&ours, &[with(930)]), Ok(()), "an entry may be some seconds old");
    let others = [with(1_061), NodeEntry { node: NodeId(3), ..ours.clone() }];
    assert_eq!(judge_node(&ours, &others), Ok(()), "one of two others is no majority");
}

/// The answer to the next request of this kind.
#[track_caller]
fn next(
    member: &mut Membership,
    now: Duration,
    is_meant: impl Fn(&CoordinationRequest) -> bool,
) -> (Token, CoordinationRequest) {
    for _ in 0..4 {
        let Some(Action::Coordinate { token, request }) = member.poll(now, 1_000_000_000) else { panic!("no request") };
        if is_meant(&request) {
            return (token, request);
        }
    }
    panic!("no such request")
}

/// A list that was read before the entry was removed shows it once more.
#[test]
fn a_node_leaves_although_a_late_list_has_its_entry() {
    let settings = Settings::new(ClusterId([7; 16]), NodeId(1), Incarnation(0xabc), 4);
    let mut member = Membership::new(Duration::ZERO, settings, "mx1".to_owned());
    let (is_list, is_put) = (
        |request: &CoordinationRequest| matches!(request, CoordinationRequest::List { .. }),
        |request: &CoordinationRequest| matches!(request, CoordinationRequest::Put { .. }),
    );
    let is_delete = |request: &CoordinationRequest| matches!(request, CoordinationRequest::Delete { .. });
    let mut now = Duration::ZERO;
    let (token, _) = next(&mut member, now, is_list);
    member.answered(now, 1_000_000_000, token, CoordinationReply::Listed(Vec::new()));
    let (token, request) = next(&mut member, now, is_put);
    let CoordinationRequest::Put { key, value, .. } = request else { panic!("a put") };
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 11 });
    assert!(member.is_member());

    now += Duration::from_secs(2);
    let (late_list, _) = next(&mut member, now, is_list);
    member.leave(now);
    let (token, _) = next(&mut member, now, is_delete);
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 12 });
    let entry = KeyValue { key, value, revision: 11 };
    member.answered(now, 1_000_000_000, late_list, CoordinationReply::Listed(vec![entry]));

    now += Duration::from_secs(2);
    let (token, _) = next(&mut member, now, is_delete);
    member.answered(now, 1_000_000_000, token, CoordinationReply::Conflict);
    let (token, _) = next(&mut member, now, is_list);
    member.answered(now, 1_000_000_000, token, CoordinationReply::Listed(Vec::new()));
    assert!(!member.is_member());
    assert_eq!(member.poll(now + Duration::from_millis(1), 1_000_000_000), None, "nothing is left to do");
}

/// An entry as a list has it.
fn listed(entry: &NodeEntry) -> KeyValue {
    KeyValue { key: NodeEntry::key(entry.node), value: Bytes::from(entry.to_string()), revision: 50 }
}

/// Without a majority all entries expire, so a list behind it may lack nodes that live.
#[test]
fn a_later_version_waits_for_nodes_that_an_empty_list_lacks() {
    let mut settings = Settings::new(ClusterId([7; 16]), NodeId(1), Incarnation(0xabc), 4);
    settings.block_versions.newest = 2;
    let mut member = Membership::new(Duration::ZERO, settings, "mx1".to_owned());
    let mut now = Duration::ZERO;
    let mut look = |seconds: u64, entries: &[NodeEntry]| {
        now += Duration::from_secs(seconds);
        let is_list = |request: &CoordinationRequest| matches!(request, CoordinationRequest::List { .. });
        let (token, _) = next(&mut member, now, is_list);
        let reply = CoordinationReply::Listed(entries.iter().map(listed).collect());
        member.answered(now, 1_000_000_000, token, reply);
        member.version()
    };
    assert_eq!(look(0, &[]), 1, "a start has not seen the others yet");
    let old = NodeEntry { reads: BlockVersions { oldest: 1, newest: 1 }, ..entry(2, "mx2") };
    for _ in 0..30 {
        assert_eq!(look(2, std::slice::from_ref(&old)), 1);
    }
    for _ in 0..30 {
        assert_eq!(look(2, &[]), 1, "it may be cut off");
    }
    assert_eq!(look(2, &[entry(2, "mx2")]), 2, "it was upgraded");
    assert_eq!(look(60, &[old]), 1);
    assert_eq!(look(2, &[entry(2, "mx2")]), 1, "the view was too old a moment ago");
    for _ in 0..15 {
        look(2, &[]);
    }
    assert_eq!(look(2, &[]), 2);
}

#[test]
fn a_renewed_entry_hastens_no_look_and_a_new_one_does() {
    let settings = Settings::new(ClusterId([7; 16]), NodeId(1), Incarnation(0xabc), 4);
    let interval = settings.membership_interval;
    let mut member = Membership::new(Duration::ZERO, settings, "mx1".to_owned());
    let is_list = |request: &CoordinationRequest| matches!(request, CoordinationRequest::List { .. });
    let (token, _) = next(&mut member, Duration::ZERO, is_list);
    member.answered(Duration::ZERO, 1_000_000_000, token, CoordinationReply::Listed(vec![listed(&entry(2, "mx2"))]));
    let soon = HASTENED_INTERVAL;
    member.changed(soon, "node/2");
    assert_eq!(member.list_at, interval, "the node is known");
    member.changed(soon, "node/22");
    assert_eq!(member.list_at, soon, "the name of a known node is the beginning of this one");
    member.list_at = interval;
    member.changed(soon, NODE_PREFIX);
    assert_eq!(member.list_at, soon, "any entry may have changed");
}

fn mark(node: u16) -> DepartureMark {
    DepartureMark { cluster: ClusterId([7; 16]), node: NodeId(node), by: NodeId(node), is_empty: true }
}

fn listed_mark(node: u16, revision: u64) -> KeyValue {
    KeyValue { key: DepartureMark::key(NodeId(node)), value: Bytes::from(mark(node).to_string()), revision }
}

/// A node whose first look shows this.
fn member_that_sees(list: Vec<KeyValue>) -> Membership {
    let settings = Settings::new(ClusterId([7; 16]), NodeId(1), Incarnation(0xabc), 4);
    let mut member = Membership::new(Duration::ZERO, settings, "mx1".to_owned());
    let is_list = |request: &CoordinationRequest| matches!(request, CoordinationRequest::List { .. });
    let (token, _) = next(&mut member, Duration::ZERO, is_list);
    member.answered(Duration::ZERO, 1_000_000_000, token, CoordinationReply::Listed(list));
    member
}

#[test]
fn a_node_that_leaves_for_good_writes_its_mark_before_it_removes_its_entry() {
    let mut member = member_that_sees(Vec::new());
    let is_put = |request: &CoordinationRequest| matches!(request, CoordinationRequest::Put { .. });
    let is_delete = |request: &CoordinationRequest| matches!(request, CoordinationRequest::Delete { .. });
    let mut now = Duration::ZERO;
    let (token, _) = next(&mut member, now, is_put);
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 11 });
    now += Duration::from_millis(100);
    member.set_departing(now);
    let (token, request) = next(&mut member, now, is_put);
    let CoordinationRequest::Put { value, .. } = request else { panic!("a put") };
    assert!(NodeEntry::parse(&value).is_some_and(|entry| entry.is_departing && entry.is_draining));
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 12 });

    member.depart(now, true);
    let (token, request) = next(&mut member, now, is_put);
    let CoordinationRequest::Put { key, value, expected, ttl } = request else { panic!("a put") };
    assert_eq!((key.as_str(), expected, ttl), ("node/left/1", 0, None));
    assert_eq!(DepartureMark::parse(&value), Some(mark(1)));
    assert!(member.is_member(), "the entry is there until the mark is stored");
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 13 });
    let (token, request) = next(&mut member, now, is_delete);
    assert_eq!(request, CoordinationRequest::Delete { key: "node/1".to_owned(), expected: 12 });
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 14 });
    assert!(!member.is_member());
}

/// Otherwise it would count as one that left when it dies.
#[test]
fn a_node_that_joins_again_removes_its_mark_before_it_writes_its_entry() {
    let mut member = member_that_sees(vec![listed_mark(1, 9)]);
    let now = Duration::ZERO;
    let Some(Action::Coordinate { token, request }) = member.poll(now, 1_000_000_000) else { panic!("no request") };
    assert_eq!(request, CoordinationRequest::Delete { key: "node/left/1".to_owned(), expected: 9 });
    assert_eq!(member.poll(now, 1_000_000_000), None, "no entry before the answer");
    member.answered(now, 1_000_000_000, token, CoordinationReply::Written { revision: 10 });
    let is_put = |request: &CoordinationRequest| matches!(request, CoordinationRequest::Put { .. });
    let (_, request) = next(&mut member, now, is_put);
    assert!(matches!(request, CoordinationRequest::Put { key, .. } if key == "node/1"));
}

#[test]
fn an_entry_counts_more_than_a_mark_and_a_mark_of_another_cluster_not_at_all() {
    let foreign = DepartureMark { cluster: ClusterId([9; 16]), ..mark(4) };
    let foreign = KeyValue { key: "node/left/4".to_owned(), value: Bytes::from(foreign.to_string()), revision: 7 };
    let list = vec![listed(&entry(2, "mx2")), listed_mark(2, 8), listed_mark(3, 9), foreign];
    let member = member_that_sees(list);
    assert_eq!(member.departed().copied().collect::<Vec<_>>(), [mark(3)]);
    assert!(member.stays(NodeId(2)) && !member.stays(NodeId(3)));
}

/// A node that left need not read what the others write.
#[test]
fn a_later_version_does_not_wait_for_a_node_that_left() {
    let mut settings = Settings::new(ClusterId([7; 16]), NodeId(1), Incarnation(0xabc), 4);
    settings.block_versions.newest = 2;
    let mut member = Membership::new(Duration::ZERO, settings, "mx1".to_owned());
    let old = NodeEntry { reads: BlockVersions { oldest: 1, newest: 1 }, ..entry(2, "mx2") };
    let mut now = Duration::ZERO;
    let mut look = |list: Vec<KeyValue>| {
        now += Duration::from_secs(2);
        let is_list = |request: &CoordinationRequest| matches!(request, CoordinationRequest::List { .. });
        let (token, _) = next(&mut member, now, is_list);
        member.answered(now, 1_000_000_000, token, CoordinationReply::Listed(list));
        member.version()
    };
    for _ in 0..30 {
        assert_eq!(look(vec![listed(&old)]), 1);
    }
    assert_eq!(look(Vec::new()), 1, "a node that is missing counts for an hour");
    assert_eq!(look(vec![listed_mark(2, 9)]), 2);
}

//! Texts of keys, octets of bundles, and the steps of one push and one node.

use super::*;
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{ClusterId, NodeId};
use std::time::Duration;

fn name(byte: u8) -> BundleName {
    BundleName { digest: BundleDigest([byte; 32]), octets: 300_000 }
}

#[test]
fn values_read_back() {
    let active =
        ActiveRevision { number: 7, bundle: name(1), previous: Some(name(2)), push: PushId(u64::MAX), by: NodeId(3) };
    let first = ActiveRevision { previous: None, ..active.clone() };
    for one in [&active, &first] {
        assert_eq!(ActiveRevision::parse(one.to_string().as_bytes()).as_ref(), Some(one), "{one}");
    }
    let claim = PushClaim { push: PushId(1), by: NodeId(2), bundle: name(9), is_offered: true };
    assert_eq!(PushClaim::parse(claim.to_string().as_bytes()), Some(claim.clone()));
    let answers = [None, Some((PushId(4), Ok(()))), Some((PushId(4), Err("mailrace.toml:3:1: x number=8".to_owned())))];
    for push in answers {
        for problem in [None, Some((BundleDigest([5; 32]), "too large push=1".to_owned()))] {
            let report = NodeReport { taken: Some((6, BundleDigest([3; 32]))), push: push.clone(), problem };
            assert_eq!(NodeReport::parse(report.to_string().as_bytes()), Some(report.clone()), "{report}");
        }
    }
    let report = NodeReport { taken: None, push: Some((PushId(1), Err("a\nproblem b".repeat(900)))), problem: None };
    let read = NodeReport::parse(report.to_string().as_bytes()).unwrap();
    assert!(read.problem.is_none() && read.push.unwrap().1.unwrap_err().len() < 2_100, "a reason stays on its line");
    let later = [format!("{active} field=1"), claim.to_string().replace("push-1", "push-2")];
    assert!(ActiveRevision::parse(later[0].as_bytes()).is_some(), "a later version may add fields");
    assert!(PushClaim::parse(later[1].as_bytes()).is_none());
}

#[test]
fn a_bundle_reads_back_and_has_limits() {
    let mut bundle = Bundle::default();
    for (name, content) in [("mailrace.toml", "x = 1"), ("maps/access", ""), ("maps.d", "d"), ("rules/a b", "r")] {
        bundle.add(name, content.into()).unwrap();
    }
    let octets = bundle.encode();
    assert_eq!(Bundle::decode(&octets).as_ref(), Ok(&bundle));
    assert_eq!(Bundle::decode(&octets).unwrap().encode(), octets);
    for cut in 0..octets.len() {
        let part = Bundle::decode(octets.get(..cut).unwrap());
        assert_ne!(part.as_ref(), Ok(&bundle), "cut at {cut}");
    }
    for wrong in
        ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".git/config", "a\nb", "a\\b", " a", &"x".repeat(256)]
    {
        assert!(matches!(bundle.add(wrong, Vec::new()), Err(BundleError::Name { .. })), "{wrong:?}");
    }
    for twice in ["maps", "maps/access", "maps/access/x", "maps.d/x"] {
        assert_eq!(bundle.add(twice, Vec::new()), Err(BundleError::Twice(twice.to_owned())));
    }
    bundle.add("map", Vec::new()).unwrap();
    assert_eq!(bundle.add("large", vec![0; BUNDLE_OCTETS_MAX]), Err(BundleError::TooLarge));
    let rest = BUNDLE_OCTETS_MAX - bundle.files().map(|file| file.name.len() + file.content.len()).sum::<usize>();
    let mut full = bundle.clone();
    assert_eq!(full.add("large", vec![0; rest - 4]), Err(BundleError::TooLarge), "its name counts too");
    assert_eq!(full, bundle, "a file that is refused changes nothing");
    full.add("large", vec![0; rest - 5]).unwrap();
    let octets = full.encode();
    assert_eq!(Bundle::decode(&octets).as_ref(), Ok(&full), "the largest one reads back");
    assert_eq!(full.add("x", Vec::new()), Err(BundleError::TooLarge));
    let pieces: Vec<u8> =
        (0..name(1).pieces()).flat_map(|number| BundleName::piece(&[7; 300_000], number)).copied().collect();
    assert_eq!((name(1).pieces(), pieces), (2, vec![7; 300_000]));
    assert!(BundleName::piece(&[7; 3], 9).is_empty());
}

fn listed(keys: &[(&str, String)]) -> CoordinationReply {
    let key =
        |(key, value): &(&str, String)| KeyValue { key: (*key).to_owned(), value: value.clone().into(), revision: 4 };
    CoordinationReply::Listed(keys.iter().map(key).collect())
}

const NOW: Duration = Duration::from_secs(100);

#[test]
fn a_node_goes_on_with_its_revision_when_the_active_one_does_not_fit() {
    let own = (6, BundleDigest([6; 32]));
    let mut node = Follower::new(NOW, NodeId(2), Some(own));
    let active = ActiveRevision { number: 7, bundle: name(7), previous: None, push: PushId(1), by: NodeId(1) };
    assert!(matches!(node.next(NOW), FollowAction::Coordinate(CoordinationRequest::List { .. })));
    assert!(!node.is_settled());
    node.answered(NOW, listed(&[("config/active", active.to_string())]));
    assert_eq!(node.next(NOW), FollowAction::Examine(name(7)));
    node.examined(NOW, Examined::Unavailable("no engine".to_owned()));
    assert!(!node.is_settled() && !node.status().is_current());
    let later = NOW + Duration::from_secs(2);
    assert_eq!(node.next(later), FollowAction::Examine(name(7)));
    node.examined(later, Examined::Refused("mailrace.toml:1:1: no".to_owned()));
    assert!(node.is_settled() && !node.status().is_current());
    let FollowAction::Coordinate(CoordinationRequest::Put { key, value, expected, .. }) = node.next(later) else {
        panic!()
    };
    let report = NodeReport::parse(&value).unwrap();
    assert_eq!((key.as_str(), expected, report.taken), ("config/node/2", 0, Some(own)));
    assert_eq!(report.problem.as_ref().map(|(_, why)| why.as_str()), Some("mailrace.toml:1:1: no"));
    node.answered(later, CoordinationReply::Written { revision: 6 });
    assert!(matches!(node.next(later), FollowAction::Rest(_)));
    node.own_file_changed(later);
    assert_eq!(node.next(later), FollowAction::Examine(name(7)));
    node.examined(later, Examined::Fits);
    assert_eq!(node.next(later), FollowAction::Take(active));
    node.took(later, Ok(()));
    assert!(node.is_settled() && node.status().is_current());
}

#[test]
fn a_store_that_is_silent_is_not_asked_in_a_circle() {
    let mut node = Follower::new(NOW, NodeId(2), None);
    for _ in 0..2 {
        assert!(matches!(node.next(NOW), FollowAction::Coordinate(_)));
        node.answered(NOW, CoordinationReply::Unknown);
        assert!(matches!(node.next(NOW), FollowAction::Rest(rest) if rest > Duration::from_millis(500)));
        node.changed(NOW);
        node = Follower::new(NOW, NodeId(2), None);
    }
}

#[test]
fn keys_of_a_later_version_change_nothing() {
    let mut node = Follower::new(NOW, NodeId(2), None);
    node.next(NOW);
    node.answered(NOW, listed(&[("config/active", "mailrace-config-2 x=1".to_owned())]));
    while let FollowAction::Coordinate(_) = node.next(NOW) {
        node.answered(NOW, CoordinationReply::Written { revision: 1 });
    }
    assert!(node.status().problem.unwrap().contains("upgrade this node"));
    let mut push = Push::new(NOW, (ClusterId([0; 16]), NodeId(1)), PushId(1), name(1), PushOptions::default());
    push.next(NOW);
    push.answered(NOW, listed(&[("config/active", "mailrace-config-2 x=1".to_owned())]));
    assert_eq!(push.next(NOW), PushAction::End(PushEnd::Unreadable("config/active".to_owned())));
}

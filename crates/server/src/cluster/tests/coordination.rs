//! The key-value store on one server.

use super::*;
use crate::cluster::{KeyChange, Watch};
use futures_util::StreamExt as _;
use testkit::nats::Options;

#[tokio::test]
async fn a_key_changes_only_from_the_revision_that_was_read() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let (one, other) = (store(&servers).await, store(&servers).await);
    assert_eq!(get(&one, "claim/3/1/0").await, CoordinationReply::Found(None));
    let first = revision(&put(&one, "claim/3/1/0", "a", 0, None).await);
    assert_eq!(put(&other, "claim/3/1/0", "b", 0, None).await, CoordinationReply::Conflict);
    assert_eq!(put(&other, "claim/3/1/0", "b", first + 1, None).await, CoordinationReply::Conflict);
    let found = CoordinationReply::Found(Some(key_value("claim/3/1/0", "a", first)));
    assert_eq!(get(&other, "claim/3/1/0").await, found);
    let second = revision(&put(&other, "claim/3/1/0", "b", first, None).await);
    assert!(second > first);
    assert_eq!(put(&one, "claim/3/1/0", "c", first, None).await, CoordinationReply::Conflict);
    assert_eq!(delete(&one, "claim/3/1/0", first).await, CoordinationReply::Conflict);
    assert_eq!(put(&one, "none", "x", 9, None).await, CoordinationReply::Conflict);
    assert_eq!(delete(&one, "none", 9).await, CoordinationReply::Conflict);
}

/// A list of values ends at 1,024 keys.
#[tokio::test]
async fn any_number_of_keys_is_listed_by_name() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let store = store(&servers).await;
    assert_eq!(store.keys("limit/").await, Ok(Vec::new()));
    let name = |number: usize| format!("limit/connections/mx{number}.example:25");
    let puts = (0..1_100).map(|number| {
        let (store, key) = (store.clone(), name(number));
        async move { put_new(&store, &key, "x").await }
    });
    let written: Vec<u64> = futures_util::stream::iter(puts).buffer_unordered(64).collect().await;
    assert_eq!(written.len(), 1_100);
    put_new(&store, "limits", "x").await;
    let listed: std::collections::BTreeSet<String> = store.keys("limit/").await.unwrap().into_iter().collect();
    assert_eq!(listed, (0..1_100).map(name).collect());
    assert_eq!(list(&store, "limit/").await, CoordinationReply::Unknown, "the engine has a limit");
}

#[tokio::test]
async fn a_revision_never_comes_again_for_a_key() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let store = store(&servers).await;
    let mut last = 0;
    for round in 0..3 {
        let made = revision(&put(&store, "node/1", "x", 0, None).await);
        let changed = revision(&put(&store, "node/1", "y", made, None).await);
        let removed = revision(&delete(&store, "node/1", changed).await);
        assert!(last < made && made < changed && changed < removed, "{last} {made} {changed} {removed}");
        assert_eq!(get(&store, "node/1").await, CoordinationReply::Found(None));
        assert_eq!(list(&store, "node/").await, CoordinationReply::Listed(Vec::new()));
        // An old revision is good for nothing, also not that of the removal.
        assert_eq!(put(&store, "node/1", "z", changed, None).await, CoordinationReply::Conflict);
        last = removed;
        if round == 1 {
            servers[0].kill();
            servers[0].restart();
            assert_eq!(get_until_known(&store, "node/1").await, CoordinationReply::Found(None));
        }
    }
}

#[tokio::test]
async fn of_many_writers_one_changes_a_revision() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = store(&servers).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                loop {
                    let CoordinationReply::Found(found) = get(&store, "limit/a.example").await else { panic!() };
                    let (count, expected) = found.map_or((0, 0), |found| {
                        (std::str::from_utf8(&found.value).unwrap().parse::<u64>().unwrap(), found.revision)
                    });
                    match put(&store, "limit/a.example", &(count + 1).to_string(), expected, None).await {
                        CoordinationReply::Written { .. } => break,
                        CoordinationReply::Conflict => {}
                        reply => panic!("{reply:?}"),
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let store = store(&servers).await;
    let CoordinationReply::Found(Some(found)) = get(&store, "limit/a.example").await else { panic!() };
    assert_eq!(&found.value[..], b"100");
}

#[tokio::test]
async fn a_key_expires_and_may_be_made_again() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let store = store(&servers).await;
    // Longer than the two requests that find it alive, on a busy machine too.
    let ttl = Some(Duration::from_secs(15));
    let first = revision(&put(&store, "node/2", "a", 0, ttl).await);
    let kept = revision(&put(&store, "node/3", "b", 0, Some(Duration::from_secs(600))).await);
    assert_eq!(put(&store, "node/2", "again", 0, ttl).await, CoordinationReply::Conflict, "it lives");
    let gone = CoordinationReply::Found(None);
    poll("it expires", async || (get(&store, "node/2").await == gone).then_some(())).await;
    let listed = CoordinationReply::Listed(vec![key_value("node/3", "b", kept)]);
    assert_eq!(list(&store, "node/").await, listed);
    assert_eq!(put(&store, "node/2", "old", first, ttl).await, CoordinationReply::Conflict);
    let second = revision(&put(&store, "node/2", "new", 0, None).await);
    assert!(second > first);
}

#[tokio::test]
async fn a_list_has_the_keys_with_the_prefix_by_name() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let servers = [server];
    let store = store(&servers).await;
    assert_eq!(list(&store, "").await, CoordinationReply::Listed(Vec::new()));
    let mut revisions = Vec::new();
    for key in ["node/2", "node/10", "nodes", "claim/1/2/0", "limit/mx.example", "limit/*.a b>"] {
        revisions.push(revision(&put(&store, key, key, 0, None).await));
    }
    let found = |at: usize, key: &str| key_value(key, key, revisions[at]);
    let listed = |keys: Vec<KeyValue>| CoordinationReply::Listed(keys);
    assert_eq!(list(&store, "node/").await, listed(vec![found(1, "node/10"), found(0, "node/2")]));
    assert_eq!(list(&store, "node").await, listed(vec![found(1, "node/10"), found(0, "node/2"), found(2, "nodes")]));
    assert_eq!(list(&store, "claim/1/").await, listed(vec![found(3, "claim/1/2/0")]));
    assert_eq!(list(&store, "limit/").await, listed(vec![found(5, "limit/*.a b>"), found(4, "limit/mx.example")]));
    assert_eq!(list(&store, "other/").await, listed(Vec::new()));
    let CoordinationReply::Listed(all) = list(&store, "").await else { panic!() };
    assert_eq!(all.len(), 6);
}

#[tokio::test]
async fn without_a_bucket_or_a_server_nothing_is_known() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let store = Coordination::new(engine(&servers).await);
    assert_eq!(get(&store, "a").await, CoordinationReply::Unknown);
    store.make_bucket(&settings(&servers)).await.unwrap();
    store.make_bucket(&settings(&servers)).await.unwrap();
    servers[0].stand_still();
    let asked = tokio::time::Instant::now();
    assert_eq!(put(&store, "a", "late", 0, None).await, CoordinationReply::Unknown);
    assert!(asked.elapsed() < settings(&servers).request_time_max + SOON / 3);
    servers[0].go_on();
    // It was carried out late, and a repetition is refused.
    let has_arrived = |reply: CoordinationReply| matches!(reply, CoordinationReply::Found(Some(_))).then_some(());
    poll("it arrives", async || has_arrived(get(&store, "a").await)).await;
    assert_eq!(put(&store, "a", "late", 0, None).await, CoordinationReply::Conflict);
    servers[0].kill();
    assert_eq!(list(&store, "a").await, CoordinationReply::Unknown);
}

#[tokio::test]
async fn a_watch_tells_of_writes_and_removals_also_after_a_restart() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let mut servers = [server];
    let store = store(&servers).await;
    let mut watch = Watch::new(engine(&servers).await);
    let next = async |watch: &mut Watch| tokio::time::timeout(SOON, watch.next()).await.unwrap();
    assert_eq!(next(&mut watch).await, KeyChange::Any);
    let written = put_new(&store, "node/7", "a").await;
    assert_eq!(next(&mut watch).await, KeyChange::Key("node/7".to_owned()));
    // A read is no change.
    assert_eq!(get(&store, "node/7").await, CoordinationReply::Found(Some(key_value("node/7", "a", written))));
    delete(&store, "node/7", written).await;
    assert_eq!(next(&mut watch).await, KeyChange::Key("node/7".to_owned()));
    servers[0].kill();
    servers[0].restart();
    assert_eq!(next(&mut watch).await, KeyChange::Any);
    put_new(&store, "claim/1/2/3", "b").await;
    assert_eq!(next(&mut watch).await, KeyChange::Key("claim/1/2/3".to_owned()));
}

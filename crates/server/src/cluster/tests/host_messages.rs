//! Messages about hosts reach the nodes of their cluster, and no others.

use super::super::engine_access::EngineAccess;
use super::super::host_messages::HostMessages;
use super::*;
use ::cluster::{ClusterId, HostState, HostStatus};
use std::sync::Arc;
use testkit::nats::Options;

/// The messages of a node of this cluster; its engine is kept in use until the test ends.
fn messages(servers: &[Nats], cluster: ClusterId) -> HostMessages {
    let engine = Arc::new(EngineAccess::new(settings(servers)));
    let keeper = Arc::clone(&engine);
    drop(tokio::spawn(async move { keeper.keep().await }));
    HostMessages::new(engine, cluster)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_reaches_its_cluster_also_after_the_engine_was_away() {
    let Some(mut servers) = Nats::start(&Options::default()).map(|one| vec![one]) else { return };
    let (own, other) = (ClusterId(*b"cluster of tests"), ClusterId(*b"another of tests"));
    let sender = messages(&servers, own);
    let (mut receiver, mut foreign) = (messages(&servers, own), messages(&servers, other));
    let next_hop = "mx.example:25 tls=required".to_owned();
    let status = HostStatus { node: NodeId(3), state: HostState::Down, wait_s: 60, next_hop };
    let moment = Duration::from_millis(300);
    for is_back in [false, true] {
        if is_back {
            servers[0].restart();
        }
        // The receiver listens from its first call on, so earlier messages are lost.
        let heard = poll("the message", async || {
            sender.send(&status).await;
            tokio::time::timeout(moment, receiver.next()).await.ok()
        })
        .await;
        assert_eq!(HostStatus::parse(&heard), Some(status.clone()), "{is_back}");
        drop(tokio::time::timeout(moment, foreign.next()).await);
        sender.send(&status).await;
        let heard = tokio::time::timeout(moment, foreign.next()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

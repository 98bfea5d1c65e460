//! Bundles of shared configuration on real servers.

use super::super::bundle_store::{BundleStore, name_of};
use super::*;
use crate::cluster::api;
use async_nats::HeaderMap;
use cluster::{Bundle, BundleName};
use testkit::nats::Options;

/// A bundle of several pieces.
fn bundle(seed: u8) -> (Bundle, Vec<u8>, BundleName) {
    let mut bundle = Bundle::default();
    bundle.add("mailrace.toml", vec![seed]).unwrap();
    bundle.add("maps/access", (0..3_000_000_u32).map(|at| at.to_le_bytes()[1] ^ seed).collect()).unwrap();
    let octets = bundle.encode();
    let name = name_of(&octets);
    (bundle, octets, name)
}

async fn put_all(store: &BundleStore, (_, octets, name): &(Bundle, Vec<u8>, BundleName)) {
    for piece in 0..name.pieces() {
        poll("a piece is stored", async || store.put(*name, octets, piece).await.ok()).await;
    }
}

#[tokio::test]
async fn a_bundle_is_read_at_each_server_as_it_was_stored_or_not_at_all() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let store = BundleStore::new(engine(&servers).await);
    let all = [1, 2, 3].map(bundle);
    poll("the stream is made", async || store.prepare(3, &[]).await.ok()).await;
    for one in &all {
        put_all(&store, one).await;
        // At once, from a server that may be behind.
        for at in 0..3 {
            let other = BundleStore::new(engine(&servers[at..=at]).await);
            assert_eq!(other.fetch(one.2).await.as_ref(), Ok(&one.0));
        }
    }
    store.prepare(3, &[all[0].2.digest, all[2].2.digest]).await.unwrap();
    assert_eq!(store.fetch(all[0].2).await.as_ref(), Ok(&all[0].0));
    assert!(store.fetch(all[1].2).await.unwrap_err().contains("push the files again"), "it was removed");
    // Octets that another program has written in the place of a piece.
    let subject = format!("MRC.{}.1", all[2].2.digest);
    api::publish(&engine(&servers).await, "MRC_config", subject, HeaderMap::new(), "other".into()).await.unwrap();
    assert!(store.fetch(all[2].2).await.unwrap_err().contains("damaged in the engine"));
    put_all(&store, &all[2]).await;
    assert_eq!(store.fetch(all[2].2).await.as_ref(), Ok(&all[2].0));
}

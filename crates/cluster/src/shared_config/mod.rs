//! Configuration and maps that all nodes of a cluster share: one bundle of files, activated by one compare-and-set.
//!
//! A [`Push`] claims the store, uploads a [`Bundle`], waits until each live node has said that it fits, and writes
//! the key `config/active`. A [`Follower`] at each node examines what is offered, and takes what is active. A bundle is
//! named by the SHA-256 of its octets, so a read that is old finds nothing or the right thing, and never another
//! bundle.
//!
//! | Key | Content | Written by |
//! |---|---|---|
//! | `config/active` | [`ActiveRevision`] | the push that won |
//! | `config/push` | [`PushClaim`], with a time to live | the push that is under way |
//! | `config/node/NUMBER` | [`NodeReport`] | the node |

mod bundle;
mod follower;
mod push;
mod record;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use bundle::{BUNDLE_FILES_MAX, BUNDLE_OCTETS_MAX, Bundle, BundleError, BundleFile, bundle_path_fault};
pub use follower::{Examined, FollowAction, Follower, FollowerStatus};
pub use push::{Push, PushAction, PushAnswer, PushEnd, PushNode, PushOptions};
pub use record::{ActiveRevision, BundleDigest, BundleName, CONFIG_PREFIX, ConfigView, NodeReport, PushClaim, PushId};

//! This node's part in shared configuration: the task that carries out a `cluster::Follower`.
//!
//! Keys are read after hints of a watch, and every few seconds without. Files are read from the engine, written beside
//! the spool, and examined and put in force by [`TakeConfig`].

use super::bundle_store::BundleStore;
use super::member::ClusterMember;
use super::watch::{KeyChange, Watch};
use cluster::{
    ActiveRevision, Bundle, BundleDigest, BundleName, CONFIG_PREFIX, CoordinationReply, Examined, FollowAction,
    Follower, FollowerStatus, NodeId,
};
use os::clock;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Time until the engine is looked for again while there is none.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// The server that has the configuration.
pub trait TakeConfig: Send + Sync + 'static {
    /// Writes the files beside the spool, and sees whether this server could go on with them.
    fn examine(&self, digest: BundleDigest, bundle: Bundle) -> impl Future<Output = Examined> + Send;
    /// Makes this revision the one of later starts, durably, and puts it in force; both or none.
    fn take(&self, active: &ActiveRevision) -> impl Future<Output = Result<(), String>> + Send;
    /// Tells the operator why the revision that counts is not in force here; `None`: it is again.
    fn problem(&self, problem: Option<&str>);
}

/// The handle of the task.
#[derive(Debug)]
pub struct SharedConfig {
    follower: Mutex<Follower>,
    /// Something was told.
    wake: Notify,
    /// Something has come to an end.
    moved: Notify,
}

impl SharedConfig {
    /// A node with this revision in force.
    #[must_use]
    pub fn new(node: NodeId, taken: Option<(u64, BundleDigest)>) -> Self {
        let follower = Mutex::new(Follower::new(clock::since_boot(), node, taken));
        Self { follower, wake: Notify::new(), moved: Notify::new() }
    }

    fn follower(&self) -> MutexGuard<'_, Follower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for operators.
    #[must_use]
    pub fn status(&self) -> FollowerStatus {
        self.follower().status()
    }

    /// The own file was read again: a revision that did not fit may do so now.
    pub fn own_file_changed(&self) {
        self.follower().own_file_changed(clock::since_boot());
        self.wake.notify_one();
    }

    /// Waits until this node knows which revision counts, and has it in force or goes on with its own.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn settled(&self) {
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            // Registered before the look, so that a change in between is not missed.
            moved.as_mut().enable();
            if self.follower().is_settled() {
                return;
            }
            moved.await;
        }
    }

    /// Follows the shared configuration until it is dropped.
    ///
    /// # Cancel safety
    /// A step that waits for the server goes on; the next life of the node finds its result.
    pub async fn run<T: TakeConfig>(self: Arc<Self>, member: ClusterMember, server: T) {
        let (mut watch, mut said) = (None, None);
        loop {
            let action = self.follower().next(clock::since_boot());
            match action {
                FollowAction::Coordinate(request) => {
                    let reply = match member.engine_in_use() {
                        Some(engine) => engine.store.carry_out(&request).await.reply,
                        None => CoordinationReply::Unknown,
                    };
                    self.follower().answered(clock::since_boot(), reply);
                }
                FollowAction::Examine(name) => {
                    let result = examine(&member, &server, name).await;
                    self.follower().examined(clock::since_boot(), result);
                }
                FollowAction::Take(active) => {
                    let result = server.take(&active).await;
                    self.follower().took(clock::since_boot(), result);
                }
                FollowAction::Rest(rest) => {
                    let problem = self.follower().status().problem;
                    if problem != said {
                        server.problem(problem.as_deref());
                        said = problem;
                    }
                    self.moved.notify_waiters();
                    tokio::select! {
                        () = tokio::time::sleep(rest) => {}
                        () = self.wake.notified() => {}
                        () = changed(&mut watch, &member) => self.follower().changed(clock::since_boot()),
                    }
                }
            }
        }
    }
}

async fn examine<T: TakeConfig>(member: &ClusterMember, server: &T, name: BundleName) -> Examined {
    let Some(engine) = member.engine_in_use() else {
        return Examined::Unavailable("no engine answers".to_owned());
    };
    match BundleStore::new(engine.engine.clone()).fetch(name).await {
        Ok(bundle) => server.examine(name.digest, bundle).await,
        Err(why) => Examined::Unavailable(why),
    }
}

/// Waits until a key of shared configuration may have changed.
///
/// # Cancel safety
/// Yes.
async fn changed(watch: &mut Option<Watch>, member: &ClusterMember) {
    loop {
        let Some(watch) = watch else {
            match member.engine_in_use() {
                Some(engine) => *watch = Some(Watch::new(engine.engine.clone())),
                None => tokio::time::sleep(LOOK_TIME).await,
            }
            continue;
        };
        match watch.next().await {
            KeyChange::Any => return,
            KeyChange::Key(key) if key.starts_with(CONFIG_PREFIX) => return,
            KeyChange::Key(_) => {}
        }
    }
}

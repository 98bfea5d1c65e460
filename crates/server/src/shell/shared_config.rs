//! Shared configuration of a cluster at this server: examines a revision, and puts it in force as a reload does.

use super::reload::Refused;
use super::server::{Server, lock};
use crate::cluster::{SharedConfig, TakeConfig};
use crate::config::{RealFiles, SharedFiles, check_files};
use cluster::{ActiveRevision, Bundle, BundleDigest, Examined, FollowerStatus};
use observe::{Event, Severity};
use operator::answers::{ClusterConfigAnswer, ClusterConfigNode, ClusterConfigRevision};
use operator::control::Answer;
use os::blocking;
use os::signals::{Signal, Signals};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time that a start waits for an engine that does not answer, where there is a revision of its own to begin with.
const ENGINE_TIME_MAX: Duration = Duration::from_secs(3);
/// The same for one that answers: it may be busy, and the revision that counts may be large.
const START_TIME_MAX: Duration = Duration::from_secs(15);
/// Time between two lines of the log while a start waits without one.
const SAY_EVERY: Duration = Duration::from_secs(15);
/// Time until a reload that is going on is looked at again.
const RELOAD_LOOK_TIME: Duration = Duration::from_millis(50);

/// The server, for the task that follows the shared configuration.
struct SharedTarget(Arc<Server>);

impl Server {
    /// Follows the shared configuration, if the own file says so, and waits until the revision that counts is in force.
    ///
    /// With a revision on the own disk the wait is short. Without one this server knows neither maps nor rights, so it
    /// takes no mail before it knows that there is none.
    ///
    /// # Cancel safety
    /// The configuration is followed all the same.
    pub(super) async fn follow_shared(self: &Arc<Self>) {
        let config = self.context.live.load().config.cluster.clone();
        let Some(member) = self.context.message_store.cluster().filter(|_| config.shared) else { return };
        let files = self.shared_files();
        let active = files.active().ok().flatten();
        let taken = active.map(|active| (active.number, active.bundle.digest));
        let shared = self.shared.get_or_init(|| Arc::new(SharedConfig::new(cluster::NodeId(config.node), taken)));
        lock(&self.tasks).spawn(Arc::clone(shared).run(member.clone(), SharedTarget(Arc::clone(self))));
        if taken.is_some() {
            // Mail that came meanwhile waits as long.
            let is_settled = tokio::time::timeout(ENGINE_TIME_MAX, shared.settled()).await.is_ok();
            if !is_settled && member.has_engine() {
                drop(tokio::time::timeout(START_TIME_MAX, shared.settled()).await);
            }
            return;
        }
        while tokio::time::timeout(SAY_EVERY, shared.settled()).await.is_err() {
            let why = shared.status().problem.unwrap_or_else(|| "no majority of the engines answers".to_owned());
            let text = format!(
                "cluster.shared: no mail is taken before the first shared configuration: {why}; start the engines, or copy \
                 {} from another node and restart",
                files.active_path().parent().unwrap_or_else(|| Path::new("")).display()
            );
            self.context.record(&Event::Cluster { severity: Severity::Warning, text: &text });
        }
    }

    /// Does [`Server::follow_shared`], and takes connections then. False when a signal ends the server before.
    pub(super) async fn takes_shared(self: &Arc<Self>, signals: &mut Signals) -> bool {
        let mut settled = std::pin::pin!(self.follow_shared());
        loop {
            let signal = tokio::select! {
                () = &mut settled => {
                    self.accepts.send_replace(true);
                    return true;
                }
                signal = signals.next() => signal,
            };
            if matches!(signal, Signal::Terminate { .. } | Signal::TerminateNow) {
                return false;
            }
        }
    }

    fn shared_files(&self) -> SharedFiles {
        SharedFiles::beside(&self.context.live.load().config.spool.path)
    }

    /// Writes a bundle beside the spool, and sees whether a reload to it would succeed.
    fn examine_shared(&self, digest: BundleDigest, bundle: &Bundle) -> Examined {
        let Some(source) = &self.source else { return Examined::Refused("a sink has no configuration".to_owned()) };
        let files = self.shared_files();
        let kept = files.active().ok().flatten().into_iter().flat_map(|active| [Some(active.bundle), active.previous]);
        let kept: Vec<BundleDigest> = kept.flatten().map(|bundle| bundle.digest).chain([digest]).collect();
        files.remove_others(&kept);
        let directory = match files.keep(digest, bundle) {
            Ok(directory) => directory,
            Err(error) => {
                let place = files.of(digest);
                return Examined::Refused(format!("{} cannot be written: {error}; make room there", place.display()));
            }
        };
        let loaded = match source.read_over(Some(&directory)) {
            Ok(loaded) => loaded,
            Err(problems) => return Examined::Refused(below(&directory, &Refused::of(&problems).first())),
        };
        let of_files = check_files(&loaded, &RealFiles).into_iter();
        // The readers of files report faults inside them; that one is missing is said here with its line.
        let missing = of_files.filter(|problem| {
            problem.severity == crate::config::Severity::Error && Path::new(&problem.file).starts_with(&directory)
        });
        if let Some(problem) = missing.map(|problem| problem.line()).next() {
            return Examined::Refused(below(&directory, &problem));
        }
        match self.prepare_values(loaded, source.path.as_deref()) {
            Ok(_) => Examined::Fits,
            Err(refused) => Examined::Refused(below(&directory, &refused.first())),
        }
    }

    /// Makes a revision the one of later starts, and reloads; without the reload the one before stays.
    fn take_shared(self: &Arc<Self>, active: &ActiveRevision) -> Result<(), String> {
        let files = self.shared_files();
        let before = files.active().map_err(|error| format!("{}: {error}", files.active_path().display()))?;
        let failed = |error| format!("{} cannot be written: {error}; make room there", files.active_path().display());
        files.set_active(Some(active)).map_err(failed)?;
        let why = match self.reload_now() {
            Answer::Done(_) => {
                let text = format!(
                    "shared configuration: revision {} ({}) is in force, pushed at node {}",
                    active.number,
                    active.bundle.digest.short(),
                    active.by.0
                );
                self.context.record(&Event::Cluster { severity: Severity::Info, text: &text });
                return Ok(());
            }
            Answer::Refused { error, problems, .. } => problems.first().map_or(error, ToString::to_string),
            _ => "the reload broke off".to_owned(),
        };
        files
            .set_active(before.as_ref())
            .map_err(|error| format!("{why}; and {} cannot be written: {error}", files.active_path().display()))?;
        Err(below(&files.of(active.bundle.digest), &why))
    }
}

/// Names files of a bundle as the operator who pushed it knows them.
fn below(directory: &Path, text: &str) -> String {
    text.replace(&format!("{}/", directory.display()), "")
}

impl TakeConfig for SharedTarget {
    async fn examine(&self, digest: BundleDigest, bundle: Bundle) -> Examined {
        let server = Arc::clone(&self.0);
        let examined = blocking::run(move || server.examine_shared(digest, &bundle)).await;
        examined.unwrap_or_else(|_| Examined::Refused("the examination broke off; the log says why".to_owned()))
    }

    async fn take(&self, active: &ActiveRevision) -> Result<(), String> {
        while self.0.reloading.swap(true, Ordering::SeqCst) {
            tokio::time::sleep(RELOAD_LOOK_TIME).await;
        }
        let (server, active) = (Arc::clone(&self.0), active.clone());
        let taken = blocking::run(move || server.take_shared(&active)).await;
        self.0.reloading.store(false, Ordering::SeqCst);
        taken.unwrap_or_else(|_| Err("the reload broke off; the log says why".to_owned()))
    }

    fn problem(&self, problem: Option<&str>) {
        let (severity, text) = match problem {
            Some(why) => (
                Severity::Warning,
                format!("shared configuration: this node goes on with its last good revision: {why}"),
            ),
            None => (Severity::Info, "shared configuration: the problem is over".to_owned()),
        };
        self.0.context.record(&Event::Cluster { severity, text: &text });
    }
}

/// The state of the shared configuration, for the answer to `status`. `live` are the nodes that run.
pub(super) fn shared_status(status: &FollowerStatus, live: &[u16]) -> ClusterConfigAnswer {
    let revision = |(number, digest): (u64, BundleDigest)| ClusterConfigRevision { number, files: digest.to_string() };
    let view = status.view.clone().unwrap_or_default();
    let node = |(node, (report, _)): (&cluster::NodeId, &(cluster::NodeReport, u64))| ClusterConfigNode {
        node: node.0,
        running: live.contains(&node.0),
        revision: report.taken.map(revision),
        problem: report.problem.clone().map(|(_, why)| why),
    };
    ClusterConfigAnswer {
        active: view.active.as_ref().map(|(active, _)| revision((active.number, active.bundle.digest))),
        own: status.taken.map(revision),
        current: status.is_current(),
        problem: status.problem.clone(),
        nodes: view.reports.iter().map(node).collect(),
    }
}

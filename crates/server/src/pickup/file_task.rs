//! The turn of a file in the pickup directory: it is opened, stored and removed, or stays for a later turn.

use super::directory::PickupDirectory;
use super::file::{Opened, PickupFileError, Refused, SubmittedFile};
use super::import::Import;
use super::session::{PickupResult, PickupSession};
use super::waiter::SubmitWaiter;
use super::{BAD, MAIL, Name, report, user, warn};
use crate::context::Context;
use crate::inbound::Inbound;
use crate::stop::ConnectionCount;
use mail::{EnhancedCode, Outcome, QueueId, Reply, ReplyCode};
use operator::delivery_watch::DeliveryWatch;
use os::{blocking, clock};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Result for a file.
pub(super) enum FileOutcome {
    /// It is gone. A command may wait for the results of delivery.
    Gone(Option<(SubmitWaiter, DeliveryWatch)>),
    /// It stays, and is tried again under this name; the reason; recipients about whom the sender has a report: they
    /// are done.
    Later(Name, String, Vec<usize>),
    /// It is no message, and has another name now, if it could get one.
    Bad { why: String, aside: Option<String> },
    /// It stays, and this process leaves it alone.
    Stuck,
}

/// A file that has its turn.
pub(super) struct FileTask {
    pub(super) inbound: Arc<Inbound>,
    pub(super) directory: Arc<PickupDirectory>,
    pub(super) heads: Arc<Semaphore>,
    pub(super) name: Name,
    /// It was tried before.
    pub(super) is_again: bool,
    /// Recipients that were reported before.
    pub(super) told: HashSet<usize>,
    /// When this process saw it first.
    pub(super) since: Instant,
}

impl FileTask {
    /// Stores its message, or decides what else happens to the file.
    pub(super) async fn carry(self, waiter: Option<SubmitWaiter>) -> FileOutcome {
        let Self { inbound, directory, name, .. } = &self;
        let context = &inbound.context;
        // Counted as a session until its file is gone: the end of the server waits for it.
        let _open = ConnectionCount::new(&context.stop);
        if let (Some(id), Some(spool)) = (name.id, context.spool())
            && !spool.states(id).is_empty()
        {
            // A crash came between the message and the end of its file.
            return remove(context, directory, name, None).await;
        }
        let opened = match self.open().await {
            Ok(opened) => opened,
            Err(ended) => return ended,
        };
        // Held until the message is stored or given up.
        let _memory = match opened.large_kib() {
            Some(kib) => Arc::clone(&self.heads).acquire_many_owned(kib).await.ok(),
            None => None,
        };
        let (mut handed, tried, id) = match self.read(opened).await {
            Ok(read) => read,
            Err(ended) => return ended,
        };
        let places = handed.leave_out(&self.told);
        let handed = Arc::new(handed);
        let (why, mut told) = match self.store(&handed, id, waiter).await {
            PickupResult::Done(told) => return remove(context, directory, &tried, told).await,
            PickupResult::Divide(apart) => {
                let (there, whole) = (Arc::clone(directory), Arc::clone(&handed));
                match blocking::run(move || whole.divide(there.path(), &apart)).await {
                    Ok(Ok(())) => return remove(context, directory, &tried, None).await,
                    Ok(Err(error)) => (format!("it cannot be divided: {error}"), Vec::new()),
                    Err(_) => return FileOutcome::Stuck,
                }
            }
            PickupResult::Later(why, told) => (why, told),
        };
        if self.age(&handed) > context.live.load().config.delivery.give_up_after {
            let reply = expired(&why);
            let left = (0..places.len()).filter(|position| !told.contains(position));
            let left: Vec<Refused> = left.map(|position| (position, reply.clone())).collect();
            told.extend(report::report_refused(inbound, &handed, id, &left).await);
            if told.len() == places.len() {
                return remove(context, directory, &tried, None).await;
            }
        }
        let told = told.into_iter().filter_map(|position| places.get(position).copied());
        FileOutcome::Later(tried, why, told.collect())
    }

    /// Stores its message in the spool, as one of this server or of another one.
    async fn store(&self, handed: &Arc<SubmittedFile>, id: QueueId, waiter: Option<SubmitWaiter>) -> PickupResult {
        let waiter = waiter.filter(|waiter| waiter.may_hear_of(handed.uid));
        let user = user::find(&self.inbound.context, handed.uid, &handed.submission.sender).await;
        let (inbound, handed) = (Arc::clone(&self.inbound), Arc::clone(handed));
        match handed.submission.adopted.clone() {
            Some(adopted) => Box::pin(Import { inbound, handed, adopted, id, user: user.name }.run()).await,
            None => {
                let is_again = self.is_again;
                PickupSession { inbound, handed, id, user, is_again, waiter, told: Vec::new() }.run().await
            }
        }
    }

    /// Returns how long it has waited. The file has the time that its owner has set, and must not wait for ever.
    fn age(&self, handed: &SubmittedFile) -> Duration {
        let written = self.inbound.context.age_of_file(Duration::from_secs(handed.finished));
        written.max(clock::now().saturating_duration_since(self.since))
    }

    async fn open(&self) -> Result<Opened, FileOutcome> {
        let content_max = self.inbound.context.live.load().config.message.size_max;
        let (directory, text) = (Arc::clone(&self.directory), self.name.text());
        let open = move || Opened::open(rustix::fd::AsFd::as_fd(&*directory), &text, content_max);
        match blocking::run(open).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(trouble)) => Err(self.ended(trouble).await),
            Err(_) => Err(FileOutcome::Stuck),
        }
    }

    /// Reads it, and gives it the name with which it is tried.
    async fn read(&self, opened: Opened) -> Result<(SubmittedFile, Name, QueueId), FileOutcome> {
        let (context, directory, name) =
            (Arc::clone(&self.inbound.context), Arc::clone(&self.directory), self.name.clone());
        let read = blocking::run(move || {
            let handed = opened.read()?;
            // An id that was used for an attempt is not used again: the spool may have declared it done.
            let id = match &handed.submission.adopted {
                Some(adopted) => context.message_store.past_id(adopted.arrived.saturating_mul(1_000_000)),
                None => context.message_store.next_id(),
            };
            let tried = Name { base: name.base.clone(), id: Some(id) };
            directory.rename(&name.text(), &tried.text())?;
            Ok::<_, PickupFileError>((handed, tried, id))
        });
        match read.await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(trouble)) => Err(self.ended(trouble).await),
            Err(_) => Err(FileOutcome::Stuck),
        }
    }

    async fn ended(&self, trouble: PickupFileError) -> FileOutcome {
        match trouble {
            PickupFileError::Gone => FileOutcome::Gone(None),
            PickupFileError::Bad(why) => FileOutcome::Bad { why, aside: self.put_aside().await },
            PickupFileError::Io(error) => {
                FileOutcome::Later(self.name.clone(), format!("it cannot be read: {error}"), Vec::new())
            }
        }
    }

    /// Gives it a name that the server does not look at. `None`: it has its name.
    async fn put_aside(&self) -> Option<String> {
        let aside = self.name.base.replacen(MAIL, BAD, 1);
        let (there, name) = (Arc::clone(&self.directory), self.name.text());
        blocking::run(move || there.put_aside(&name, aside)).await.ok().and_then(Result::ok)
    }
}

/// Returns the reply for the sender of a message that was not accepted for days.
fn expired(why: &str) -> Reply {
    let status = EnhancedCode::of(Outcome::Permanent, 4, 7);
    Reply::new(ReplyCode::of(554), Some(status), &format!("Message was not taken in time: {why}"))
}

async fn remove(
    context: &Context,
    directory: &Arc<PickupDirectory>,
    name: &Name,
    told: Option<(SubmitWaiter, DeliveryWatch)>,
) -> FileOutcome {
    let (there, text) = (Arc::clone(directory), name.text());
    match blocking::run(move || there.remove(&text)).await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!(
                "{} is stored and cannot be removed: {error}; remove it before the next start, or its mail may go twice",
                name.text()
            );
            warn(context, directory, &what);
            FileOutcome::Stuck
        }
        _ => FileOutcome::Gone(told),
    }
}

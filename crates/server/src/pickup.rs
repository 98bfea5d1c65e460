//! Takes what programs of this machine have put into the pickup directory, whether the server ran then or not.
//!
//! The directory is looked through at the start and every few seconds (`look`); a command that hands something in says so on the
//! socket there, and need not wait for that. Each file goes through a session of its own (`courier`): the same admission and
//! commit as SMTP. A file is removed when its message is durable in the spool. Before it is stored it gets the queue id into its
//! name, so that the next start knows what a crash has left: a message that is in the spool under that id is not stored again.
//! A message that another server had taken before is not judged again (`adopt`).
//! What cannot be taken now is tried again, later each time; what is no message is put aside, and the log says why (`complaints`).
//!
//! What a file is, and why nobody else can read, change or forge one, is written in [`crate::submit`].

mod adopt;
mod asker;
mod complaints;
mod courier;
mod directory;
mod file;
mod look;
mod report;

pub(crate) use directory::Directory;

use crate::env::{blocking, clock};
use crate::service::{Open, Service};
use crate::submit::FULL;
use adopt::Adoption;
use asker::Asker;
use complaints::{Complaints, Said};
use courier::{Carried, Courier, Refused};
use file::{Handed, Trouble};
use look::{Found, Looker};
use mail::{EnhancedCode, Outcome, QueueId, Reply, ReplyCode};
use observe::{Event, Severity};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Messages that are stored at the same time: they share the flushes of the spool.
const AT_ONCE: usize = 32;
/// Commands that wait at the same time. Others are not heard, and their messages taken all the same.
const ASKERS_MAX: usize = 256;
/// The first pause before a message is tried again; it doubles up to the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(300);
/// What a message that waits costs the others: with many, each is tried more rarely, so that all together are about a hundred a second.
const AGAIN_SHARE: Duration = Duration::from_millis(10);
/// Messages that are tried at once when one was taken that had waited: why they waited may have gone.
const HURRIED: usize = 2;

const MAIL: &str = "mail.";
const NEW: &str = "new.";
const RANDOM_DIGITS: usize = 32;

/// A file by what its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    /// `mail.R`
    base: String,
    id: Option<QueueId>,
}

impl Name {
    fn read(text: &str) -> Option<Self> {
        let (random, id) = text.strip_prefix(MAIL)?.split_at_checked(RANDOM_DIGITS)?;
        if !random.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
            return None;
        }
        let id = match id.strip_prefix('.') {
            Some(id) => Some(id.parse().ok()?),
            None if id.is_empty() => None,
            None => return None,
        };
        Some(Self { base: format!("{MAIL}{random}"), id })
    }

    fn text(&self) -> String {
        self.id.map_or_else(|| self.base.clone(), |id| format!("{}.{id}", self.base))
    }
}

/// What became of a file.
enum Ended {
    /// It is gone. Somebody may want to hear more.
    Gone(Option<(Asker, crate::outcome::Watch)>),
    /// It stays, and is tried again under this name; why. Of these recipients the sender was told: they are done.
    Later(Name, String, Vec<usize>),
    /// It stays, and this process leaves it alone.
    Stuck,
}

/// How many files wait, for `status`.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    files: AtomicU64,
    is_full: AtomicBool,
}

impl Waiting {
    /// Files in the directory when it was last looked through.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Somebody may hand in no more.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// A file that is ready, running or waiting.
#[derive(Debug, Default)]
struct Known {
    /// How often it was tried.
    tries: u32,
    /// Recipients, by their places in the file, of whom the sender was told: they are tried no more.
    told: HashSet<usize>,
    said: Option<Said>,
}

/// Everything under way.
struct Pickup {
    service: Arc<Service>,
    directory: Arc<Directory>,
    looker: Looker,
    complaints: Complaints,
    /// What was said last of the directory as a whole.
    said: Option<Said>,
    known: HashMap<String, Known>,
    ready: VecDeque<(Name, Option<Asker>)>,
    waiting: BTreeSet<(Instant, String)>,
    /// Their names, and until when they wait.
    waiting_names: HashMap<String, (Name, Instant)>,
    running: JoinSet<(String, Ended)>,
    listening: JoinSet<()>,
}

/// Takes messages until the server stops; those that are being stored then are finished.
pub(crate) async fn run(service: Arc<Service>, directory: Directory) {
    let directory = Arc::new(directory);
    let listener = directory.listener().map_err(|error| {
        let path = directory.path().display();
        let text =
            format!("{path}: no socket: {error}; commands do not hear who is refused, the sender is told by mail");
        service.tell(&Event::ConfigWarning { text: &text });
    });
    let (calls, mut called) = mpsc::channel(ASKERS_MAX);
    let hear = hear_calls(Arc::clone(&service), listener.ok(), calls);
    let take = async {
        let mut pickup = Pickup {
            service: Arc::clone(&service),
            directory,
            looker: Looker::default(),
            complaints: Complaints::default(),
            said: None,
            known: HashMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            waiting_names: HashMap::new(),
            running: JoinSet::new(),
            listening: JoinSet::new(),
        };
        pickup.take(&mut called).await;
    };
    tokio::join!(hear, take);
}

/// Reads who asks for what.
async fn hear_calls(service: Arc<Service>, listener: Option<UnixListener>, calls: mpsc::Sender<(Name, Asker)>) {
    let Some(listener) = listener else { return service.stop.begun().await };
    let mut reading = JoinSet::new();
    loop {
        tokio::select! {
            () = service.stop.begun() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if reading.len() < ASKERS_MAX => {
                    let calls = calls.clone();
                    reading.spawn(async move {
                        if let Some((asker, file)) = Asker::read(stream).await
                            && let Some(name) = Name::read(&file).filter(|name| name.id.is_none())
                        {
                            // With too many waiting this one is not heard.
                            drop(calls.try_send((name, asker)));
                        }
                    });
                }
                Ok(_) => {}
                // Out of descriptors: a moment later there may be one.
                Err(_) => tokio::time::sleep(AGAIN_FIRST).await,
            },
            Some(_) = reading.join_next() => {}
        }
    }
}

impl Pickup {
    async fn take(&mut self, called: &mut mpsc::Receiver<(Name, Asker)>) {
        let service = Arc::clone(&self.service);
        let mut look_at = clock::now();
        while !service.stop.has_begun() {
            if clock::now() >= look_at {
                let begin = clock::now();
                self.look().await;
                let now = clock::now();
                look_at = now + look::pause(now.saturating_duration_since(begin));
                for (reason, messages) in self.complaints.counted(now) {
                    let more = if reason.is_empty() { "for other reasons" } else { reason.as_str() };
                    self.warn(&format!("{messages} more messages are not taken: {more}; they are tried again"));
                }
            }
            self.begin();
            let next = self.waiting.first().map_or(look_at, |(at, _)| look_at.min(*at));
            tokio::select! {
                () = service.stop.begun() => break,
                Some((name, asker)) = called.recv() => {
                    if !self.known.contains_key(&name.base) {
                        self.known.insert(name.base.clone(), Known::default());
                        // Somebody waits: not behind what nobody waits for.
                        self.ready.push_front((name, Some(asker)));
                    } else if let Some((name, at)) = self.waiting_names.remove(&name.base) {
                        // It was seen before its command asked.
                        self.waiting.remove(&(at, name.base.clone()));
                        self.ready.push_front((name, Some(asker)));
                    }
                }
                Some(ended) = self.running.join_next() => self.end(ended),
                Some(_) = self.listening.join_next() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
        // Sessions know of the stop themselves; whatever is left is there at the next start.
        while self.running.join_next().await.is_some() {}
    }

    /// Looks for files that nobody has spoken of.
    async fn look(&mut self) {
        let (directory, mut looker) = (Arc::clone(&self.directory), std::mem::take(&mut self.looker));
        let limits = look::Limits::of(&self.service.live.load().config.submit);
        let looked = blocking::run(move || {
            let found = looker.look(&directory, limits);
            (looker, found)
        });
        let Ok((looker, found)) = looked.await else { return };
        self.looker = looker;
        match found {
            Ok(Some(found)) => self.found(found),
            Ok(None) => {}
            Err(error) => {
                let why = format!("cannot be listed: {error}");
                if self.complaints.is_due(&why, &mut self.said, clock::now()) {
                    self.warn(&format!("{why}; mail that is handed in waits"));
                }
            }
        }
    }

    fn found(&mut self, found: Found) {
        let files = u64::try_from(found.files).unwrap_or(u64::MAX);
        self.service.pickup.files.store(files, Ordering::Relaxed);
        if let Some(why) = found.trouble {
            let why = format!("{FULL} cannot be written: {why}");
            if self.complaints.is_due(&why, &mut self.said, clock::now()) {
                self.warn(&format!("{why}; whoever hands in too much does not hear of it"));
            }
        }
        if let Some(full) = found.full {
            self.tell_full(&full);
        }
        for name in found.names {
            if !self.known.contains_key(&name.base) {
                self.known.insert(name.base.clone(), Known::default());
                match found.fresh.contains(&name.base) {
                    true => self.wait(name, clock::now() + look::FRESH),
                    false => self.ready.push_back((name, None)),
                }
            }
        }
    }

    /// Tries some of those that wait for their time now.
    fn hurry(&mut self) {
        for _ in 0..HURRIED {
            let Some((_, base)) = self.waiting.pop_first() else { return };
            self.ready.extend(self.waiting_names.remove(&base).map(|(name, _)| (name, None)));
        }
    }

    fn wait(&mut self, name: Name, until: Instant) {
        self.waiting.insert((until, name.base.clone()));
        self.waiting_names.insert(name.base.clone(), (name, until));
    }

    /// Says who may hand in no more, when that begins and when others are meant.
    fn tell_full(&mut self, full: &str) {
        let was_full = self.service.pickup.is_full.swap(!full.is_empty(), Ordering::Relaxed);
        let Some((who, count)) = full.lines().next().and_then(|line| line.split_once(' ')) else {
            if was_full {
                self.warn("there is room again, sendmail takes messages from everybody");
            }
            self.said = None;
            return;
        };
        if !self.complaints.is_due(&format!("full {who}"), &mut self.said, clock::now()) {
            return;
        }
        let (what, limit) = match who {
            "all" => (format!("{count} messages wait, of everybody"), "submit.files_max"),
            uid => (format!("{count} messages of user {uid} wait"), "submit.user_files_max"),
        };
        let others = match full.lines().count() {
            1 => String::new(),
            users => format!(" (and those of {} more users)", users - 1),
        };
        self.warn(&format!(
            "{what}{others}: as many as {limit} allows, so sendmail takes no more (status 75); other lines say why they wait"
        ));
    }

    /// Begins with what is ready, as far as there is room.
    fn begin(&mut self) {
        let now = clock::now();
        while self.waiting.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, base)) = self.waiting.pop_first() else { break };
            self.ready.extend(self.waiting_names.remove(&base).map(|(name, _)| (name, None)));
        }
        while self.running.len() < AT_ONCE {
            let Some((name, asker)) = self.ready.pop_front() else { break };
            let (service, directory) = (Arc::clone(&self.service), Arc::clone(&self.directory));
            let known = self.known.get(&name.base);
            let is_again = known.is_some_and(|known| known.tries > 0);
            let told = known.map(|known| known.told.clone()).unwrap_or_default();
            self.running.spawn(async move {
                let base = name.base.clone();
                (base, carry(service, directory, name, asker, is_again, told).await)
            });
        }
    }

    fn end(&mut self, ended: Result<(String, Ended), tokio::task::JoinError>) {
        // A panic was told; its file stays known, and is tried at the next start.
        let Ok((base, ended)) = ended else { return };
        match ended {
            Ended::Gone(told) => {
                if self.known.remove(&base).is_some_and(|known| known.tries > 0) {
                    self.hurry();
                }
                if let Some((asker, watch)) = told.filter(|_| self.listening.len() < ASKERS_MAX) {
                    self.listening.spawn(courier::tell_outcomes(Arc::clone(&self.service), asker, watch));
                }
            }
            Ended::Later(name, why, told) => {
                let now = clock::now();
                let known = self.known.entry(base).or_default();
                let share = AGAIN_SHARE.saturating_mul(u32::try_from(self.waiting.len()).unwrap_or(u32::MAX));
                let pause = AGAIN_FIRST.saturating_mul(1 << known.tries.min(16)).min(AGAIN_MAX).max(share);
                known.tries += 1;
                known.told.extend(told);
                let is_due = self.complaints.is_due(&why, &mut known.said, now);
                if is_due && !self.service.stop.has_begun() {
                    self.warn(&format!("{} is not taken: {why}; it is tried again", name.text()));
                }
                self.wait(name, now + pause);
            }
            Ended::Stuck => {}
        }
    }

    fn warn(&self, what: &str) {
        warn(&self.service, &self.directory, what);
    }
}

fn warn(service: &Service, directory: &Directory, what: &str) {
    let text = format!("{}: {what}", directory.path().display());
    service.tell(&Event::Spool { severity: Severity::Warning, text: &text });
}

/// Brings one file as far as it goes.
async fn carry(
    service: Arc<Service>,
    directory: Arc<Directory>,
    name: Name,
    asker: Option<Asker>,
    is_again: bool,
    told: HashSet<usize>,
) -> Ended {
    // Counted as a session until its file is gone: the end of the server waits for it.
    let _open = Open::new(&service);
    if let (Some(id), Some(spool)) = (name.id, service.spool())
        && !spool.states(id).is_empty()
    {
        // A crash came between the message and the end of its file.
        return remove(&service, &directory, &name, None).await;
    }
    let content_max = service.live.load().config.message.size_max;
    let opened = {
        let (service, directory, name) = (Arc::clone(&service), Arc::clone(&directory), name.clone());
        blocking::run(move || {
            let handed = Handed::open(rustix::fd::AsFd::as_fd(&*directory), &name.text(), content_max)?;
            // An id that was used for an attempt is not used again: the spool may have declared it done.
            let id = match &handed.submission.adopted {
                Some(adopted) => service.keeper.past_id(adopted.arrived.saturating_mul(1_000_000)),
                None => service.keeper.next_id(),
            };
            let tried = Name { base: name.base.clone(), id: Some(id) };
            directory.rename(&name.text(), &tried.text())?;
            Ok::<_, Trouble>((handed, tried, id))
        })
        .await
    };
    let (mut handed, tried, id) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(Trouble::Gone)) => return Ended::Gone(None),
        Ok(Err(Trouble::Bad(why))) => return put_aside(&service, &directory, &name, &why).await,
        Ok(Err(Trouble::Io(error))) => {
            return Ended::Later(name, format!("it cannot be read: {error}"), Vec::new());
        }
        Err(_) => return Ended::Stuck,
    };
    let places = handed.leave_out(&told);
    let handed = Arc::new(handed);
    let asker = asker.filter(|asker| asker.may_hear_of(handed.uid));
    let (user, is_trusted) = who(&service, handed.uid).await;
    let carried = match handed.submission.adopted.clone() {
        Some(adopted) => {
            let (service, handed) = (Arc::clone(&service), Arc::clone(&handed));
            Box::pin(Adoption { service, handed, adopted, id, user }.run()).await
        }
        None => {
            let (service, handed) = (Arc::clone(&service), Arc::clone(&handed));
            Courier { service, handed, id, user, is_trusted, is_again, asker, told: Vec::new() }.run().await
        }
    };
    let (why, mut told) = match carried {
        Carried::Done(told) => return remove(&service, &directory, &tried, told).await,
        Carried::Divide(apart) => {
            let (there, whole) = (Arc::clone(&directory), Arc::clone(&handed));
            match blocking::run(move || whole.divide(there.path(), &apart)).await {
                Ok(Ok(())) => return remove(&service, &directory, &tried, None).await,
                Ok(Err(error)) => (format!("it cannot be divided: {error}"), Vec::new()),
                Err(_) => return Ended::Stuck,
            }
        }
        Carried::Later(why, told) => (why, told),
    };
    let age = Duration::from_secs((clock::unix_us() / 1_000_000).saturating_sub(handed.finished));
    if age > service.live.load().config.delivery.give_up_after {
        let reply = expired(&why);
        let left = (0..places.len()).filter(|position| !told.contains(position));
        let left: Vec<Refused> = left.map(|position| (position, reply.clone())).collect();
        told.extend(report::to_sender(&service, &handed, id, &left).await);
        if told.len() == places.len() {
            return remove(&service, &directory, &tried, None).await;
        }
    }
    let told = told.into_iter().filter_map(|position| places.get(position).copied());
    Ended::Later(tried, why, told.collect())
}

/// What its sender is told of a message that nobody took for days.
fn expired(why: &str) -> Reply {
    let status = EnhancedCode::of(Outcome::Permanent, 4, 7);
    Reply::new(ReplyCode::of(554), Some(status), &format!("Message was not taken in time: {why}"))
}

async fn remove(
    service: &Service,
    directory: &Arc<Directory>,
    name: &Name,
    told: Option<(Asker, crate::outcome::Watch)>,
) -> Ended {
    let (there, text) = (Arc::clone(directory), name.text());
    match blocking::run(move || there.remove(&text)).await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!(
                "{} is stored and cannot be removed: {error}; remove it before the next start, or its mail may go twice",
                name.text()
            );
            warn(service, directory, &what);
            Ended::Stuck
        }
        _ => Ended::Gone(told),
    }
}

async fn put_aside(service: &Service, directory: &Arc<Directory>, name: &Name, why: &str) -> Ended {
    let aside = name.base.replacen(MAIL, "bad.", 1);
    let (there, from, to) = (Arc::clone(directory), name.text(), aside.clone());
    let renamed = blocking::run(move || there.rename(&from, &to)).await;
    let what = match renamed {
        Ok(Ok(())) => format!("{aside} was handed in and is no message: {why}; look at it, and remove it"),
        _ => format!("{} was handed in and is no message: {why}; it cannot be put aside either", name.text()),
    };
    warn(service, directory, &what);
    if matches!(renamed, Ok(Ok(()))) { Ended::Gone(None) } else { Ended::Stuck }
}

/// The name of a user, and whether he may choose his sender without a word.
async fn who(service: &Service, uid: u32) -> (String, bool) {
    let read = blocking::run(crate::env::accounts::Accounts::read).await.ok().and_then(Result::ok);
    let user = read.and_then(|accounts| accounts.user(&uid.to_string()));
    let name = user.map_or_else(|| uid.to_string(), |user| user.name);
    let is_trusted = uid == 0 || service.live.load().config.submit.trusted.contains(&name);
    (name, is_trusted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let base = format!("mail.{}", "0af9".repeat(8));
        let id = QueueId::MIN;
        for name in [Name { base: base.clone(), id: None }, Name { base: base.clone(), id: Some(id) }] {
            assert_eq!(Name::read(&name.text()), Some(name));
        }
        for other in [
            "socket",
            "new.0",
            "mail.",
            "mail.0",
            &base.to_uppercase(),
            &format!("{base}x"),
            &format!("{base}."),
            &format!("{base}.x"),
        ] {
            assert_eq!(Name::read(other), None, "{other}");
        }
        assert_eq!(Name::read(&base.replace('0', "A")), None);
    }
}

//! Mail for people, programs and files of this machine: the last stop of a message here.
//!
//! [`run`] is the life of a connection that leads nowhere else: it takes jobs as one to another host does, and has each recipient
//! delivered by [`deliver`]. What is done to a message is in files by kind; all of it happens on threads that may wait for a
//! disk, or in processes with the rights of one user ([`privileged`]).
//!
//! | File | Holds |
//! |---|---|
//! | [`order`] | what is to be done, what came of it, and the settings |
//! | [`person`] | as whom it is done, and whether it may be |
//! | [`letter`] | the message as a mailbox or a program gets it |
//! | [`file`], [`lock`] | mailbox files and files of aliases |
//! | [`maildir`] | Maildirs |
//! | [`program`], [`command`], [`status`] | programs |
//! | [`agent`] | one delivery, whoever makes it |
//! | [`privileged`], [`stream`] | the process that is root, and what is said to it |
//!
//! Invariant: a recipient is done when his copy is durable, or a program has taken it. A crash before that is recorded repeats that
//! delivery: a Maildir has one copy all the same, a mailbox file has two.

mod agent;
pub(crate) mod command;
mod file;
mod letter;
mod lock;
mod maildir;
mod order;
mod person;
pub mod privileged;
mod program;
mod status;
mod stream;

use super::connect::Trouble;
use super::message::{Content as Stored, Outgoing, Unfit};
use super::{Work, settle};
use crate::config::{Config, Mailbox};
use crate::dispatch::{Post, Way};
use crate::env::{blocking, clock};
use crate::service::Service;
use crate::settle::{Cause, Fate};
use bytes::Bytes;
use letter::Content;
use mail::{Address, EnhancedCode, Outcome, Recipient, Reply, ReplyCode};
use observe::{Event, NextHop, Severity};
use order::{End, Order, Settings, Verdict, What};
use person::Rights;
use privileged::{Handed, Helper};
use route::destination::{Destination, Hosts, NextHost, Protocol, To};
use schedule::{ConnectionId, Feedback, Job, Take};
use spool::Spool;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Semaphore;

/// What local delivery has of its own.
#[derive(Debug)]
pub(crate) struct Office {
    settings: Settings,
    /// The process that has the rights of root; `None`: the server delivers with its own.
    helper: Option<Helper>,
    mailboxes: Semaphore,
    programs: Semaphore,
    files: Semaphore,
}

impl Office {
    /// Without a helper: deliveries are made with the rights of this process.
    pub(crate) fn new(config: &Config) -> Self {
        let most = || Semaphore::new(usize::try_from(config.local.deliveries_max).unwrap_or(1));
        let (mailboxes, programs, files) = (most(), most(), most());
        Self { settings: Settings::new(config), helper: None, mailboxes, programs, files }
    }

    /// With a helper, which is started now. For a process that is root and has one thread.
    ///
    /// # Errors
    /// The system refuses a process.
    pub(crate) fn as_root(config: &Config) -> std::io::Result<Self> {
        let office = Self::new(config);
        Ok(Self { helper: Some(Helper::start(&office.settings)?), ..office })
    }

    /// Has an order carried out. For a thread that may wait.
    fn carry_out(&self, order: &Order, content: &mut dyn Content) -> Handed {
        match &self.helper {
            Some(helper) => helper.deliver(order, content, self.settings.time_max()),
            None => {
                let rights = Rights::Own(rustix::process::geteuid().as_raw());
                Handed::Verdict(agent::carry_out(order, &self.settings, rights, content))
            }
        }
    }
}

/// What the mail of a queue has done to it here; `None` if it goes elsewhere.
pub(crate) fn what(config: &Config, destination: &[u8]) -> Option<To> {
    // Looked at for each connection and each destination: most are domains.
    if ![b"local:".as_slice(), b"prog:", b"file:"].iter().any(|begin| destination.starts_with(begin)) {
        return None;
    }
    match Destination::parse(destination).ok()?.to {
        To::Local if is_with_server(config) => None,
        to @ (To::Local | To::Program { .. } | To::File { .. }) => Some(to),
        To::Domain(_) | To::Literal(_) | To::Hosts(_) | To::Error { .. } => None,
    }
}

/// Whether mailboxes are with a server that takes LMTP.
const fn is_with_server(config: &Config) -> bool {
    matches!(config.local.mailbox, Mailbox::LmtpSocket(_) | Mailbox::LmtpHost(_))
}

/// The server that has the mailboxes, if one has.
pub(crate) fn server(config: &Config) -> Option<Hosts> {
    let host = match &config.local.mailbox {
        Mailbox::LmtpSocket(path) => NextHost::Unix(path.to_string_lossy().into()),
        Mailbox::LmtpHost(host) => crate::resolve::next_host(host),
        _ => return None,
    };
    Some(Hosts { protocol: Protocol::Lmtp, groups: vec![vec![host]] })
}

/// How many deliveries a queue may have at once: files of aliases wait for each other anyway.
pub(crate) const fn connections(config: &Config, to: &To) -> u32 {
    match to {
        To::File { .. } => 1,
        _ => config.local.deliveries_max,
    }
}

/// Delivers what waits for a queue until there is no work.
///
/// # Cancel safety
/// No: what was delivered may not be recorded. The server's end waits for it.
pub(super) async fn run(mut work: Work<'_>, to: To, way: &Way, post: &Post) {
    let (service, dispatch, connection) = (work.service, work.dispatch, work.connection);
    dispatch.reached(service, way, connection);
    while !service.stop.has_begun() && !post.is_called_off.load(Ordering::Acquire) {
        match dispatch.take(connection) {
            Take::Job(job) => {
                Box::pin(one(&mut work, &to, &job)).await;
                work.flush();
            }
            Take::Close => break,
            Take::Idle => {
                let idle_time = service.live.load().config.delivery.idle_time;
                tokio::select! {
                    () = post.bell.notified() => {}
                    () = service.stop.begun() => {}
                    () = tokio::time::sleep(idle_time) => break,
                }
            }
        }
    }
    drop(dispatch.closed(ConnectionId::clone(&connection)));
}

/// Carries out a job.
async fn one(work: &mut Work<'_>, to: &To, job: &Job) {
    let mut outgoing = match Outgoing::load(work.dispatch, job.message, &job.recipients).await {
        Ok(outgoing) => outgoing,
        Err(Unfit::Nothing) => return work.records.push((job.clone(), Feedback::Neutral, None)),
        Err(Unfit::Unreadable(why)) => return work.put_aside(job, &why),
    };
    let now = work.service.unix_now();
    if let Some(cause) = settle::deadline::too_late(&outgoing.envelope, now) {
        return work.fail(job, &Trouble { text: cause.text, ..Trouble::deferral((4, 7), String::new()) }).await;
    }
    let began = clock::now();
    let what = what_of(to);
    let fates = deliver(work.service, &what, &mut outgoing).await;
    let xdelay = clock::now().saturating_duration_since(began);
    let feedback = match fates.iter().any(|fate| matches!(fate, Fate::Delivered(_))) {
        true => Feedback::Good,
        false => Feedback::Neutral,
    };
    let name = what.name();
    let attempt = settle::Attempt {
        is_final: true,
        name: name.as_deref(),
        owner: what.user().and_then(|user| work.service.routing.load().user(user)),
        ..outgoing.attempt(NextHop::None, what.mailer(), xdelay, false)
    };
    Box::pin(work.settle(job, &attempt, fates, feedback)).await;
}

fn what_of(to: &To) -> What {
    match to {
        To::Program { user, command } => What::Program { user: user.to_string(), command: command.to_string() },
        To::File { user, path } => What::File { user: user.to_string(), path: path.to_string() },
        To::Local | To::Domain(_) | To::Literal(_) | To::Hosts(_) | To::Error { .. } => What::Mailbox,
    }
}

/// Delivers a message to each of its recipients, one after the other. Says what became of each.
///
/// # Cancel safety
/// No: what was begun is finished, and nobody hears of it.
pub(crate) async fn deliver(service: &Arc<Service>, what: &What, outgoing: &mut Outgoing) -> Vec<Fate> {
    let mut fates = Vec::with_capacity(outgoing.positions.len());
    for (recipient, (position, _)) in outgoing.envelope.recipients.iter().zip(&outgoing.positions) {
        let order = order_of(service, what, outgoing, recipient, *position);
        let mut content = Source::of(service, outgoing);
        let office = &service.office;
        let turn = match what {
            What::Mailbox => &office.mailboxes,
            What::Program { .. } => &office.programs,
            What::File { .. } => &office.files,
        };
        // Closed never.
        let _permit = turn.acquire().await;
        let worker = Arc::clone(service);
        let handed = blocking::run(move || worker.office.carry_out(&order, &mut content)).await;
        let verdict = match handed {
            Ok(Handed::Verdict(verdict)) => verdict,
            Ok(Handed::Gone(verdict)) => {
                service.tell(&Event::Spool { severity: Severity::Critical, text: &verdict.text });
                verdict
            }
            Err(_) => Verdict::deferred((3, 0), "the delivering thread broke off"),
        };
        fates.push(fate(verdict));
    }
    fates
}

fn order_of(service: &Service, what: &What, outgoing: &Outgoing, recipient: &Recipient, position: u32) -> Order {
    let envelope = &outgoing.envelope;
    let address = &recipient.address;
    let at_us = clock::unix_us();
    let sender = envelope.sender.address().map(Address::to_string).unwrap_or_default();
    Order {
        what: what.clone(),
        unique: format!("{}R{position}", envelope.id),
        received: envelope.received.at_us / 1_000_000,
        host: service.live.load().config.hostname.clone(),
        sender,
        recipient: address.to_string(),
        local: address.local_part().as_str().to_owned(),
        domain: address.domain().to_string(),
        original: recipient.params.orcpt.as_ref().map(ToString::to_string).unwrap_or_default(),
        date: mail::report::date_of_mbox(at_us, clock::local_offset_seconds(at_us)),
    }
}

fn fate(verdict: Verdict) -> Fate {
    let Verdict { end, status: (subject, detail), text } = verdict;
    match end {
        End::Delivered => {
            let code = ReplyCode::new(250).expect("250 is a code");
            Fate::Delivered(Reply::new(code, Some(EnhancedCode::of(Outcome::Success, 0, 0)), ""))
        }
        End::Deferred => Fate::Deferred(Cause::new(EnhancedCode::of(Outcome::Transient, subject, detail), text, None)),
        End::Failed => Fate::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, subject, detail), text, None)),
    }
}

/// The content of a message, for a thread that may wait.
enum Source {
    Here(VecDeque<Bytes>),
    Stored { spool: Arc<Spool>, id: mail::QueueId, read: u64, end: u64 },
}

/// How much of a stored content is read at once.
const PIECE_BYTES: u64 = 256 << 10;

impl Source {
    fn of(service: &Service, outgoing: &Outgoing) -> Self {
        match (&outgoing.content, service.spool()) {
            (Stored::Here(pieces), _) => Self::Here(pieces.iter().filter(|piece| !piece.is_empty()).cloned().collect()),
            (Stored::Stored { .. }, Some(spool)) => Self::Stored {
                spool: Arc::clone(spool),
                id: outgoing.envelope.id,
                read: 0,
                end: outgoing.content_bytes,
            },
            (Stored::Stored { .. }, None) => Self::Here(VecDeque::new()),
        }
    }
}

impl Content for Source {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        use spool::Store as _;
        match self {
            Self::Here(pieces) => Ok(pieces.pop_front()),
            Self::Stored { read, end, .. } if *read >= *end => Ok(None),
            Self::Stored { spool, id, read, end } => {
                let until = (*read + PIECE_BYTES).min(*end);
                let piece = spool.body_range(*id, *read..until).map_err(|error| error.to_string())?;
                if piece.is_empty() {
                    return Err(format!("its content ends at octet {read} of {end}"));
                }
                *read += piece.len() as u64;
                Ok(Some(piece))
            }
        }
    }
}

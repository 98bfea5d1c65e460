//! The spool as a node of the cluster uses it.

use super::adopted_log::{AdoptedEntry, AdoptedLog, Step};
use super::reports;
use super::stream_names::StreamNames;
use crate::cluster::{AdoptedNames, ClusterMember, CopyEnvelope, EngineSettings, LocalMail, MemberStart};
use crate::context::Context;
use crate::dispatch::{Dispatch, exchange_host_reports, keep_shares};
use bytes::Bytes;
use cluster::{Accepted, Completion, Content, LocalMessage, NewMessage, Report, Settings, StreamId};
use mail::QueueId;
use observe::{Event, Severity};
use os::{blocking, clock};
use spool::{Change, Chunk, Error, NewBody, Spool, State, Status, Store as _};
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Content in one frame, at most; the body of larger content goes in chunks.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// Octets of a chunk.
const CHUNK_BYTES: usize = 60 << 10;
/// Time until the scheduler looks at an adopted message: the record of the adoption is stored by then.
const LOOK_AFTER: Duration = Duration::from_millis(300);

/// The spool, and the names of adopted mail.
pub(crate) struct SpoolMail {
    context: Arc<Context>,
    dispatch: Arc<Dispatch>,
    spool: Arc<Spool>,
    names: Arc<AdoptedNames>,
    adopted: AdoptedLog,
    streams: StreamNames,
    /// Messages that leave the spool without an end: the cluster is told nothing of their recipients.
    leaving: Mutex<HashSet<QueueId>>,
}

impl fmt::Debug for SpoolMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolMail").finish_non_exhaustive()
    }
}

/// Starts the node of this server with the mail of its spool, and has new messages copied by it.
///
/// # Errors
/// A file beside the spool cannot be read or written.
/// # Cancel safety
/// No.
pub(crate) async fn begin(
    context: &Arc<Context>,
    dispatch: &Arc<Dispatch>,
    (engine, settings, name): (EngineSettings, Settings, String),
) -> Result<(), String> {
    let spool = Arc::clone(&dispatch.spool);
    let directory = context.live.load().config.spool.path.clone();
    let node = settings.node;
    let mail = SpoolMail::open(context, dispatch, &directory)?;
    if let Some(other) = mail.streams.streams().iter().find(|stream| stream.owner != node) {
        return Err(format!(
            "cluster.node = {}: the spool {} is that of {}, by its file cluster.streams; give the node its number back",
            node.0,
            directory.display(),
            other.owner
        ));
    }
    let start = MemberStart {
        settings,
        name,
        mail: mail.live(node),
        streams: mail.streams.streams(),
        names: Arc::clone(&mail.names),
    };
    let mail = Arc::new(mail);
    let member = ClusterMember::start(engine, start, Arc::clone(&mail)).await;
    let told = (member.clone(), Arc::downgrade(&mail));
    spool.observe_done(Box::new(move |done| {
        if let Some(mail) = told.1.upgrade() {
            mail.tell_done(&told.0, done);
        }
    }));
    let told = member.clone();
    spool.observe_holds(Box::new(move |messages, is_held| told.held_in_log(messages, is_held)));
    let config = context.live.load().config.cluster.clone();
    if config.host_status {
        let outbox = dispatch.begin_host_reports(node, &config.engines);
        tokio::spawn(exchange_host_reports(Arc::downgrade(dispatch), member.host_messages(), outbox));
    }
    context.message_store.copy_by(member);
    tokio::spawn(keep_shares(Arc::downgrade(dispatch)));
    Ok(())
}

impl SpoolMail {
    fn open(context: &Arc<Context>, dispatch: &Arc<Dispatch>, directory: &Path) -> Result<Self, String> {
        let spool = Arc::clone(&dispatch.spool);
        let now_us = clock::unix_us();
        let is_live = |local| spool.progress(local).is_some();
        let adopted = AdoptedLog::open(directory, now_us, is_live).map_err(|error| {
            format!("{}/cluster.adopted: {error}; mail of other nodes is known by it", directory.display())
        })?;
        let names = Arc::<AdoptedNames>::default();
        for entry in adopted.all() {
            if entry.step == Step::Taken && is_live(entry.local) {
                names.add(entry.cluster, entry.local);
            }
        }
        let streams = StreamNames::open(directory)?;
        let (context, dispatch) = (Arc::clone(context), Arc::clone(dispatch));
        Ok(Self { context, dispatch, spool, names, adopted, streams, leaving: Mutex::default() })
    }

    /// All live mail of the spool, by its names in the cluster; without mail from before this machine joined.
    fn live(&self, node: cluster::NodeId) -> Vec<LocalMessage> {
        let number = mail::Node::new(node.0).unwrap_or_default();
        let message = |local: QueueId| {
            // Two machines may have given one id each before they joined.
            if !local.node().is_of(number) && !self.names.has_local(local) {
                return None;
            }
            let (recipients, finished) = self.spool.progress(local)?;
            let id = self.names.in_cluster(local);
            let hops = self.adopted.get(id).filter(|entry| entry.step == Step::Taken).map_or(0, |entry| entry.hops);
            Some(LocalMessage { id, hops, recipients, finished })
        };
        self.spool.messages().into_iter().filter_map(message).collect()
    }

    fn leaving(&self) -> MutexGuard<'_, HashSet<QueueId>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn local_of(&self, id: QueueId) -> QueueId {
        self.names.adopted(id).unwrap_or(id)
    }

    /// Recipients are done in the spool.
    fn tell_done(&self, member: &ClusterMember, done: &[(QueueId, u32)]) {
        let told: Vec<_> = {
            let leaving = self.leaving();
            done.iter().filter(|(local, _)| !leaving.contains(local)).copied().collect()
        };
        member.done_in_log(&told);
        for (local, _) in told {
            if self.names.in_cluster(local) != local && self.spool.progress(local).is_none() {
                self.names.remove_local(local);
            }
        }
    }

    fn problem(&self, severity: Severity, text: &str) {
        self.context.record(&Event::Cluster { severity, text });
    }

    /// Ends all recipients of messages without delivery or report. Durable on return of true.
    async fn drop_silently(&self, locals: &[QueueId]) -> bool {
        self.leaving().extend(locals);
        let mut changes = Vec::new();
        for local in locals {
            for (entry, _) in self.spool.states(*local) {
                changes.push(done(*local, entry.recipient, entry.state));
            }
        }
        let recorded = match self.spool.record(&changes) {
            Ok(commit) => commit.await,
            Err(error) => Err(error),
        };
        let mut leaving = self.leaving();
        for local in locals {
            leaving.remove(local);
            self.names.remove_local(*local);
        }
        drop(leaving);
        recorded.inspect_err(|error| self.problem(Severity::Error, &error.to_string())).is_ok()
    }

    /// Appends a message of another node under its name here; false if none of its recipients is left.
    async fn append(&self, local: QueueId, message: &Accepted, content: Bytes, envelope: &[u8]) -> Result<bool, Error> {
        let offset = envelope.first_chunk::<4>().map_or(0, |octets| u32::from_le_bytes(*octets));
        let body = if content.len() <= INLINE_BYTES_MAX {
            NewBody::whole(content, offset)
        } else {
            let header = content.slice(..content.len().min(offset as usize));
            let body = content.slice(header.len()..);
            let mut count = 0;
            for piece in body.chunks(CHUNK_BYTES) {
                let mut chunk = Chunk::new(CHUNK_BYTES);
                chunk.push(piece);
                self.spool.append_chunk_of(local, local, count, chunk)?.await?;
                count += 1;
            }
            NewBody::Chunks { header, count, bytes: body.len() as u64 }
        };
        loop {
            match self.spool.append_copy(local, envelope, &message.finished, body.clone()) {
                Ok(Some(commit)) => return commit.await.map(|()| true),
                Ok(None) => return Ok(false),
                Err(Error::Busy) => self.spool.room(local).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Has the scheduler look at an adopted message when it may be delivered.
    fn look_soon(&self, local: QueueId) {
        let dispatch = Arc::clone(&self.dispatch);
        drop(tokio::spawn(async move {
            tokio::time::sleep(LOOK_AFTER).await;
            dispatch.look_at(local);
        }));
    }
}

impl LocalMail for SpoolMail {
    async fn keep_stream(&self, stream: StreamId) -> bool {
        // A short file, once for each holder.
        let kept = self.streams.keep(stream);
        kept.inspect_err(|error| {
            let text =
                format!("cluster.streams cannot be replaced: {error}; no copies go to {} until it can", stream.holder);
            self.problem(Severity::Error, &text);
        })
        .is_ok()
    }

    async fn read(&self, id: QueueId) -> Option<NewMessage> {
        let (spool, local) = (Arc::clone(&self.spool), self.local_of(id));
        let copy = match blocking::run(move || spool.copy(local)).await.ok()? {
            Ok(copy) => copy,
            Err(Error::Unknown(_)) => return None,
            Err(error) => {
                self.problem(Severity::Error, &format!("{error}; no copy of it is made"));
                return None;
            }
        };
        let envelope = CopyEnvelope { section: copy.envelope, header: Bytes::new() };
        let content = match copy.content.as_slice() {
            [only] => only.clone(),
            pieces => pieces.concat().into(),
        };
        Some(NewMessage {
            id,
            queued_at_us: id.unix_us(),
            expires_at_us: 0,
            recipients: copy.recipients,
            envelope: envelope.encode(),
            content: Content::Whole(content),
        })
    }

    async fn store(&self, message: Accepted, body: Bytes) -> Option<bool> {
        let id = message.id;
        let known = self.adopted.get(id);
        if known.is_some_and(|known| known.hops >= message.hops) {
            return Some(false);
        }
        let envelope = match CopyEnvelope::decode(&message.envelope) {
            Ok(envelope) => envelope,
            Err(why) => {
                let text = format!(
                    "{id} of node {} cannot be adopted: {why}; it stays in its stream: upgrade this node",
                    id.node().get()
                );
                self.problem(Severity::Error, &text);
                return None;
            }
        };
        let local = self.context.message_store.past_id(id.unix_us());
        let entry =
            AdoptedEntry { cluster: id, local, hops: message.hops, step: Step::Taking, at_us: clock::unix_us() };
        if !self.adopted.add(&[entry]).await {
            self.problem(Severity::Error, "cluster.adopted cannot be written; no mail is adopted until the next start");
            return None;
        }
        let old = known.map_or(id, |known| known.local);
        if self.spool.progress(old).is_some() && !self.drop_silently(&[old]).await {
            return None;
        }
        let content = if envelope.header.is_empty() { body } else { [envelope.header, body].concat().into() };
        match self.append(local, &message, content, &envelope.section).await {
            Ok(true) => {}
            Ok(false) => return Some(false),
            Err(error) => {
                self.spool.abort(local);
                self.problem(Severity::Error, &format!("{id} cannot be adopted now: {error}"));
                return None;
            }
        }
        if !self.adopted.add(&[AdoptedEntry { step: Step::Taken, ..entry }]).await {
            self.problem(Severity::Error, "cluster.adopted cannot be written; no mail is adopted until the next start");
            return None;
        }
        self.names.add(id, local);
        self.names.count_adopted();
        self.context.record(&Event::Adopted { id: local, was: id, may_be_duplicate: message.may_be_duplicate });
        self.look_soon(local);
        Some(true)
    }

    fn complete(&self, completions: Vec<Completion>) {
        let mut changes = Vec::new();
        for one in completions {
            let local = self.local_of(one.id);
            let is_meant = |position| one.recipient.is_none_or(|at| at == position);
            for (entry, _) in self.spool.states(local) {
                if is_meant(entry.recipient) {
                    changes.push(done(local, entry.recipient, entry.state));
                }
            }
        }
        if let Err(error) = self.spool.record(&changes) {
            self.problem(Severity::Critical, &format!("outcomes that a copy has cannot be recorded: {error}"));
        }
    }

    async fn forget(&self, messages: Vec<(QueueId, u16)>) -> bool {
        let mut locals = Vec::new();
        let mut entries = Vec::new();
        for (id, hops) in messages {
            let known = self.adopted.get(id);
            if known.is_some_and(|known| known.hops > hops) {
                continue;
            }
            let local = known.map_or(id, |known| known.local);
            if self.spool.progress(local).is_some() {
                self.problem(Severity::Info, &format!("{local}: another node has taken it over and delivers it"));
                locals.push(local);
            }
            entries.push(AdoptedEntry { cluster: id, local, hops, step: Step::GivenUp, at_us: clock::unix_us() });
        }
        self.names.count_given_up(locals.len());
        self.adopted.add(&entries).await && self.drop_silently(&locals).await
    }

    fn report(&self, report: Report) {
        if let Some((severity, text)) = reports::text(&report) {
            self.problem(severity, &text);
        }
    }

    fn engine_problem(&self, problem: Option<&str>) {
        match problem {
            Some(text) => self.problem(Severity::Warning, text),
            None => self.problem(Severity::Info, "the engine is in use"),
        }
    }
}

fn done(id: QueueId, recipient: u32, state: State) -> Change {
    Change { id, recipient, state: State { status: Status::Done, ..state }, destination: None }
}

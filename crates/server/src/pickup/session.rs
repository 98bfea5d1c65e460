//! Stores one message from the pickup directory through a session of its own: the same machine, the same admission
//! and the same commit as for any client, with the user who wrote the file as the process at the other end.
//!
//! Mail is safe by this order: refused recipients are reported, durably or to a command that confirms it, before the
//! others are stored; and the message is in the spool before the file is removed. A recipient that is reported is
//! left out when the others are tried again; only this process knows that, so a crash, or a stop before the others
//! are accepted, repeats at most the reports on this message.

use super::file::{Refused, SubmittedFile};
use super::report;
use super::user::User;
use super::waiter::SubmitWaiter;
use crate::config::smtp_settings;
use crate::context::Context;
use crate::inbound::Inbound;
use crate::listener_profile::ListenerProfile;
use crate::session::process_listen;
use crate::session::{Connection, Opening};
use crate::transport::Transport;
use mail::{Client, QueueId, Recipient, Reply, ReplyClass, ReplyCode};
use operator::delivery_watch::DeliveryWatch;
use os::{blocking, clock};
use smtp::server::{Dialect, Session};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Octets of commands that are sent before their replies are read.
const BURST_BYTES: usize = 32 << 10;
/// The longest reply that our own session gives.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// Result of a session.
#[derive(Debug)]
pub(super) enum PickupResult {
    /// The message is in the spool, or all recipients were refused and reported: the file may go. A command may still
    /// wait for the results of delivery.
    Done(Option<(SubmitWaiter, DeliveryWatch)>),
    /// It could not be accepted now, and the file stays. The reason, and the recipients that were reported all the
    /// same: they are done.
    Later(String, Vec<usize>),
    /// These recipients do not fit into one transaction with the others: they become a message of their own.
    Divide(HashSet<usize>),
}

/// One message that is being stored.
pub(super) struct PickupSession {
    pub(super) inbound: Arc<Inbound>,
    pub(super) handed: Arc<SubmittedFile>,
    /// The queue id that it gets in the spool.
    pub(super) id: QueueId,
    /// The user that wrote it.
    pub(super) user: User,
    /// It was tried before.
    pub(super) is_again: bool,
    /// The command that waits for the results of delivery.
    pub(super) waiter: Option<SubmitWaiter>,
    /// Recipients that were reported in this session.
    pub(super) told: Vec<usize>,
}

/// End of the dialog.
enum SessionResult {
    Taken,
    Divide(HashSet<usize>),
    Refused(Vec<Refused>),
    Later(String),
}

impl PickupSession {
    /// Runs the session.
    ///
    /// # Cancel safety
    /// Yes: completed steps stay; the next attempt sees whether the message is in the spool.
    pub(super) async fn run(mut self) -> PickupResult {
        let (ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return PickupResult::Later(format!("no session: {error}"), Vec::new()),
        };
        let session = self.session();
        let watch = self
            .waiter
            .as_ref()
            .filter(|waiter| waiter.waits_for_delivery())
            .map(|_| self.inbound.context.delivery_watchers.watch(self.id));
        let (said, ()) = tokio::join!(self.talk(BufReader::new(ours)), session.run(Transport::Local(theirs)));
        let carried = self.end(said, watch).await;
        if let (PickupResult::Later(why, _), Some(waiter)) = (&carried, &mut self.waiter) {
            waiter.later(why).await;
        }
        carried
    }

    /// Carries out the end of the dialog: reports to the command or by DSN.
    async fn end(&mut self, said: io::Result<SessionResult>, watch: Option<DeliveryWatch>) -> PickupResult {
        match said {
            Ok(SessionResult::Taken) => {
                let told = match self.waiter.take() {
                    Some(mut waiter) => waiter.taken(self.id).await.then_some(waiter),
                    None => None,
                };
                PickupResult::Done(told.zip(watch))
            }
            Ok(SessionResult::Refused(refused)) => match self.report_refused(&refused).await {
                true => PickupResult::Done(None),
                false => self.later("its sender could not be told that it is refused".to_owned()),
            },
            Ok(SessionResult::Later(why)) => self.later(why),
            Ok(SessionResult::Divide(apart)) => PickupResult::Divide(apart),
            Err(error) => self.later(error.to_string()),
        }
    }

    fn later(&mut self, why: String) -> PickupResult {
        PickupResult::Later(why, std::mem::take(&mut self.told))
    }

    fn session(&self) -> Connection {
        let config = &self.inbound.context.live.load().config;
        let mut listen = process_listen();
        listen.filters.clone_from(&config.submit.filters);
        let terms = &self.handed.submission.terms;
        if !terms.tag.is_empty() {
            listen.name.clone_from(&terms.tag);
        }
        let mut settings = smtp_settings(config, &listen);
        settings.dialect = Dialect::Stdin;
        settings.auth.mechanisms.clear();
        let limits = &mut settings.limits;
        limits.content_piece_bytes = crate::intake::PIECE_BYTES;
        // One file is one message, however many recipients it has, and its writer does not guess addresses.
        (limits.recipients, limits.refused_recipients, limits.errors) = (u32::MAX, u32::MAX, u32::MAX);
        limits.rate_bytes = 0;
        let lane = Arc::new(ListenerProfile {
            listen,
            settings: Arc::new(settings),
            tls: None,
            handshake_time: Duration::ZERO,
        });
        let session = Session::new(Arc::clone(&lane.settings), Client::Process { uid: self.handed.uid }, None);
        let opening = Opening::process(&self.user.name);
        let queue_time = terms.queue.then_some(config.submit.queue_time);
        Connection::new(Arc::clone(&self.inbound), lane, session, opening, clock::now())
            .with_id(self.id)
            .queued_for(queue_time)
            .again(self.is_again)
    }

    /// Plays the client's side of the session.
    async fn talk(&mut self, stream: BufReader<UnixStream>) -> io::Result<SessionResult> {
        let mut peer = CommandPeer { stream };
        let said = self.converse(&mut peer).await?;
        // The result counts, whether or not QUIT is answered.
        if peer.send(b"QUIT\r\n").await.is_ok() {
            drop(peer.reply().await);
        }
        Ok(said)
    }

    async fn converse(&mut self, peer: &mut CommandPeer) -> io::Result<SessionResult> {
        let greeting = peer.reply().await?;
        if let Some(said) = self.refused_all(&greeting) {
            return Ok(said);
        }
        let submission = &self.handed.submission;
        let params = submission.params.to_string();
        let gap = if params.is_empty() { "" } else { " " };
        peer.send(format!("MAIL FROM:{}{gap}{params}\r\n", submission.sender).as_bytes()).await?;
        let reply = peer.reply().await?;
        if let Some(said) = self.refused_all(&reply) {
            return Ok(said);
        }
        let (refused, apart) = match self.name_recipients(peer).await? {
            Ok(named) => named,
            Err(why) => return Ok(SessionResult::Later(why)),
        };
        let others = self.handed.submission.recipients.len() - apart.len();
        match (apart.is_empty(), others) {
            (true, _) => {}
            (false, 0) => return Ok(SessionResult::Later("452 4.5.3 Too many recipients".to_owned())),
            (false, _) => return Ok(SessionResult::Divide(apart)),
        }
        if refused.len() == self.handed.submission.recipients.len() {
            return Ok(SessionResult::Refused(refused));
        }
        if !refused.is_empty() && !self.report_refused(&refused).await {
            return Ok(SessionResult::Later("its sender could not be told who is refused".to_owned()));
        }
        peer.send(b"DATA\r\n").await?;
        let reply = peer.reply().await?;
        if reply.code().class() != ReplyClass::Intermediate {
            return Ok(self.refused_rest(&reply, &refused));
        }
        self.send_content(peer).await?;
        let reply = peer.reply().await?;
        match reply.code().class() {
            ReplyClass::Success => Ok(SessionResult::Taken),
            _ => Ok(self.refused_rest(&reply, &refused)),
        }
    }

    /// Sends the recipients. Returns the refused ones, and those without room in this transaction; or why to try
    /// later.
    async fn name_recipients(
        &self,
        peer: &mut CommandPeer,
    ) -> io::Result<Result<(Vec<Refused>, HashSet<usize>), String>> {
        let recipients = &self.handed.submission.recipients;
        let (mut refused, mut apart) = (Vec::new(), HashSet::new());
        let mut rest = recipients.iter().enumerate().peekable();
        while rest.peek().is_some() {
            let (mut burst, mut sent) = (Vec::new(), Vec::new());
            while let Some((position, Recipient { address, params })) = rest.next_if(|_| burst.len() < BURST_BYTES) {
                let params = params.to_string();
                let gap = if params.is_empty() { "" } else { " " };
                burst.extend_from_slice(format!("RCPT TO:<{address}>{gap}{params}\r\n").as_bytes());
                sent.push(position);
            }
            peer.send(&burst).await?;
            for position in sent {
                let reply = peer.reply().await?;
                match reply.code().class() {
                    ReplyClass::Success => {}
                    ReplyClass::Permanent => refused.push((position, reply)),
                    // RFC 5321 §4.5.3.1.10: the others go in another transaction
                    _ if is_full(&reply) => {
                        apart.insert(position);
                    }
                    _ => return Ok(Err(reply.to_string())),
                }
            }
        }
        Ok(Ok((refused, apart)))
    }

    async fn send_content(&self, peer: &mut CommandPeer) -> io::Result<()> {
        // By the server's own knowledge of the user, not by the sender in the file.
        if !self.user.may_send {
            let host = self.inbound.context.live.load().config.hostname.clone();
            let sender = self.handed.submission.sender.to_string();
            peer.send(&mail::submission::warning(&host, &self.user.name, &sender)).await?;
        }
        let mut same = self.handed.again();
        let (mut at, mut is_line_start) = (0, true);
        while at < self.handed.content_bytes {
            let handed = Arc::clone(&self.handed);
            let piece = blocking::run(move || handed.piece(at)).await.map_err(io::Error::other)??;
            at += piece.len() as u64;
            same.take(&piece)?;
            peer.send(&stuffed(&piece, &mut is_line_start)).await?;
        }
        // Without the last dot nothing is stored.
        same.finish()?;
        peer.send(b".\r\n").await
    }

    fn refused_all(&self, reply: &Reply) -> Option<SessionResult> {
        match reply.code().class() {
            ReplyClass::Success => None,
            _ => Some(self.refused_rest(reply, &[])),
        }
    }

    /// Applies a refusal of the whole message to the recipients that were not refused before.
    fn refused_rest(&self, reply: &Reply, before: &[Refused]) -> SessionResult {
        if reply.code().class() != ReplyClass::Permanent {
            return SessionResult::Later(reply.to_string());
        }
        let told: HashSet<usize> = before.iter().map(|(position, _)| *position).collect();
        let all = 0..self.handed.submission.recipients.len();
        SessionResult::Refused(
            all.filter(|position| !told.contains(position)).map(|position| (position, reply.clone())).collect(),
        )
    }

    /// Reports refused recipients: to the command that waits and confirms that its caller has seen them, or else to
    /// the sender by mail. Returns whether all of them are reported.
    async fn report_refused(&mut self, refused: &[Refused]) -> bool {
        if let Some(waiter) = &mut self.waiter
            && waiter.refused(&self.handed.submission, refused).await
        {
            self.told.extend(refused.iter().map(|(position, _)| position));
            return true;
        }
        let told = report::report_refused(&self.inbound, &self.handed, self.id, refused).await;
        let is_all = told.len() == refused.len();
        self.told.extend(told);
        is_all
    }
}

/// Sends the results of recipients, while the command is connected.
///
/// # Cancel safety
/// Yes.
pub(super) async fn send_outcomes(context: Arc<Context>, mut waiter: SubmitWaiter, mut watch: DeliveryWatch) {
    loop {
        tokio::select! {
            () = context.stop.begun() => return,
            () = waiter.is_gone() => return,
            outcome = watch.next_result() => {
                let Some(outcome) = outcome else { return };
                if !waiter.outcome(&outcome).await {
                    return;
                }
            }
        }
    }
}

/// `452 4.5.3`: too many recipients, or lists, for one transaction.
fn is_full(reply: &Reply) -> bool {
    let code = reply.status().map(|code| (code.subject(), code.detail()));
    reply.code() == ReplyCode::of(452) && code == Some((5, 3))
}

struct CommandPeer {
    stream: BufReader<UnixStream>,
}

impl CommandPeer {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes).await
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        let mut lines = Vec::new();
        loop {
            let start = lines.len();
            if self.stream.read_until(b'\n', &mut lines).await? == 0 {
                return Err(io::Error::other("the session ended"));
            }
            if lines.get(start + 3) != Some(&b'-') || lines.len() > REPLY_BYTES_MAX {
                return Reply::parse(&lines, REPLY_BYTES_MAX).map_err(io::Error::other);
            }
        }
    }
}

/// Returns a piece of content with a second dot before those at the beginning of a line.
// RFC 5321 §4.5.2
fn stuffed(piece: &[u8], is_line_start: &mut bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len() + 16);
    for line in piece.split_inclusive(|byte| *byte == b'\n') {
        if *is_line_start && line.starts_with(b".") {
            out.push(b'.');
        }
        out.extend_from_slice(line);
        *is_line_start = line.ends_with(b"\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_doubled_wherever_pieces_are_cut() {
        let content = b".\r\na.b\r\n..\r\n.";
        for cut in 0..content.len() {
            let mut is_line_start = true;
            let mut out = stuffed(&content[..cut], &mut is_line_start);
            out.extend(stuffed(&content[cut..], &mut is_line_start));
            assert_eq!(out, b"..\r\na.b\r\n...\r\n..", "{cut}");
        }
    }
}

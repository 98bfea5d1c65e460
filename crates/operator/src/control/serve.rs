//! The connections of the control socket, each a task, all joined before [`serve`] returns.
//!
//! Limits: [`CONNECTIONS_MAX`] connections and [`RESERVED`] more for root and the server's own user, [`GUESTS_MAX`] for
//! others, of which one user has at most [`GUEST_CONNECTIONS_MAX`] (refused: reason `busy`), [`super::LINE_BYTES_MAX`]
//! octets in a request (reason `request`, connection closed), [`LINE_TIME_MAX`] for a request to arrive and for each
//! line of an answer to be taken (connection closed). How long the server may think is the handler's matter.

use super::peer::{Gate, Peer, Rights};
use super::request::{LINE_BYTES_MAX, Request};
use super::socket::ControlSocket;
use crate::answers::reply::{self, Answer, ListPart, Reason};
use crate::requester::Requester;
use crate::user_share::{UserPlace, UserShares};
use os::accounts::Accounts;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections at the same time. A session that was taken over counts no more.
pub const CONNECTIONS_MAX: usize = 32;
/// Connections beyond them, for root and the server's own user alone: a user who fills the others does not lock them
/// out.
pub const RESERVED: usize = 4;
/// Connections at the same time of users that the kernel does not show as root, the server's user or a member of the
/// socket's group: guests, and members by `/etc/group` alone.
pub const GUESTS_MAX: usize = 16;
/// Those of them of one user.
pub const GUEST_CONNECTIONS_MAX: usize = 4;
/// How long a request may take to arrive, and a line of an answer to be taken.
pub const LINE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long nothing is accepted after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server behind the socket.
pub trait Handler: Send + Sync + 'static {
    /// Carries out a request and returns the answer. The party is one that may ask for it.
    ///
    /// Runs to its end even if the peer is gone by then; only a dropped [`serve`] ends it early.
    fn handle(&self, request: Request, by: Requester, rights: Rights) -> impl Future<Output = Answer> + Send;
}

/// Answers requests until `stop`. Then no request is begun; answers that are under way and sessions that were taken
/// over are waited for.
///
/// # Errors
/// The listening socket cannot be used.
/// # Cancel safety
/// Dropping this ends every connection at once, also those that were taken over.
pub async fn serve<H: Handler>(
    socket: ControlSocket,
    gate: Gate,
    handler: Arc<H>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.duplicate_listener()?)?;
    let rooms = Rooms::default();
    let (tell, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(peer) = Peer::of_socket(&stream) else { continue };
                    let Some(room) = rooms.take_request_slot(&gate, &peer) else {
                        turn_away(&stream);
                        continue;
                    };
                    let (gate, handler) = (gate.clone(), Arc::clone(&handler));
                    let connection = Connection { stream, peer, room, stopping: stopping.clone() };
                    connections.spawn(async move { connection.serve_connection(&gate, &*handler).await });
                }
                // The connection is gone again, or there is no descriptor left: the next attempt tells.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    drop(socket);
    tell.send_replace(true);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Room for connections.
struct Rooms {
    ordinary: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    guests: Arc<UserShares>,
}

/// A place that is free again when this is dropped.
pub(super) enum RequestSlot {
    Operator { _place: OwnedSemaphorePermit },
    Guest { _place: UserPlace },
}

impl RequestSlot {
    pub(super) const fn of(place: OwnedSemaphorePermit) -> Self {
        Self::Operator { _place: place }
    }
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            ordinary: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            reserved: Arc::new(Semaphore::new(RESERVED)),
            guests: Arc::default(),
        }
    }
}

impl Rooms {
    /// Takes a place for a peer. A peer that is not known to be an operator takes a place of guests, also where guests
    /// have no rights: the refusal takes time to send, and the mode of the socket may let in more peers than it should.
    fn take_request_slot(&self, gate: &Gate, peer: &Peer) -> Option<RequestSlot> {
        let take = |room: &Arc<Semaphore>| Arc::clone(room).try_acquire_owned().ok();
        if !gate.admits(peer, None) {
            let place = self.guests.reserve(peer.uid, GUESTS_MAX, GUEST_CONNECTIONS_MAX).ok()?;
            return Some(RequestSlot::Guest { _place: place });
        }
        let place = take(&self.ordinary).or_else(|| gate.has_kept_place(peer).then(|| take(&self.reserved)).flatten());
        place.map(RequestSlot::of)
    }
}

/// Says that there is no room, without waiting: the line fits into the socket's buffer.
fn turn_away(stream: &UnixStream) {
    let error = format!(
        "{CONNECTIONS_MAX} control connections are open, or {GUESTS_MAX} of users who may only look, or {GUEST_CONNECTIONS_MAX} of this \
         one; try again, or end some"
    );
    stream.try_write(reply::refusal_line(Reason::Busy, &error, &[]).as_bytes()).unwrap_or(0);
}

/// One connection.
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) peer: Peer,
    pub(super) room: RequestSlot,
    pub(super) stopping: watch::Receiver<bool>,
}

/// The result of reading a line.
enum RequestLine {
    Whole(Vec<u8>),
    TooLong,
    /// The peer has gone, or was too slow, or the server is going down.
    Over,
}

impl Connection {
    /// Answers the requests of one connection, in their order.
    pub(super) async fn serve_connection(mut self, gate: &Gate, handler: &impl Handler) {
        let rights = match is_admitted(gate, &self.peer).await {
            true => Rights::Operator,
            false => Rights::Guest,
        };
        if rights == Rights::Guest && !gate.has_guests {
            let error = format!(
                "user {} may not control mailrace; ask as root, as user {}, or as a member of group {}",
                self.peer.uid, gate.uid, gate.gid
            );
            self.send(&reply::refusal_line(Reason::Permission, &error, &[])).await;
            return;
        }
        let mut received = Vec::new();
        loop {
            let line = match self.next_line(&mut received).await {
                RequestLine::Whole(line) => line,
                RequestLine::TooLong => {
                    let error = format!("a request has at most {LINE_BYTES_MAX} octets");
                    self.send(&reply::refusal_line(Reason::Request, &error, &[])).await;
                    return;
                }
                RequestLine::Over => return,
            };
            let answer = match Request::parse(&line) {
                Ok(request) if rights == Rights::Guest && !request.is_for_guests() => {
                    let error = format!(
                        "user {} may look at the queue and no more (control.mailq); ask as root, as user {}, or as a member of group {}",
                        self.peer.uid, gate.uid, gate.gid
                    );
                    Answer::refused(Reason::Permission, error)
                }
                Ok(request) => handler.handle(request, Requester::User(self.peer.uid), rights).await,
                Err(error) => Answer::refused(Reason::Request, error.to_string()),
            };
            let is_sent = match answer {
                Answer::Done(fields) => self.send(&reply::last_line(true, fields)).await,
                Answer::List(lines) => self.send_list(lines).await,
                Answer::Refused { reason, error, problems } => {
                    self.send(&reply::refusal_line(reason, &error, &problems)).await
                }
                Answer::Takeover(_) if !received.is_empty() => {
                    let error = "wait for the answer before the session begins";
                    self.send(&reply::refusal_line(Reason::Request, error, &[])).await;
                    return;
                }
                Answer::Takeover(session) => {
                    if self.send(&reply::last_line(true, serde_json::Map::new())).await {
                        drop(self.room);
                        session(self.stream).await;
                    }
                    return;
                }
            };
            if !is_sent {
                return;
            }
        }
    }

    /// Takes a line out of `received`, reading until there is one. The last line before the end may lack its line feed.
    async fn next_line(&mut self, received: &mut Vec<u8>) -> RequestLine {
        let stream = &mut self.stream;
        let read = async {
            let mut searched = 0;
            loop {
                if let Some(at) = received.iter().skip(searched).position(|byte| *byte == b'\n').map(|at| searched + at)
                {
                    let rest = received.split_off(at + 1);
                    let mut line = std::mem::replace(received, rest);
                    line.pop();
                    return if line.len() > LINE_BYTES_MAX { RequestLine::TooLong } else { RequestLine::Whole(line) };
                }
                searched = received.len();
                if searched > LINE_BYTES_MAX {
                    return RequestLine::TooLong;
                }
                match stream.read_buf(received).await {
                    Ok(0) if received.is_empty() => return RequestLine::Over,
                    Ok(0) => return RequestLine::Whole(std::mem::take(received)),
                    Ok(_) => {}
                    Err(_) => return RequestLine::Over,
                }
            }
        };
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => RequestLine::Over,
            line = timeout(LINE_TIME_MAX, read) => line.unwrap_or(RequestLine::Over),
        }
    }

    /// Sends lines as they come, then how it ended. A peer that does not take them ends the list.
    async fn send_list(&mut self, mut pieces: tokio::sync::mpsc::Receiver<ListPart>) -> bool {
        let mut count: u64 = 0;
        loop {
            let last = match pieces.recv().await {
                Some(ListPart::Line(fields)) => {
                    count += 1;
                    if !self.send(&reply::list_line(fields)).await {
                        return false;
                    }
                    continue;
                }
                Some(ListPart::Last(mut fields)) => {
                    fields.insert("lines".to_owned(), count.into());
                    reply::last_line(true, fields)
                }
                Some(ListPart::Failed { reason, error }) => reply::refusal_line(reason, &error, &[]),
                None => reply::refusal_line(Reason::Failed, "the answer broke off; the log says why", &[]),
            };
            return self.send(&last).await;
        }
    }

    /// Whether the peer took it.
    async fn send(&mut self, line: &str) -> bool {
        timeout(LINE_TIME_MAX, self.stream.write_all(line.as_bytes())).await.is_ok_and(|written| written.is_ok())
    }
}

async fn is_admitted(gate: &Gate, peer: &Peer) -> bool {
    if gate.admits(peer, None) {
        return true;
    }
    // Files are read, and the C library is asked, on a thread that may wait.
    let (gate, peer) = (gate.clone(), *peer);
    let looking = tokio::task::spawn_blocking(move || {
        Accounts::read().is_ok_and(|accounts| gate.admits(&peer, Some(&accounts.with_nss(true))))
    });
    matches!(timeout(LINE_TIME_MAX, looking).await, Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_take_no_room_of_operators() {
        let peer = |uid, gid| Peer { uid, gid, pid: 1 };
        // Without guests too: they are turned away, which takes time.
        for has_guests in [true, false] {
            let gate = Gate { uid: 200, gid: 201, has_guests };
            let rooms = Rooms::default();
            let mut taken = Vec::new();
            for uid in 1_000..2_000 {
                taken.extend(std::iter::from_fn(|| rooms.take_request_slot(&gate, &peer(uid, uid))));
            }
            assert_eq!(taken.len(), GUESTS_MAX);
            assert!(rooms.take_request_slot(&gate, &peer(5_000, 201)).is_some(), "of the group");
            drop(taken);
            let own: Vec<_> = std::iter::from_fn(|| rooms.take_request_slot(&gate, &peer(1_000, 1_000))).collect();
            assert_eq!(own.len(), GUEST_CONNECTIONS_MAX, "one user does not take them all");
            assert!(rooms.take_request_slot(&gate, &peer(1_001, 1_001)).is_some());
            drop(own);
            let ordinary: Vec<_> = std::iter::from_fn(|| rooms.take_request_slot(&gate, &peer(0, 0))).collect();
            assert_eq!(ordinary.len(), CONNECTIONS_MAX + RESERVED);
        }
    }
}

//! The socket in the pickup directory, for commands that wait for the results of their messages.
//!
//! Any user of this machine may connect, as often as he likes and without sending a request. A connection counts for
//! its user, as the kernel names him, from the moment it is accepted until it is closed: while its request is read,
//! while its message waits for its turn, and while the results of a delivery are awaited. One user has at most
//! `submit.user_commands_max`, all together [`COMMANDS_MAX`]. A command beyond gets a line that says so and no more;
//! its message is in the directory, and is accepted all the same.

use super::Name;
use super::waiter::SubmitWaiter;
use crate::context::Context;
use observe::{Event, Limit, Relay};
use operator::control::Peer;
use operator::user_share::{ShareError, UserShares};
use os::clock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Commands that wait at the same time.
pub(super) const COMMANDS_MAX: usize = 512;
/// Time for which the log does not repeat that a user has too many commands.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// After the system had no descriptor for a connection: a moment later there may be one.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Reads requests of commands until the server stops.
///
/// # Cancel safety
/// Yes: a command that is cut off gets no answer, and its message is accepted.
pub(super) async fn hear(context: Arc<Context>, listener: UnixListener, calls: mpsc::Sender<(Name, SubmitWaiter)>) {
    let shares = Arc::new(UserShares::default());
    let (mut reading, mut told) = (JoinSet::new(), HashMap::new());
    loop {
        tokio::select! {
            () = context.stop.begun() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(peer) = Peer::of_socket(&stream) else { continue };
                    let user_max = context.live.load().config.submit.user_commands_max;
                    let count = usize::try_from(user_max).unwrap_or(usize::MAX);
                    match shares.reserve(peer.uid, COMMANDS_MAX, count) {
                        Ok(place) => {
                            let calls = calls.clone();
                            reading.spawn(async move {
                                if let Some((waiter, file)) = SubmitWaiter::read(stream, peer, place).await
                                    && let Some(name) = Name::read(&file).filter(|name| name.id.is_none())
                                {
                                    // If too many wait, this command gets no answer.
                                    drop(calls.try_send((name, waiter)));
                                }
                            });
                        }
                        Err(error) => turn_away(&context, &stream, peer.uid, error, user_max, &mut told),
                    }
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = reading.join_next() => {}
        }
    }
}

/// Sends that there is no room, without waiting: the line fits into the socket's buffer.
fn turn_away(
    context: &Context,
    stream: &UnixStream,
    uid: u32,
    error: ShareError,
    user_max: u32,
    told: &mut HashMap<u32, Instant>,
) {
    let why = match error {
        ShareError::User => format!("{user_max} commands of user {uid} wait for an answer (submit.user_commands_max)"),
        ShareError::All => format!("{COMMANDS_MAX} commands wait for an answer"),
    };
    let line = format!("{}\n", serde_json::json!({ "later": format!("{why}; the message is taken without one") }));
    stream.try_write(line.as_bytes()).unwrap_or(0);
    let now = clock::now();
    told.retain(|_, at| now.saturating_duration_since(*at) < TOLD_AGAIN);
    if error == ShareError::User && !told.contains_key(&uid) {
        told.insert(uid, now);
        let relay = Relay::Local { user: &uid.to_string() };
        let limit = Limit::SubmitUserCommandsMax;
        context.record(&Event::LimitReached { id: None, relay, limit, max: user_max.into() });
    }
}

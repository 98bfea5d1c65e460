//! How far the departure of this node from its cluster is, and the commands that watch it.
//!
//! A command gets a line for each change over the control socket, also while the server stops. The server waits a
//! moment for it before it ends.

use operator::answers::{ClusterLeave, to_fields};
use operator::control::{Answer, ListPart};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The last step.
const LEFT: &str = "left";
/// A step without a change is said so often, so that the command knows that the server is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Lines that wait for a command.
const LINES_WAITING_MAX: usize = 64;
/// Time that commands have to read the last line before the server ends.
const LAST_LINE_TIME: Duration = Duration::from_secs(5);

/// The departure of this node, once it has begun.
#[derive(Debug)]
pub(super) struct LeaveState(watch::Sender<Option<ClusterLeave>>);

impl LeaveState {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Option<ClusterLeave> {
        self.0.borrow().clone()
    }

    pub(super) fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Begins; false if it has begun before.
    pub(super) fn begin(&self, first: ClusterLeave) -> bool {
        self.0.send_if_modified(|state| {
            let is_first = state.is_none();
            if is_first {
                *state = Some(first);
            }
            is_first
        })
    }

    /// Notes a step with the number that is left of it.
    pub(super) fn note(&self, step: &str, remaining: u64) {
        self.0.send_if_modified(|state| {
            let Some(leave) = state.as_mut().filter(|leave| leave.step != step || leave.remaining != remaining) else {
                return false;
            };
            (leave.step, leave.remaining) = (step.to_owned(), remaining);
            true
        });
    }

    /// Notes how it ended, and waits until the commands that watch have read it.
    pub(super) async fn end(&self, change: impl FnOnce(&mut ClusterLeave)) {
        self.0.send_modify(|state| {
            let leave = state.get_or_insert_default();
            change(leave);
            (leave.step, leave.remaining) = (LEFT.to_owned(), 0);
        });
        // A command that does not read is not waited for.
        drop(tokio::time::timeout(LAST_LINE_TIME, self.0.closed()).await);
    }

    /// The progress, line by line, until the end.
    pub(super) fn watch(&self) -> Answer {
        let (to, lines) = mpsc::channel(LINES_WAITING_MAX);
        let mut progress = self.0.subscribe();
        // Ends with the departure, its command or the server.
        drop(tokio::spawn(async move {
            loop {
                let leave = progress.borrow_and_update().clone().unwrap_or_default();
                if leave.step == LEFT {
                    // The channel is closed when the line is written.
                    if to.send(ListPart::Last(to_fields(&leave))).await.is_ok() {
                        to.closed().await;
                    }
                    return;
                }
                if to.send(ListPart::Line(to_fields(&leave))).await.is_err() {
                    return;
                }
                if let Ok(Err(_)) = tokio::time::timeout(HEARTBEAT, progress.changed()).await {
                    return;
                }
            }
        }));
        Answer::List(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_gets_each_change_and_the_end() {
        let state = LeaveState::new();
        assert!(state.progress().is_none() && !state.has_begun());
        assert!(state.begin(ClusterLeave { node: 3, step: "announced".to_owned(), ..ClusterLeave::default() }));
        assert!(!state.begin(ClusterLeave::default()), "once");
        let Answer::List(mut lines) = state.watch() else { panic!("a list") };
        let Some(ListPart::Line(first)) = lines.recv().await else { panic!("a line") };
        assert_eq!((first["node"].as_u64(), first["step"].as_str()), (Some(3), Some("announced")));
        state.note("mail", 7);
        let Some(ListPart::Line(second)) = lines.recv().await else { panic!("a line") };
        assert_eq!((second["step"].as_str(), second["remaining"].as_u64()), (Some("mail"), Some(7)));
        let reader = async {
            let Some(ListPart::Last(last)) = lines.recv().await else { panic!("the last line") };
            assert_eq!((last["step"].as_str(), last["messages"].as_u64()), (Some("left"), Some(9)));
            drop(lines);
        };
        // The end waits for its reader, and for no longer.
        tokio::join!(state.end(|leave| leave.messages = 9), reader);
        assert_eq!(state.progress().map(|leave| leave.step), Some("left".to_owned()));
    }
}

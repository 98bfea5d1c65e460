//! Ends a connection in the scheduler, however its task ends.

use super::Dispatch;
use schedule::ConnectionId;
use std::sync::Arc;

/// Ends a connection when it is dropped, unless that was reported.
pub(crate) struct ConnectionGuard {
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) connection: ConnectionId,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if self.dispatch.lock().posts.contains_key(&self.connection) {
            drop(self.dispatch.closed(self.connection));
        }
    }
}

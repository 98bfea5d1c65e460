//! Runs a session on each connection that the accept loop lets in.

use super::{Connection, Opening};
use crate::accept::door::{NewConnection, Serve};

/// Serves connections with sessions of this server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeSessions;

impl Serve for ServeSessions {
    async fn serve(&self, connection: NewConnection) {
        let NewConnection { inbound, lane, session, transport, certificate, began } = connection;
        let opening = Opening::default().showing(certificate);
        Connection::new(inbound, lane, session, opening, began).run(transport).await;
    }
}

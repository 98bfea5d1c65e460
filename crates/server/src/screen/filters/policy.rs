//! A policy server: a connection for an SMTP session, and a question at each RCPT.

use super::connection::{FilterConnection, FilterError};
use super::facts::FilterFacts;
use super::settings::FilterSettings;
use filter::policy::{PolicyAction, PolicyAttributes, PolicyReplyReader, PolicyState, write_request};

/// A connection to a policy server.
#[derive(Debug)]
pub(super) struct PolicyServer {
    connection: FilterConnection,
    replies: PolicyReplyReader,
}

impl PolicyServer {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens there.
    pub(super) async fn open(settings: &FilterSettings) -> Result<Self, FilterError> {
        Ok(Self { connection: FilterConnection::open(settings).await?, replies: PolicyReplyReader::default() })
    }

    /// Whether the connection may serve another question. Policy servers close idle ones.
    pub(super) fn is_usable(&self) -> bool {
        !self.replies.has_rest() && !self.connection.has_unread()
    }

    /// Asks about a recipient.
    ///
    /// # Errors
    /// It gave no answer, or is no policy server.
    pub(super) async fn ask(
        &mut self,
        settings: &FilterSettings,
        state: PolicyState,
        facts: &FilterFacts,
    ) -> Result<PolicyAction, FilterError> {
        self.connection.begin_message(settings.total_timeout);
        let stage = if state == PolicyState::Rcpt { "rcpt" } else { "eom" };
        let mut request = Vec::new();
        write_policy_request(state, facts, &mut request);
        self.connection.write(stage, &request).await?;
        loop {
            let octets = self.connection.read(stage).await?;
            let action = self.replies.push(&octets, octets.is_empty());
            if let Some(action) = action.map_err(|error| FilterError::new(stage, error))? {
                return Ok(action);
            }
        }
    }
}

fn write_policy_request(state: PolicyState, facts: &FilterFacts, out: &mut Vec<u8>) {
    let server = facts.server.map(|server| server.ip().to_canonical().to_string()).unwrap_or_default();
    let name = facts.client_name.as_deref().unwrap_or("unknown");
    let attributes = PolicyAttributes {
        protocol_name: if facts.protocol.starts_with("SMTP") { "SMTP" } else { "ESMTP" },
        helo_name: &facts.helo,
        queue_id: &facts.queue_id,
        sender: &facts.sender,
        recipient: &facts.recipient,
        recipient_count: if state == PolicyState::Rcpt { 0 } else { facts.recipients.len() },
        client_address: &facts.client_ip(),
        client_name: name,
        reverse_client_name: name,
        client_port: facts.client.map(|client| client.port()).unwrap_or_default(),
        server_address: &server,
        server_port: facts.server.map(|server| server.port()).unwrap_or_default(),
        instance: &facts.queue_id,
        sasl_method: facts.auth_type().unwrap_or_default(),
        sasl_username: facts.user.as_deref().unwrap_or_default(),
        size: facts.size,
        ccert_subject: &facts.certificate_subject,
        ccert_issuer: &facts.certificate_issuer,
        encryption_protocol: facts.tls.as_ref().map_or("", |(version, _, _)| version.as_str()),
        encryption_cipher: facts.tls.as_ref().map_or("", |(_, cipher, _)| cipher.as_str()),
        encryption_keysize: facts.tls.as_ref().map_or(0, |(_, _, bits)| u32::from(*bits)),
        mail_version: facts.version,
        ..PolicyAttributes::default()
    };
    write_request(state, &attributes, out);
}

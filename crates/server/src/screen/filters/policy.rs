//! A policy server: a question at each RCPT, over a connection that serves all sessions.

use super::connection::{FilterConnection, FilterError};
use super::facts::FilterFacts;
use super::pool::PooledFilter;
use filter::policy::{PolicyAction, PolicyAttributes, PolicyReplyReader, PolicyState, write_request};

/// Asks about a recipient. A question that meets the close of an idle connection is asked once more.
///
/// # Errors
/// It gave no answer, or is no policy server.
/// # Cancel safety
/// Yes: the connection is dropped.
pub(super) async fn ask_policy(
    filter: &PooledFilter,
    state: PolicyState,
    facts: &FilterFacts,
) -> Result<PolicyAction, FilterError> {
    let stage = if state == PolicyState::Rcpt { "rcpt" } else { "eom" };
    let mut request = Vec::new();
    write_policy_request(state, facts, &mut request);
    let mut may_reuse = true;
    loop {
        let mut connection = filter.connection(may_reuse).await?;
        let mut replies = PolicyReplyReader::default();
        match question(&mut connection, &mut replies, stage, &request).await {
            Ok(action) => {
                if !replies.has_rest() {
                    filter.keep(connection);
                }
                return Ok(action);
            }
            Err(_) if connection.is_stale() => {
                filter.lost_idle();
                may_reuse = false;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn question(
    connection: &mut FilterConnection,
    replies: &mut PolicyReplyReader,
    stage: &'static str,
    request: &[u8],
) -> Result<PolicyAction, FilterError> {
    connection.write(stage, request).await?;
    loop {
        let octets = connection.read(stage).await?;
        let action = replies.push(&octets, octets.is_empty());
        if let Some(action) = action.map_err(|error| FilterError::new(stage, error))? {
            return Ok(action);
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

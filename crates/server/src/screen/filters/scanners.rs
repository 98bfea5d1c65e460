//! Questions to clamd, spamd and rspamd about a whole message.
//!
//! spamd gets a connection for each message. clamd keeps one open as a session, rspamd if its reply says so.

use super::connection::{FilterConnection, FilterError};
use super::content::FilterContent;
use super::facts::FilterFacts;
use super::pool::PooledFilter;
use super::settings::FilterSettings;
use crate::config::{FilterAddress, FilterKind};
use filter::scanner::rspamd::RspamdRequest;
use filter::scanner::spamd::SpamdMethod;
use filter::scanner::{Response, ResponseReader, ScanAction, ScanResult, ScannerError, clamd, rspamd, spamd};

/// Octets of a chunk for clamd.
const CHUNK_BYTES: usize = 64 << 10;
/// The step of all scanners in logs.
const STAGE: &str = "eom";

/// Asks a scanner. A question that meets the close of an idle connection is asked once more.
///
/// # Errors
/// It gave no answer, or another protocol answers.
/// # Cancel safety
/// Yes: the connection is dropped.
pub(super) async fn scan(
    filter: &PooledFilter,
    content: &FilterContent,
    facts: &FilterFacts,
) -> Result<ScanResult, FilterError> {
    let mut may_reuse = true;
    loop {
        let mut connection = filter.connection(may_reuse).await?;
        let result = match filter.settings.kind {
            FilterKind::Clamd => ask_clamd(&mut connection, &content.whole(), filter.settings.idle_max > 0).await,
            FilterKind::Spamd => ask_spamd(&mut connection, content, facts).await.map(|result| (result, false)),
            _ => ask_rspamd(&mut connection, &filter.settings, &content.without_own(), facts).await,
        };
        match result {
            Ok((result, stays_open)) => {
                if stays_open {
                    filter.keep(connection);
                }
                return Ok(result);
            }
            Err(_) if connection.is_stale() => {
                filter.lost_idle();
                may_reuse = false;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Asks whether the scanner is there, and returns what it says about itself.
///
/// # Errors
/// As [`scan`].
pub(super) async fn ping(settings: &FilterSettings) -> Result<String, FilterError> {
    let mut connection = FilterConnection::open(settings).await?;
    match settings.kind {
        FilterKind::Clamd => {
            connection.write("ping", clamd::VERSION).await?;
            let reply = clamd_reply(&mut connection, "ping").await?;
            clamd::read_version(&reply).map_err(|error| fault("ping", &error))
        }
        FilterKind::Spamd => {
            let mut request = Vec::new();
            spamd::write_request(SpamdMethod::Ping, 0, None, &mut request);
            connection.write("ping", &request).await?;
            let response = response(&mut connection, "ping", spamd::response_reader()).await?;
            spamd::read_pong(&response).map_err(|error| fault("ping", &error))?;
            Ok("spamd answers".to_owned())
        }
        _ => {
            let mut request = Vec::new();
            rspamd::write_ping(&host(settings), &mut request);
            connection.write("ping", &request).await?;
            let response = response(&mut connection, "ping", rspamd::response_reader()).await?;
            rspamd::read_pong(&response).map_err(|error| fault("ping", &error))?;
            Ok(response.field("server").unwrap_or("rspamd").to_owned())
        }
    }
}

fn fault(stage: &'static str, error: &ScannerError) -> FilterError {
    FilterError::new(stage, error)
}

/// Asks clamd; in a session, the connection takes further messages. Returns whether it stays open, too.
async fn ask_clamd(
    connection: &mut FilterConnection,
    message: &[u8],
    is_session: bool,
) -> Result<(ScanResult, bool), FilterError> {
    let sent = send_to_clamd(connection, message, is_session).await;
    // clamd answers and closes when the stream exceeds its limit, while more of it is being written.
    let reply = match (clamd_reply(connection, STAGE).await, sent) {
        (Ok(reply), _) => reply,
        (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
    };
    let result = clamd::read_scan(clamd::without_number(&reply)).map_err(|error| fault(STAGE, &error))?;
    let is_open = !matches!(result.action, ScanAction::TooLarge(_) | ScanAction::Failed(_));
    Ok((result, is_session && is_open))
}

/// Sends a message in as few writes as it has chunks.
async fn send_to_clamd(connection: &mut FilterConnection, message: &[u8], is_session: bool) -> Result<(), FilterError> {
    let begin = if is_session && connection.is_new() { clamd::IDSESSION } else { &[] };
    let mut octets = [begin, clamd::INSTREAM].concat();
    for chunk in message.chunks(CHUNK_BYTES) {
        octets.extend_from_slice(&clamd::chunk_head(chunk.len()));
        octets.extend_from_slice(chunk);
        if octets.len() > CHUNK_BYTES {
            connection.write(STAGE, &octets).await?;
            octets.clear();
        }
    }
    octets.extend_from_slice(clamd::STREAM_END);
    connection.write(STAGE, &octets).await
}

async fn clamd_reply(connection: &mut FilterConnection, stage: &'static str) -> Result<String, FilterError> {
    let mut reader = clamd::ClamdReplyReader::default();
    loop {
        let octets = connection.read(stage).await?;
        if let Some(reply) = reader.push(&octets, octets.is_empty()).map_err(|error| fault(stage, &error))? {
            return Ok(reply);
        }
    }
}

async fn ask_spamd(
    connection: &mut FilterConnection,
    content: &FilterContent,
    facts: &FilterFacts,
) -> Result<ScanResult, FilterError> {
    // SpamAssassin takes the sender for SPF from this field.
    let mut message = format!("Return-Path: <{}>\r\n", facts.sender).into_bytes();
    message.extend_from_slice(&content.whole());
    let mut request = Vec::new();
    spamd::write_request(SpamdMethod::Symbols, message.len(), None, &mut request);
    connection.write(STAGE, &request).await?;
    connection.write(STAGE, &message).await?;
    let response = response(connection, STAGE, spamd::response_reader()).await?;
    spamd::read_scan(SpamdMethod::Symbols, &response, &message).map_err(|error| fault(STAGE, &error))
}

/// Asks rspamd. Returns whether the connection stays open, too.
async fn ask_rspamd(
    connection: &mut FilterConnection,
    settings: &FilterSettings,
    message: &[u8],
    facts: &FilterFacts,
) -> Result<(ScanResult, bool), FilterError> {
    let recipients: Vec<&str> = facts.recipients.iter().map(String::as_str).collect();
    let (tls_version, tls_cipher) =
        facts.tls.as_ref().map_or(("", ""), |(version, cipher, _)| (version.as_str(), cipher.as_str()));
    let request = RspamdRequest {
        queue_id: &facts.queue_id,
        ip: &facts.client_ip(),
        helo: &facts.helo,
        hostname: facts.client_name.as_deref().unwrap_or_default(),
        from: &facts.sender,
        recipients: &recipients,
        user: facts.user.as_deref().unwrap_or_default(),
        mta_name: &facts.hostname,
        tls_cipher,
        tls_version,
    };
    let mut head = Vec::new();
    rspamd::write_request(&host(settings), &request, message.len(), settings.idle_max > 0, &mut head);
    connection.write(STAGE, &head).await?;
    connection.write(STAGE, message).await?;
    let response = response(connection, STAGE, rspamd::response_reader()).await?;
    let result = rspamd::read_scan(&response).map_err(|error| fault(STAGE, &error))?;
    Ok((result, response.stays_open))
}

async fn response(
    connection: &mut FilterConnection,
    stage: &'static str,
    mut reader: ResponseReader,
) -> Result<Response, FilterError> {
    loop {
        let octets = connection.read(stage).await?;
        if let Some(response) = reader.push(&octets, octets.is_empty()).map_err(|error| fault(stage, &error))? {
            return Ok(response);
        }
    }
}

/// Returns the name for the field `Host`.
pub(super) fn host(settings: &FilterSettings) -> String {
    match &settings.address {
        FilterAddress::Unix(_) => "localhost".to_owned(),
        tcp => tcp.to_string(),
    }
}

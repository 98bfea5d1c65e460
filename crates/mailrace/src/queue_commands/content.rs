//! Fetches messages of the queue with their content, for commands that look into them.

use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::message_files::{MESSAGE_OCTETS_MAX, MessageFile};
use mail::{QueueId, base64};
use operator::answers::{LineKind, MessageLine, QueueLine};
use operator::control::Request;
use operator::queue::{Action, Command, Selection};
use std::path::Path;

/// A message of the queue or the quarantine.
pub(crate) struct QueuedMessage {
    /// Its content, named by its queue id.
    pub(crate) file: MessageFile,
    /// Its envelope and its recipients that are not done, on one line or several.
    pub(crate) lines: Vec<MessageLine>,
}

/// Asks the server for a message.
///
/// # Errors
/// No server, no permission; the message is not in the queue, or cannot be read.
pub(crate) fn fetch(path: &Path, id: QueueId) -> Result<QueuedMessage, Failure> {
    let mut control = Control::connect(path).map_err(|failure| super::without_server(failure, path))?;
    let selection = Selection { ids: vec![id], ..Selection::default() };
    let request = Request::Queue(Box::new(Command::new(Action::Content, selection)));
    let file = MessageFile { name: id.to_string(), content: Vec::new(), is_complete: true };
    let mut message = QueuedMessage { file, lines: Vec::new() };
    let mut trouble = None;
    control.ask_for_list(&request, |line| {
        match QueueLine::from_line(line, LineKind::Messages)? {
            QueueLine::Message(line) => message.lines.push(*line),
            QueueLine::Content(piece) => match base64::decode(piece.octets.as_bytes()) {
                Some(octets) => message.file.content.extend_from_slice(&octets),
                None => trouble = Some("the server sends no base64; restart it after an update".to_owned()),
            },
            QueueLine::Unreadable(line) => trouble = Some(line.trouble),
            _ => {}
        }
        message.file.is_complete = message.file.content.len() as u64 <= MESSAGE_OCTETS_MAX;
        Ok(message.file.is_complete)
    })?;
    if let Some(trouble) = trouble {
        return Err(Failure::new(Exit::Damaged, format!("{id}: it cannot be read: {trouble}")));
    }
    if message.lines.is_empty() {
        let text = format!("{id}: not in the queue: delivered, bounced or deleted, as the log says, or never here");
        return Err(Failure::new(Exit::NoInput, text));
    }
    Ok(message)
}

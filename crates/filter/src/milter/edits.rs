//! Changes that a filter asks for at the end of the body, collected until its final answer.

use super::MilterError;
use super::negotiation::{Actions, Agreement, Steps};
use super::packet::{Packet, number, strings};
use crate::field_text::{folded_value, is_field_name};

/// Bounds of what one filter may change in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EditLimits {
    /// Changes of header fields and envelope together.
    pub edits_max: usize,
    /// Octets of names, values and addresses together.
    pub edit_bytes_max: usize,
    /// Octets of a new body.
    pub body_bytes_max: usize,
}

impl Default for EditLimits {
    fn default() -> Self {
        Self { edits_max: 10_000, edit_bytes_max: 1 << 20, body_bytes_max: 64 << 20 }
    }
}

/// One change of header or envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Append a field.
    AddHeader {
        /// Its name.
        name: Vec<u8>,
        /// The octets behind the colon, folded with CR LF, without the last line end.
        value: Vec<u8>,
    },
    /// Insert a field.
    InsertHeader {
        /// 0: above everything; n: as the n-th field of those that the filter was shown; more: as the last.
        index: u32,
        /// Its name.
        name: Vec<u8>,
        /// As in `AddHeader`.
        value: Vec<u8>,
    },
    /// Replace the value of a field, or delete it.
    ChangeHeader {
        /// Which of the fields of this name, from 1.
        index: u32,
        /// The name.
        name: Vec<u8>,
        /// The new value; `None` deletes.
        value: Option<Vec<u8>>,
    },
    /// Add a recipient.
    AddRecipient {
        /// The address as the filter writes it, usually within `<>`.
        address: Vec<u8>,
        /// ESMTP parameters.
        parameters: Option<Vec<u8>>,
    },
    /// Delete a recipient.
    DeleteRecipient {
        /// The address as the filter writes it.
        address: Vec<u8>,
    },
    /// Replace the envelope sender.
    ChangeSender {
        /// The address as the filter writes it.
        address: Vec<u8>,
        /// ESMTP parameters.
        parameters: Option<Vec<u8>>,
    },
}

/// Changes that a filter asked for in one message, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Changes of header and envelope.
    pub list: Vec<Edit>,
    /// The new body, if the filter replaces it.
    pub body: Option<Vec<u8>>,
    /// The reason for quarantine, if the filter wants that.
    pub quarantine: Option<String>,
    bytes: usize,
}

impl Edits {
    /// Whether the filter asked for nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty() && self.body.is_none() && self.quarantine.is_none()
    }

    /// Takes a packet with a change. Returns false if it is none.
    ///
    /// # Errors
    /// The filter did not announce it, its data cannot be read or would break the message, or a limit is exceeded.
    pub(super) fn take(
        &mut self,
        agreement: &Agreement,
        limits: &EditLimits,
        packet: &Packet,
    ) -> Result<bool, MilterError> {
        let Some(action) = action_of(packet.command) else { return Ok(false) };
        if !agreement.actions.has(action) {
            return Err(MilterError::NotAnnounced { command: packet.command });
        }
        match packet.command {
            b'b' => self.take_body(limits, &packet.data)?,
            b'q' => {
                let reason = strings(b'q', &packet.data)?.concat();
                self.quarantine = Some(String::from_utf8_lossy(&reason).chars().filter(|c| !c.is_control()).collect());
            }
            command => {
                let edit = read_edit(command, &packet.data, agreement.steps.has(Steps::LEADING_BLANK))?;
                self.bytes += packet.data.len();
                if self.list.len() >= limits.edits_max {
                    return Err(MilterError::TooMuch { limit: "edits_max", value: limits.edits_max });
                }
                if self.bytes > limits.edit_bytes_max {
                    return Err(MilterError::TooMuch { limit: "edit_bytes_max", value: limits.edit_bytes_max });
                }
                self.list.push(edit);
            }
        }
        Ok(true)
    }

    /// Appends a chunk to the new body.
    fn take_body(&mut self, limits: &EditLimits, chunk: &[u8]) -> Result<(), MilterError> {
        let body = self.body.get_or_insert_default();
        if body.len() + chunk.len() > limits.body_bytes_max {
            return Err(MilterError::TooMuch { limit: "body_bytes_max", value: limits.body_bytes_max });
        }
        body.extend_from_slice(chunk);
        Ok(())
    }
}

/// Returns the action that a filter must have announced for this packet.
const fn action_of(command: u8) -> Option<Actions> {
    Some(match command {
        b'h' | b'i' => Actions::ADD_HEADERS,
        b'm' => Actions::CHANGE_HEADERS,
        b'+' => Actions::ADD_RECIPIENTS,
        b'2' => Actions::ADD_RECIPIENTS_WITH_PARAMETERS,
        b'-' => Actions::DELETE_RECIPIENTS,
        b'e' => Actions::CHANGE_SENDER,
        b'b' => Actions::CHANGE_BODY,
        b'q' => Actions::QUARANTINE,
        _ => return None,
    })
}

/// Reads a change of header or envelope.
fn read_edit(command: u8, data: &[u8], leading_blank: bool) -> Result<Edit, MilterError> {
    let (index, data) = if matches!(command, b'i' | b'm') { number(command, data)? } else { (0, data) };
    let parts = strings(command, data)?;
    match (command, parts.as_slice()) {
        (b'h', [name, value]) => {
            Ok(Edit::AddHeader { name: field_name(command, name)?, value: field_value(command, value, leading_blank)? })
        }
        (b'i', [name, value]) => Ok(Edit::InsertHeader {
            index,
            name: field_name(command, name)?,
            value: field_value(command, value, leading_blank)?,
        }),
        (b'm', [name, value]) => Ok(Edit::ChangeHeader {
            index,
            name: field_name(command, name)?,
            value: if value.is_empty() { None } else { Some(field_value(command, value, leading_blank)?) },
        }),
        (b'+', [address]) => Ok(Edit::AddRecipient { address: address_text(command, address)?, parameters: None }),
        (b'2', [address, parameters @ ..]) if parameters.len() <= 1 => Ok(Edit::AddRecipient {
            address: address_text(command, address)?,
            parameters: parameter_text(command, parameters)?,
        }),
        (b'-', [address]) => Ok(Edit::DeleteRecipient { address: address_text(command, address)? }),
        (b'e', [address, parameters @ ..]) if parameters.len() <= 1 => Ok(Edit::ChangeSender {
            address: address_text(command, address)?,
            parameters: parameter_text(command, parameters)?,
        }),
        _ => Err(MilterError::Malformed { command, what: "the wrong number of strings" }),
    }
}

/// Checks the name of a field.
fn field_name(command: u8, name: &[u8]) -> Result<Vec<u8>, MilterError> {
    if !is_field_name(name) {
        return Err(MilterError::Malformed { command, what: "a field name that is none" });
    }
    Ok(name.to_vec())
}

/// Folds and checks a value.
fn field_value(command: u8, value: &[u8], leading_blank: bool) -> Result<Vec<u8>, MilterError> {
    folded_value(value, leading_blank).map_err(|what| MilterError::Malformed { command, what })
}

/// Checks that an address can stand in an envelope; its form is judged by the reader of addresses.
fn address_text(command: u8, address: &[u8]) -> Result<Vec<u8>, MilterError> {
    if address.is_empty() || address.len() > 1_000 || address.iter().any(u8::is_ascii_control) {
        return Err(MilterError::Malformed { command, what: "an address that is empty, too long or has controls" });
    }
    Ok(address.to_vec())
}

/// Checks parameters of an address.
fn parameter_text(command: u8, parameters: &[&[u8]]) -> Result<Option<Vec<u8>>, MilterError> {
    match parameters {
        [] | [[]] => Ok(None),
        [text, ..] if text.len() > 1_000 || text.iter().any(u8::is_ascii_control) => {
            Err(MilterError::Malformed { command, what: "parameters that are too long or have controls" })
        }
        [text, ..] => Ok(Some(text.to_vec())),
    }
}

//! The text that `makemap` reads: a line for an entry, the key up to the first blank, the value behind it.
//!
//! There are no quotes and no continuation lines. A line that starts with `#` is a comment. Where `makemap` refuses a
//! line, so does this, and says why; it is more generous in four points: lines may be longer than 1,023 octets, may
//! consist of blanks only, may be comments behind blanks, and blanks (a CR of a foreign line end is one) behind the
//! value do not count.

use super::MapLimits;
use super::complaint::{Complaints, MapFileError, shown};
use super::line::{is_blank, trim};
use super::storage::{Storage, fold, not_utf8, replace_invalid, too_long, too_many};

/// Reads a file; its bytes become the storage.
pub(super) fn read(
    mut bytes: Vec<u8>,
    should_fold: bool,
    limits: &MapLimits,
    complaints: &mut Complaints,
) -> Result<Storage, MapFileError> {
    // A byte order mark is a habit of some editors.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    if str::from_utf8(&bytes).is_err() {
        replace_in_lines(&mut bytes, complaints);
    }
    let mut offsets = Vec::new();
    let mut start = 0;
    let mut number = 0;
    while let Some(len) = bytes.get(start..).and_then(|rest| memchr::memchr(b'\n', rest)) {
        number += 1;
        let line = bytes.get_mut(start..start + len).unwrap_or_default();
        match key_len(line, limits) {
            Ok(None) => {}
            Ok(Some(len)) => {
                if offsets.len() >= limits.entries_max {
                    return Err(too_many(limits));
                }
                if should_fold {
                    line.get_mut(..len).map(fold);
                }
                offsets.push(u32::try_from(start).unwrap_or(u32::MAX));
            }
            Err(text) => complaints.add(Some(number), || text),
        }
        start += len + 1;
    }
    // Bytes that are not UTF-8 were replaced before.
    let text = String::from_utf8(bytes).unwrap_or_default();
    Ok(Storage::of_lines(text, &offsets, complaints))
}

/// The length of the key of a line; nothing when the line has no entry.
///
/// # Errors
/// The text of a complaint.
fn key_len(line: &[u8], limits: &MapLimits) -> Result<Option<usize>, String> {
    let Some(first) = line.first() else { return Ok(None) };
    if *first == b'#' {
        return Ok(None);
    }
    let Some(len) = line.iter().position(|byte| is_blank(*byte)) else {
        return Err(no_value(line));
    };
    let value = line.get(len..).unwrap_or_default();
    let value_len = trim(value).len();
    if len == 0 {
        if value_len == 0 || trim(value).starts_with(b"#") {
            return Ok(None);
        }
        let line = shown(trim(line));
        return Err(format!(
            "\"{line}\" begins with a blank, and a line cannot be continued here; entry ignored: remove the blank, or join it to the line before"
        ));
    }
    let key = line.get(..len).unwrap_or_default();
    if value_len == 0 {
        return Err(no_value(key));
    }
    if len + value_len > limits.entry_bytes_max {
        return Err(too_long(key, len + value_len, limits));
    }
    if memchr::memchr(0, line).is_some() {
        return Err(format!("\"{}\" has a NUL in its line; entry ignored", shown(key)));
    }
    Ok(Some(len))
}

fn no_value(key: &[u8]) -> String {
    format!("\"{}\" has no value; entry ignored", shown(trim(key)))
}

/// Makes a file UTF-8: comments and values with question marks, other lines as comments.
fn replace_in_lines(bytes: &mut [u8], complaints: &mut Complaints) {
    for (number, line) in (1..).zip(bytes.split_mut(|byte| *byte == b'\n')) {
        if str::from_utf8(line).is_ok() {
            continue;
        }
        let len = line.iter().position(|byte| is_blank(*byte)).unwrap_or(line.len());
        let key = line.get(..len).unwrap_or_default();
        if len == 0 || key.starts_with(b"#") {
            // A comment, or a line that is refused later.
        } else if str::from_utf8(key).is_ok() {
            complaints.add(Some(number), || not_utf8(key));
        } else {
            complaints.add(Some(number), || format!("key \"{}\" is not UTF-8; entry ignored", shown(key)));
            if let Some(first) = line.first_mut() {
                *first = b'#';
            }
        }
        replace_invalid(line);
    }
}

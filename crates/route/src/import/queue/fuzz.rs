//! The body that feeds the reader of control files with any bytes.

use super::{ControlFileLimits, QueueFile, QueuedMessage};
use mail::DomainName;

/// Control files: a file that is read can be sent, and the error of another names an existing line.
///
/// # Panics
/// A promise of the reader does not hold.
pub fn queue_control(data: &[u8]) {
    let host = DomainName::new("host.example").expect("a name");
    let limits = ControlFileLimits { octets_max: 1 << 20, recipients_max: 1_000 };
    let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
    match QueuedMessage::read(data, &host, &limits) {
        Err(error) => {
            assert!((1..=lines).contains(&error.0.line), "{error} of {lines}");
            assert!(!error.to_string().chars().any(char::is_control) && error.to_string().len() < 2_000, "{error:?}");
        }
        Ok(message) => {
            assert!(
                !message.recipients.is_empty() && message.recipients.len() <= 1_000 && message.header.len() <= lines
            );
            assert!((1..=QueuedMessage::VERSION_MAX).contains(&message.version));
            for note in &message.notes {
                assert!((1..=lines).contains(&note.line) && !note.text.chars().any(char::is_control), "{note:?}");
            }
            for one in &message.recipients {
                assert!(!one.target.to_string().chars().any(char::is_control), "{one:?}");
            }
            let header = message.header_section(&host, 0, "unique");
            assert!(header.ends_with(b"\r\n") && header.len() <= 8 * data.len() + 1_000, "{}", header.len());
            let newlines = memchr::memchr_iter(b'\n', &header).count();
            let pairs = memchr::memmem::find_iter(&header, "\r\n").count();
            assert!(
                newlines == pairs && newlines == memchr::memchr_iter(b'\r', &header).count(),
                "{}",
                header.escape_ascii()
            );
        }
    }
    if let Some(file) = str::from_utf8(data).ok().and_then(QueueFile::read) {
        assert_eq!(file.name().as_bytes(), data);
    }
}

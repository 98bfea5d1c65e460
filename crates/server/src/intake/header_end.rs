//! Finds the end of the header section of content in memory, and gives such content to the spool.

use bytes::Bytes;
use mail::header::{HeaderSection, LineEnd};
use route::resolve::header::last_field;
use spool::NewBody;

/// Content in memory, as the spool takes it.
pub(super) fn in_memory(content: Bytes, header_bytes_max: usize) -> NewBody {
    let end = header_end(&content, header_bytes_max).unwrap_or(content.len());
    NewBody::whole(content, u32::try_from(end).unwrap_or(0))
}

/// Where the header section ends, at most `max` octets long; `None` if more of it may come.
// RFC 5322 §2.1: the body is separated from the header section by an empty line
pub(super) fn header_end(content: &[u8], max: usize) -> Option<usize> {
    let section = HeaderSection::read(content, LineEnd::Crlf);
    match content.get(..max) {
        Some(within) if section.body_offset() > max => Some(last_field(within)),
        _ => section.is_closed().then_some(section.body_offset()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(content: &str, max: usize) -> Option<usize> {
        header_end(content.as_bytes(), max)
    }

    #[test]
    fn a_header_section_ends_behind_the_empty_line_or_before_the_field_that_passes_the_limit() {
        assert_eq!(end("a: b\r\n\r\nbody", 100), Some(8));
        assert_eq!(end("\r\nbody", 100), Some(2));
        assert_eq!((end("", 100), end("a: b\r\n", 100), end("a: b\r\n\r", 100)), (None, None, None));
        let long = "a: b\r\nc: d\r\n e\r\nf: g\r\n\r\nbody";
        assert_eq!((end(long, 24), end(long, 23), end(long, 21)), (Some(24), Some(22), Some(16)));
        assert_eq!((end(long, 17), end(long, 15), end(long, 6), end(long, 3)), (Some(16), Some(6), Some(0), Some(0)));
        let NewBody::Whole { body_offset, .. } = in_memory(Bytes::from_static(b"a: b\r\n"), 100) else { panic!() };
        assert_eq!(body_offset, 6, "without an empty line all is header section");
    }
}

//! Reads the entries of an answer without trust in the directory: the reader of the library panics at an entry whose
//! form is wrong.

use ldap3::asn1::{PL, StructureTag};

/// The parts of an entry that are used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    pub(super) dn: String,
    /// Attributes whose values are all text.
    pub(super) attributes: Vec<(String, Vec<String>)>,
}

/// Reads a SearchResultEntry; `None` if its form is wrong.
// RFC 4511 §4.5.2
pub(super) fn read(entry: StructureTag) -> Option<DirectoryEntry> {
    let [dn, attributes] = parts(entry)?;
    let mut read = Vec::new();
    for attribute in list(attributes)? {
        let [name, values] = parts(attribute)?;
        let values: Vec<Vec<u8>> = list(values)?.into_iter().map(octets).collect::<Option<_>>()?;
        if let Ok(values) = values.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>() {
            read.push((text(name)?, values));
        }
    }
    Some(DirectoryEntry { dn: text(dn)?, attributes: read })
}

/// The first two elements of a sequence; further ones are for later versions of the protocol.
fn parts(tag: StructureTag) -> Option<[StructureTag; 2]> {
    let mut all = list(tag)?.into_iter();
    Some([all.next()?, all.next()?])
}

fn list(tag: StructureTag) -> Option<Vec<StructureTag>> {
    if let PL::C(elements) = tag.payload { Some(elements) } else { None }
}

fn octets(tag: StructureTag) -> Option<Vec<u8>> {
    if let PL::P(octets) = tag.payload { Some(octets) } else { None }
}

fn text(tag: StructureTag) -> Option<String> {
    String::from_utf8(octets(tag)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ldap3::asn1::parse_tag;

    fn read_bytes(bytes: &[u8]) -> Option<DirectoryEntry> {
        let (rest, tag) = parse_tag(bytes).expect("a tag");
        assert!(rest.is_empty());
        read(tag)
    }

    #[test]
    fn entries_are_read_and_others_are_not() {
        let entry =
            b"\x64\x1e\x04\x05o=abc\x30\x15\x30\x09\x04\x02cn\x31\x03\x04\x01x\x30\x08\x04\x01b\x31\x03\x04\x01\xff";
        let found = read_bytes(entry).expect("an entry");
        assert_eq!(found, DirectoryEntry { dn: "o=abc".into(), attributes: vec![("cn".into(), vec!["x".into()])] });
        for wrong in [
            &b"\x64\x00"[..],
            b"\x44\x00",
            b"\x64\x02\x04\x00",
            b"\x64\x04\x04\x00\x04\x00",
            b"\x64\x05\x04\x01\xff\x30\x00",
            b"\x64\x06\x04\x00\x30\x02\x04\x00",
            b"\x64\x06\x04\x00\x30\x02\x30\x00",
            b"\x64\x0a\x04\x00\x30\x06\x30\x04\x04\x00\x04\x00",
            b"\x64\x0c\x04\x00\x30\x08\x30\x06\x04\x00\x31\x02\x31\x00",
        ] {
            assert_eq!(read_bytes(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}

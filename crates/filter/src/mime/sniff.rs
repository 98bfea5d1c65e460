//! The kind of a file by its first octets, whatever its name and Content-Type claim.

/// First octets and the kind that has them, the longer ones first where two fit.
const MAGIC: [(&[u8], &str); 32] = [
    (b"MZ", "exe"),
    (b"\x7fELF", "elf"),
    (b"\xca\xfe\xba\xbe", "class"),
    (b"\xcf\xfa\xed\xfe", "mach-o"),
    (b"#!", "script"),
    (b"L\0\0\0\x01\x14\x02\0", "lnk"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"PK\x07\x08", "zip"),
    (b"Rar!\x1a\x07", "rar"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"MSCF", "cab"),
    (b"\x60\xea", "arj"),
    (b"ITSF", "chm"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "ole"),
    (b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", "onenote"),
    (b"x\x9f\x3e\x22", "tnef"),
    (b"{\\rtf", "rtf"),
    (b"%PDF-", "pdf"),
    (b"%!PS", "postscript"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF8", "gif"),
    (b"RIFF", "riff"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"FWS", "flash"),
    (b"CWS", "flash"),
];

/// Octets inside a file: where they stand, and the kind.
const INNER: [(usize, &[u8], &str); 3] = [(257, b"ustar", "tar"), (32_769, b"CD001", "iso"), (34_817, b"CD001", "iso")];

/// Beginnings of text files after white space, in lower case.
const TEXT: [(&str, &str); 5] =
    [("<!doctype html", "html"), ("<html", "html"), ("<script", "html"), ("<svg", "svg"), ("<?xml", "xml")];

/// Returns the kind of a file, `None` if nothing speaks for one.
#[must_use]
pub fn sniff(octets: &[u8]) -> Option<&'static str> {
    let by_magic = MAGIC.iter().find(|(magic, _)| octets.starts_with(magic)).map(|(_, kind)| *kind);
    let inner = || {
        let found = INNER.iter().find(|(at, magic, _)| octets.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
        found.map(|(_, _, kind)| *kind)
    };
    let text = || {
        let octets = octets.strip_prefix(b"\xef\xbb\xbf").unwrap_or(octets).trim_ascii_start();
        let begins =
            |word: &str| octets.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
        TEXT.iter().find(|(word, _)| begins(word)).map(|(_, kind)| *kind)
    };
    by_magic.or_else(inner).or_else(text)
}

/// Whether a rule may ask for this kind.
#[must_use]
pub fn is_kind(word: &str) -> bool {
    kinds().any(|kind| kind.eq_ignore_ascii_case(word))
}

/// Lists the kinds, some more than once.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let magic = MAGIC.iter().map(|(_, kind)| *kind);
    magic.chain(INNER.iter().map(|(_, _, kind)| *kind)).chain(TEXT.iter().map(|(_, kind)| *kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_content() {
        assert_eq!(sniff(b"MZ\x90\0"), Some("exe"));
        assert_eq!(sniff(b"PK\x03\x04..."), Some("zip"));
        assert_eq!(sniff(b"\r\n <!DOCTYPE HTML>"), Some("html"));
        assert_eq!(sniff(&[&[0; 257][..], b"ustar"].concat()), Some("tar"));
        for nothing in [&b""[..], b"M", b"hello", b"\xef\xbb\xbf"] {
            assert_eq!(sniff(nothing), None);
        }
        assert!(is_kind("EXE") && !is_kind("docx"));
    }
}

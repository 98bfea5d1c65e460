//! Charsets by the labels that mail uses for them: those of the WHATWG Encoding Standard and a few code pages more.

use std::borrow::Cow;
use std::fmt;

use encoding_rs::Encoding;

/// Labels that Outlook and old gateways write and the standard does not list.
const CODE_PAGES: [(&str, &Encoding); 4] = [
    ("cp932", encoding_rs::SHIFT_JIS),
    ("cp936", encoding_rs::GBK),
    ("cp949", encoding_rs::EUC_KR),
    ("cp950", encoding_rs::BIG5),
];

/// A charset that can be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Charset(&'static Encoding);

impl Charset {
    /// UTF-8.
    pub const UTF_8: Self = Self(encoding_rs::UTF_8);

    /// Finds a charset by one of its labels, in any case of letters. `None` for labels that are not known and for
    /// charsets that programs decode no more because they hide text from scanners (UTF-7, HZ, ISO-2022-KR).
    #[must_use]
    pub fn for_label(label: &str) -> Option<Self> {
        let standard = Encoding::for_label_no_replacement(label.as_bytes());
        let code_page =
            || CODE_PAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(label)).map(|(_, found)| *found);
        standard.or_else(code_page).map(Self)
    }

    /// The name of the charset in the standard. `us-ascii` and `iso-8859-1` are read as `windows-1252`, `gb2312` as
    /// `GBK`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Decodes bytes; malformed sequences become U+FFFD, and the answer says whether there were any.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> (Cow<'_, str>, bool) {
        self.0.decode_without_bom_handling(bytes)
    }
}

impl fmt::Debug for Charset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charset({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for (label, name) in [
            ("GB2312", "GBK"),
            ("gb18030", "gb18030"),
            ("Big5", "Big5"),
            ("iso-2022-jp", "ISO-2022-JP"),
            ("KOI8-R", "KOI8-R"),
            ("us-ascii", "windows-1252"),
            ("cp936", "GBK"),
        ] {
            assert_eq!(Charset::for_label(label).map(Charset::name), Some(name));
        }
        for label in ["", "utf-7", "hz-gb-2312", "iso-2022-kr", "x-unknown", "\u{fc}"] {
            assert_eq!(Charset::for_label(label), None, "{label}");
        }
    }
}

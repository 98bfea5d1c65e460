//! The Content fields of a part: type, boundary, charset, transfer encoding, disposition, names.

use mail::header::HeaderSection;
use mail::scan::Scan;

use super::parameters::{Parameters, token};
use super::{Damage, DamageSet, TransferEncoding};

/// RFC 2046 §5.1.1: a boundary has 1 to 70 characters; longer ones occur.
const BOUNDARY_OCTETS_MAX: usize = 512;

/// The Content fields of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Type in lower case, `text` where the field is missing.
    pub kind: String,
    /// Subtype in lower case.
    pub subtype: String,
    /// Label of the charset as it is spelt.
    pub charset: Option<String>,
    /// How the octets are encoded.
    pub encoding: TransferEncoding,
    /// The word of Content-Disposition, in lower case.
    pub disposition: Option<String>,
    /// Each distinct reading of the names in Content-Disposition and Content-Type.
    pub names: Vec<String>,
    pub(super) boundary: Option<Vec<u8>>,
}

impl Content {
    /// Reads the fields of a part. `is_in_digest`: the part is in a multipart/digest, whose parts are messages by
    /// default.
    pub(super) fn read(header: &HeaderSection<'_>, is_in_digest: bool, damage: &mut DamageSet) -> Self {
        // RFC 2045 §5.2, RFC 2046 §5.1.5
        let (kind, subtype) = if is_in_digest { ("message", "rfc822") } else { ("text", "plain") };
        let mut out = Self {
            kind: kind.to_owned(),
            subtype: subtype.to_owned(),
            charset: None,
            encoding: TransferEncoding::Identity,
            disposition: None,
            names: Vec::new(),
            boundary: None,
        };
        if let Some(value) = first_field(header, "Content-Transfer-Encoding", damage) {
            out.encoding = TransferEncoding::for_token(&token(&mut Scan::new(&value)));
            damage.add_if(out.encoding == TransferEncoding::Unknown, Damage::UnknownEncoding);
        }
        let mut names = Vec::new();
        if let Some(value) = first_field(header, "Content-Disposition", damage) {
            let mut scan = Scan::new(&value);
            out.disposition = Some(token(&mut scan));
            names = Parameters::read(&mut scan).readings("filename");
        }
        if let Some(value) = first_field(header, "Content-Type", damage) {
            names.extend(out.read_type(&value, damage));
        }
        for name in names {
            if !out.names.contains(&name) {
                out.names.push(name);
            }
        }
        damage.add_if(out.names.len() > 1, Damage::NamesDiffer);
        out
    }

    /// Whether the part holds parts, as a multipart with a boundary does.
    #[must_use]
    pub fn is_multipart(&self) -> bool {
        self.kind == "multipart"
    }

    /// Whether parts inside can be read where they lie.
    pub(super) fn encoding_is_transparent(&self) -> bool {
        !matches!(self.encoding, TransferEncoding::Base64 | TransferEncoding::QuotedPrintable)
    }

    /// Whether the part holds a message.
    #[must_use]
    pub fn is_message(&self) -> bool {
        // RFC 6532 §3.7: message/global is a message with UTF-8 in its header section
        self.kind == "message" && matches!(self.subtype.as_str(), "rfc822" | "global" | "news")
    }

    /// Whether the part is an attachment: named, called so, or nothing that programs show.
    #[must_use]
    pub fn is_attachment(&self) -> bool {
        let is_shown = self.kind == "text" || self.is_multipart() || self.is_message();
        !self.names.is_empty() || self.disposition.as_deref() == Some("attachment") || !is_shown
    }

    /// Reads a Content-Type and returns the readings of its names.
    fn read_type(&mut self, value: &[u8], damage: &mut DamageSet) -> Vec<String> {
        let mut scan = Scan::new(value);
        let kind = token(&mut scan);
        scan.skip_comments();
        if scan.take(b'/') {
            self.subtype = token(&mut scan);
            self.kind = kind;
        } else {
            damage.add(Damage::BadContentType);
            // A program that looks no further than the first word still finds a multipart.
            if kind == "multipart" || kind == "message" {
                self.kind = kind;
                "mixed".clone_into(&mut self.subtype);
            }
        }
        let parameters = Parameters::read(&mut scan);
        damage.add_if(parameters.is_damaged || self.subtype.is_empty(), Damage::BadContentType);
        damage.add_if(parameters.count("boundary") > 1, Damage::RepeatedField);
        self.charset = parameters.readings("charset").into_iter().next();
        if self.is_multipart() {
            // RFC 2046 §5.1.1: 7-bit, and no space at its end
            let text = parameters.plain("boundary").map(<[u8]>::trim_ascii_end);
            let fits = |text: &&[u8]| {
                (1..=BOUNDARY_OCTETS_MAX).contains(&text.len()) && text.iter().all(|byte| matches!(byte, b' '..=b'~'))
            };
            self.boundary = text.filter(fits).map(<[u8]>::to_vec);
            damage.add_if(self.boundary.is_none(), Damage::NoBoundary);
        }
        parameters.readings("name")
    }
}

/// Returns the first field of a name, and notes another one that differs.
fn first_field(header: &HeaderSection<'_>, name: &str, damage: &mut DamageSet) -> Option<Vec<u8>> {
    let mut fields = header.find(name).map(|field| field.unfolded());
    let first = fields.next()?.into_owned();
    damage.add_if(fields.any(|other| *other != *first), Damage::RepeatedField);
    Some(first)
}

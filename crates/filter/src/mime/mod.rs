//! The MIME structure of a message: [`walk`] lists its parts, bounded by [`crate::Limits`].
//!
//! The walk goes over the delimiter lines of the body once, without recursion: a stack holds the open multiparts, an
//! embedded message is a part whose content is a part. It repairs nothing; it takes each line for a delimiter that some
//! program takes for one, so that no attachment hides, and notes the fault.
//!
//! Octets stay where they are: a [`Part`] has ranges of the message, and [`Part::decode`] decodes its body on demand.

mod content;
mod damage;
mod parameters;
mod sniff;
mod transfer;
mod walk;

pub use content::Content;
pub use damage::{Damage, DamageSet};
pub use parameters::Parameters;
pub use sniff::{is_kind, kinds, sniff};
pub use transfer::TransferEncoding;
pub use walk::walk;

use std::borrow::Cow;
use std::ops::Range;

use mail::Charset;

use crate::header_text;

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index of the part that holds this one; `None` for the message.
    pub parent: Option<usize>,
    /// Parts around this one.
    pub depth: usize,
    /// The number of the part as IMAP counts: `1.2` is the second part of the first; empty for the message.
    pub number: String,
    /// Where the header section lies in the message.
    pub header: Range<usize>,
    /// Where the body lies, delimiter lines of parts inside included.
    pub body: Range<usize>,
    /// The Content fields.
    pub content: Content,
    /// The faults of this part.
    pub damage: DamageSet,
}

impl Part {
    /// Whether the part holds no parts that the walk saw.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        let is_opened = self.content.encoding_is_transparent();
        !(is_opened && (self.content.is_multipart() && self.content.boundary.is_some() || self.content.is_message()))
    }

    /// Decodes the transfer encoding of the body in `message`, which the walk read, to `octets_max` octets at most.
    #[must_use]
    pub fn decode<'a>(&self, message: &'a [u8], octets_max: usize) -> Octets<'a> {
        let body = message.get(self.body.clone()).unwrap_or_default();
        let decoded = self.content.encoding.decode(body, octets_max);
        let mut damage = DamageSet::default();
        if let Some(found) = decoded.damage {
            damage.add(found);
        }
        Octets { octets: decoded.octets, is_cut: decoded.is_cut, damage }
    }

    /// Turns the decoded octets of a text part into text, by its charset or by a guess.
    #[must_use]
    pub fn text<'a>(&self, octets: &'a [u8], damage: &mut DamageSet) -> Cow<'a, str> {
        let label = self.content.charset.as_deref();
        let charset = label.and_then(Charset::for_label);
        damage.add_if(label.is_some() && charset.is_none(), Damage::UnknownCharset);
        // Programs show UTF-8 for what it is where the label says ASCII or nothing.
        let is_ascii = label.is_none_or(|label| label.eq_ignore_ascii_case("us-ascii"));
        let is_utf8 = is_ascii || charset.is_none() || charset == Some(Charset::UTF_8);
        if is_utf8 && let Ok(text) = str::from_utf8(octets) {
            return Cow::Borrowed(text);
        }
        match charset.filter(|_| !is_ascii) {
            Some(charset) => {
                let (text, has_errors) = charset.decode(octets);
                damage.add_if(has_errors, Damage::BadText);
                text
            }
            None => {
                damage.add(Damage::BadText);
                let charset = header_text::guess(octets).unwrap_or(Charset::UTF_8);
                Cow::Owned(charset.decode(octets).0.into_owned())
            }
        }
    }
}

/// The body of a part after transfer decoding.
#[derive(Clone, Debug)]
pub struct Octets<'a> {
    /// The octets.
    pub octets: Cow<'a, [u8]>,
    /// There are more.
    pub is_cut: bool,
    /// The faults of the encoding.
    pub damage: DamageSet,
}

/// The parts of a message in the order of their header sections; the first is the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The parts.
    pub parts: Vec<Part>,
    /// The limits that ended the walk early, by name; empty when every part is listed.
    pub limits_reached: Vec<&'static str>,
}

impl Tree {
    /// Returns the faults of all parts.
    #[must_use]
    pub fn damage(&self) -> DamageSet {
        let mut all = DamageSet::default();
        self.parts.iter().for_each(|part| all.extend(part.damage));
        all
    }
}

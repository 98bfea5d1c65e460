//! The texts of a message that conditions look at, each with its kind and its place.
//!
//! One list holds header fields (as they came, and decoded where that differs), the text of parts, names and kinds of
//! attachments, charsets, and the words of the envelope. Only the kinds that some rule asks for are made.

use std::borrow::Cow;
use std::fmt;
use std::ops::BitOr;

use mail::header::{Field, HeaderSection, Item};

use crate::Limits;
use crate::header_text::{self, HeaderText};
use crate::message::Message;
use crate::mime::{self, Damage, DamageSet, Tree};

/// Octets of an attachment that show its kind.
const SNIFFED_OCTETS: usize = 35_000;

/// A set of kinds of texts.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Kinds(u16);

impl Kinds {
    pub(crate) const NOTHING: Self = Self(0);
    pub(crate) const RAW_HEADER: Self = Self(1);
    pub(crate) const DECODED_HEADER: Self = Self(1 << 1);
    pub(crate) const PART_HEADER: Self = Self(1 << 2);
    pub(crate) const BODY: Self = Self(1 << 3);
    pub(crate) const SENDER: Self = Self(1 << 4);
    pub(crate) const RECIPIENT: Self = Self(1 << 5);
    pub(crate) const CLIENT_NAME: Self = Self(1 << 6);
    pub(crate) const HELO: Self = Self(1 << 7);
    pub(crate) const ATTACHMENT_NAME: Self = Self(1 << 8);
    pub(crate) const ATTACHMENT_TYPE: Self = Self(1 << 9);
    pub(crate) const PART_TYPE: Self = Self(1 << 10);
    pub(crate) const CHARSET: Self = Self(1 << 11);
    /// No text: the walk over the parts.
    pub(crate) const STRUCTURE: Self = Self(1 << 12);

    pub(crate) const HEADER: Self = Self(Self::RAW_HEADER.0 | Self::DECODED_HEADER.0 | Self::PART_HEADER.0);
    /// Addresses and names of hosts.
    pub(crate) const ADDRESSES: Self = Self(Self::SENDER.0 | Self::RECIPIENT.0 | Self::CLIENT_NAME.0 | Self::HELO.0);

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The kinds for which the parts must be known.
    const OF_PARTS: Self = Self(
        Self::PART_HEADER.0
            | Self::BODY.0
            | Self::ATTACHMENT_NAME.0
            | Self::ATTACHMENT_TYPE.0
            | Self::PART_TYPE.0
            | Self::CHARSET.0
            | Self::STRUCTURE.0,
    );

    const OF_HEADER: Self = Self(Self::RAW_HEADER.0 | Self::DECODED_HEADER.0 | Self::CHARSET.0);
}

impl BitOr for Kinds {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kinds({:b})", self.0)
    }
}

/// A text of the message.
#[derive(Clone, Debug)]
pub(crate) struct Text<'a> {
    pub(crate) kinds: Kinds,
    /// The name of a header field; empty for other kinds.
    pub(crate) name: &'a str,
    pub(crate) text: Cow<'a, str>,
    /// Where the value of a header field begins in the text.
    pub(crate) value_at: usize,
    /// The text is HTML.
    pub(crate) is_html: bool,
    /// The index of the part that has it; 0 for the message.
    pub(crate) part: usize,
}

/// The texts of a message, and the findings on the way to them.
pub(crate) struct Texts<'a> {
    pub(crate) list: Vec<Text<'a>>,
    pub(crate) tree: Option<Tree>,
    pub(crate) damage: DamageSet,
    pub(crate) limits_reached: Vec<&'static str>,
}

impl<'a> Texts<'a> {
    /// Collects the texts of the wanted kinds.
    pub(crate) fn of(message: &Message<'a>, wanted: Kinds, limits: &Limits) -> Self {
        let mut out = Self { list: Vec::new(), tree: None, damage: DamageSet::default(), limits_reached: Vec::new() };
        out.envelope(message, wanted);
        let content = message.content;
        if wanted.overlaps(Kinds::OF_HEADER) {
            let readable = content.get(..limits.header_bytes_max).unwrap_or(content);
            let header = HeaderSection::read(readable, message.line_end);
            if !header.is_closed() && readable.len() < content.len() {
                out.reach("header bytes");
            }
            out.header(&header, wanted, limits);
        }
        if wanted.overlaps(Kinds::OF_PARTS) {
            let tree = mime::walk(content, message.line_end, limits);
            tree.limits_reached.iter().for_each(|limit| out.reach(limit));
            out.damage.extend(tree.damage());
            out.parts(message, &tree, wanted, limits);
            out.tree = Some(tree);
        }
        if !message.is_complete {
            out.reach("size of the scan");
        }
        out
    }

    fn reach(&mut self, limit: &'static str) {
        if !self.limits_reached.contains(&limit) {
            self.limits_reached.push(limit);
        }
    }

    fn add(&mut self, kinds: Kinds, text: impl Into<Cow<'a, str>>, part: usize) {
        self.list.push(Text { kinds, name: "", text: text.into(), value_at: 0, is_html: false, part });
    }

    fn envelope(&mut self, message: &Message<'a>, wanted: Kinds) {
        if wanted.overlaps(Kinds::SENDER) {
            self.add(Kinds::SENDER, message.sender, 0);
        }
        if wanted.overlaps(Kinds::RECIPIENT) {
            message.recipients.iter().for_each(|one| self.add(Kinds::RECIPIENT, one.address, 0));
        }
        if wanted.overlaps(Kinds::CLIENT_NAME)
            && let Some(name) = message.client_name
        {
            self.add(Kinds::CLIENT_NAME, name, 0);
        }
        if wanted.overlaps(Kinds::HELO)
            && let Some(name) = message.helo
        {
            self.add(Kinds::HELO, name, 0);
        }
    }

    fn header(&mut self, header: &HeaderSection<'a>, wanted: Kinds, limits: &Limits) {
        for (index, item) in header.items().enumerate() {
            if index >= limits.fields_max {
                return self.reach("fields");
            }
            match item {
                Item::Field(field) => self.field(field, wanted),
                // Lines that are no field are text of the header section all the same.
                Item::Malformed(lines) => {
                    let text = octets_as_text(lines.raw().trim_ascii_end());
                    self.list.push(Text {
                        kinds: Kinds::RAW_HEADER,
                        name: "",
                        value_at: 0,
                        text,
                        is_html: false,
                        part: 0,
                    });
                }
            }
        }
    }

    fn field(&mut self, field: Field<'a>, wanted: Kinds) {
        let (text, value_at) = field_text(field);
        let push = |list: &mut Vec<Text<'a>>, kinds, text| {
            list.push(Text { kinds, name: field.name(), text, value_at, is_html: false, part: 0 });
        };
        let value = field.value();
        let is_plain = value.is_ascii() && memchr::memmem::find(value, b"=?").is_none();
        if is_plain || !wanted.overlaps(Kinds::DECODED_HEADER | Kinds::CHARSET) {
            push(&mut self.list, Kinds::RAW_HEADER | Kinds::DECODED_HEADER, text);
            return;
        }
        let HeaderText { text: decoded, charsets, guessed, has_unknown_charset, is_damaged } =
            header_text::decode(value.trim_ascii());
        self.damage.add_if(has_unknown_charset, Damage::UnknownCharset);
        self.damage.add_if(is_damaged, Damage::BadText);
        push(&mut self.list, Kinds::RAW_HEADER, text);
        push(&mut self.list, Kinds::DECODED_HEADER, Cow::Owned(format!("{}: {decoded}", field.name())));
        if wanted.overlaps(Kinds::CHARSET) {
            charsets.into_iter().for_each(|label| self.add(Kinds::CHARSET, label, 0));
            guessed.into_iter().for_each(|name| self.add(Kinds::CHARSET, name, 0));
        }
    }

    fn parts(&mut self, message: &Message<'a>, tree: &Tree, wanted: Kinds, limits: &Limits) {
        let mut octets_left = limits.decoded_bytes_max;
        for (index, part) in tree.parts.iter().enumerate() {
            if wanted.overlaps(Kinds::PART_HEADER) && index > 0 {
                self.part_header(message, part, index, limits);
            }
            if wanted.overlaps(Kinds::CHARSET)
                && let Some(label) = &part.content.charset
            {
                self.add(Kinds::CHARSET, label.clone(), index);
            }
            if wanted.overlaps(Kinds::PART_TYPE) {
                self.add(Kinds::PART_TYPE, format!("{}/{}", part.content.kind, part.content.subtype), index);
            }
            let is_attachment = part.content.is_attachment();
            if wanted.overlaps(Kinds::ATTACHMENT_NAME) {
                part.content.names.iter().for_each(|name| self.add(Kinds::ATTACHMENT_NAME, name.clone(), index));
            }
            let is_text = part.is_leaf() && part.content.kind == "text";
            let wants_text = is_text && wanted.overlaps(Kinds::BODY);
            let wants_kind = part.is_leaf() && is_attachment && wanted.overlaps(Kinds::ATTACHMENT_TYPE);
            if !wants_text && !wants_kind {
                continue;
            }
            let octets_max = if wants_text { octets_left } else { SNIFFED_OCTETS.min(octets_left) };
            let decoded = part.decode(message.content, octets_max);
            octets_left -= decoded.octets.len();
            self.damage.extend(decoded.damage);
            if decoded.is_cut && (wants_text || octets_max < SNIFFED_OCTETS) {
                self.reach("decoded bytes");
            }
            if wants_kind && let Some(kind) = mime::sniff(&decoded.octets) {
                self.add(Kinds::ATTACHMENT_TYPE, kind, index);
            }
            if wants_text {
                let text = match decoded.octets {
                    Cow::Borrowed(octets) => part.text(octets, &mut self.damage),
                    Cow::Owned(octets) => Cow::Owned(part.text(&octets, &mut self.damage).into_owned()),
                };
                let is_html = part.content.subtype.contains("html");
                self.list.push(Text { kinds: Kinds::BODY, name: "", text, value_at: 0, is_html, part: index });
            }
        }
    }

    fn part_header(&mut self, message: &Message<'a>, part: &mime::Part, index: usize, limits: &Limits) {
        let section = message.content.get(part.header.clone()).unwrap_or_default();
        let header = HeaderSection::read(section, message.line_end);
        for field in header.fields().take(limits.fields_max) {
            let (text, value_at) = field_text(field);
            let kinds = Kinds::PART_HEADER;
            self.list.push(Text { kinds, name: field.name(), text, value_at, is_html: false, part: index });
        }
    }
}

/// Returns a field as `Name: value` on one line, and where the value begins. Copies only if the field is spelt
/// otherwise.
fn field_text(field: Field<'_>) -> (Cow<'_, str>, usize) {
    let value_at = field.name().len() + 2;
    let raw = field.raw().trim_ascii_end();
    let is_as_wanted = memchr::memchr2(b'\n', b'\r', raw).is_none()
        && raw.get(field.name().len()..value_at) == Some(b": ")
        && raw.get(value_at).is_none_or(|byte| !byte.is_ascii_whitespace());
    if is_as_wanted && let Ok(text) = str::from_utf8(raw) {
        return (Cow::Borrowed(text), value_at);
    }
    (Cow::Owned(format!("{}: {}", field.name(), octets_as_text(&field.unfolded()))), value_at)
}

/// Returns octets as text: UTF-8, or else each octet as the character of its number, so that patterns can name it.
fn octets_as_text<'a>(octets: &[u8]) -> Cow<'a, str> {
    Cow::Owned(match str::from_utf8(octets) {
        Ok(text) => text.to_owned(),
        Err(_) => octets.iter().copied().map(char::from).collect(),
    })
}

//! The signed text of a link: `ID.POSITION.END.TAG`. It names a message, the position of the recipient in it, and the
//! end of its time in quarantine.

use crate::secret_key::SecretKey;
use mail::QueueId;

/// The purpose of the tag.
const PURPOSE: &str = "quarantine link";

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReleaseLink {
    pub(super) id: QueueId,
    pub(super) position: u32,
    /// Seconds since 1970; 0: it has no end.
    pub(super) ends: u32,
}

impl ReleaseLink {
    /// Returns the text with its tag.
    pub(super) fn to_text(self, key: &SecretKey) -> String {
        let Self { id, position, ends } = self;
        key.sign(PURPOSE, &format!("{id}.{position}.{ends}"), '.')
    }

    /// Reads a text; `None`: it is forged, or damaged.
    pub(super) fn parse(text: &str, key: &SecretKey) -> Option<Self> {
        let signed = key.signed(PURPOSE, text, '.')?;
        let mut parts = signed.split('.');
        let (id, position, ends) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { id: id.parse().ok()?, position: position.parse().ok()?, ends: ends.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_reads_back_and_no_part_of_it_can_be_changed() {
        let key = SecretKey::of_process();
        let link = ReleaseLink { id: QueueId::MIN, position: 1, ends: 1_790_000_000 };
        let text = link.to_text(&key);
        assert_eq!(ReleaseLink::parse(&text, &key), Some(link));
        assert_eq!(ReleaseLink::parse(&text, &SecretKey::of_process()), None);
        for at in 0..text.len() {
            let mut octets = text.clone().into_bytes();
            octets[at] = if octets[at] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(octets).expect("ASCII");
            assert_eq!(ReleaseLink::parse(&changed, &key), None, "{changed}");
        }
        for text in ["", ".", "...", &text[..text.len() - 1], &format!("{text}0"), &format!("{text}.")] {
            assert_eq!(ReleaseLink::parse(text, &key), None, "{text}");
        }
    }
}

//! Puts a message in a class: the class decides which mail goes first at a destination.
//!
//! The class is decided when a message is stored, by the client's priority and the header, and kept with the state of
//! each recipient, so that the message is not read again for it.

use mail::MailParams;
use schedule::Class;

/// Header fields that tell list and bulk mail from personal mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeaderHints {
    /// The number of its `Precedence:`, below 0 for lists, bulk and junk.
    pub(crate) precedence: i32,
    /// It has a `List-Id:`.
    pub(crate) has_list_id: bool,
}

/// Returns the class of a message. A priority that the client gave counts more than the header. `bulk_precedence` is
/// `delivery.bulk_precedence`: whether the header is looked at.
// RFC 6710 §5, §9.2: the three levels of MIXER, -4, 0 and 4; a value between two counts as the higher, one above as 4
#[must_use]
pub(crate) fn class_of(params: &MailParams, sort: HeaderHints, bulk_precedence: bool) -> Class {
    match params.mt_priority.map(mail::MtPriority::get) {
        Some(1..) => Class::Urgent,
        Some(..=-4) => Class::Bulk,
        // Zero is the value of a message without the field.
        _ if bulk_precedence && (sort.precedence < 0 || sort.has_list_id) => Class::Bulk,
        _ => Class::Normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6710 §5 (test)
    #[test]
    fn priority_counts_more_than_the_header() {
        let plain = HeaderHints::default();
        let listed = HeaderHints { has_list_id: true, ..plain };
        let bulk = HeaderHints { precedence: -60, ..plain };
        let special = HeaderHints { precedence: 100, ..plain };
        for (params, sort, wanted) in [
            ("", plain, Class::Normal),
            ("", listed, Class::Bulk),
            ("", bulk, Class::Bulk),
            ("", special, Class::Normal),
            ("MT-PRIORITY=1", bulk, Class::Urgent),
            ("MT-PRIORITY=9", plain, Class::Urgent),
            ("MT-PRIORITY=-9", plain, Class::Bulk),
            ("MT-PRIORITY=-4", plain, Class::Bulk),
            ("MT-PRIORITY=-3", plain, Class::Normal),
            ("MT-PRIORITY=-1", plain, Class::Normal),
            ("MT-PRIORITY=-3", listed, Class::Bulk),
            ("MT-PRIORITY=0", plain, Class::Normal),
            ("MT-PRIORITY=0", listed, Class::Bulk),
        ] {
            let params: MailParams = params.parse().unwrap();
            assert_eq!(class_of(&params, sort, true), wanted, "{params} {sort:?}");
        }
        assert_eq!(class_of(&MailParams::default(), bulk, false), Class::Normal);
        for class in [Class::Urgent, Class::Normal, Class::Bulk] {
            assert_eq!(Class::from_bits(class.bits()), class);
        }
        assert_eq!(Class::from_bits(3), Class::Normal);
    }
}

//! A certificate in DER, as far as the server needs it: rustls gives neither names nor times.
//!
//! Certificates come from unknown peers. Anything unexpected is `None`, never a panic.

pub(super) const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const UNIVERSAL_STRING: u8 = 0x1c;
pub(super) const BMP_STRING: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0]`, explicit.
const VERSION: u8 = 0xa0;
/// `[3]`, explicit.
const EXTENSIONS: u8 = 0xa3;

/// Parts of a certificate, each the contents of its SEQUENCE.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) issuer: &'a [u8],
    pub(super) validity: &'a [u8],
    pub(super) subject: &'a [u8],
    /// Empty if there are none that can be read.
    pub(super) extensions: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Finds the parts of a certificate.
    // RFC 5280 §4.1: Certificate, TBSCertificate
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = take(certificate, SEQUENCE)?;
        let (mut rest, _) = take(certificate, SEQUENCE)?;
        if let Some((_, after_version)) = take(rest, VERSION) {
            rest = after_version;
        }
        // serialNumber, signature
        for tag in [INTEGER, SEQUENCE] {
            (_, rest) = take(rest, tag)?;
        }
        let (issuer, rest) = take(rest, SEQUENCE)?;
        let (validity, rest) = take(rest, SEQUENCE)?;
        let (subject, rest) = take(rest, SEQUENCE)?;
        Some(Self { issuer, validity, subject, extensions: extensions(rest).unwrap_or_default() })
    }
}

/// Returns the content of the list of extensions, behind the subject.
fn extensions(rest: &[u8]) -> Option<&[u8]> {
    // subjectPublicKeyInfo
    let (_, rest) = take(rest, SEQUENCE)?;
    let (list, _) = take(rest, EXTENSIONS)?;
    take(list, SEQUENCE).map(|(list, _)| list)
}

/// Splits the contents of an element with this tag from the octets behind it.
pub(super) fn take(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (length, mut rest) = rest.split_first()?;
    let mut octets = usize::from(*length);
    if octets >= 0x80 {
        let (digits, after) = rest.split_at_checked(octets & 0x7f)?;
        // No digits: the length is not given, which BER allows and DER does not.
        if digits.is_empty() || digits.len() > size_of::<u32>() {
            return None;
        }
        octets = digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit));
        rest = after;
    }
    (*first == tag).then(|| rest.split_at_checked(octets))?
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    /// Makes one with these alternative names, which signed itself.
    pub(in super::super) fn certificate(names: &[&str]) -> Vec<u8> {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    // RFC 5280 §4.1 (test)
    #[test]
    fn the_parts_are_found() {
        let with = certificate(&["mx.example.org"]);
        let parts = Parts::of(&with).unwrap();
        assert!(parts.subject.first() == Some(&SET) && parts.issuer == parts.subject);
        assert!(take(parts.validity, UTC_TIME).is_some() && take(parts.extensions, SEQUENCE).is_some());
        let without = certificate(&[]);
        assert_eq!(Parts::of(&without).unwrap().extensions, b"");
    }

    #[test]
    fn lengths_that_are_none_are_refused() {
        for der in [
            &[][..],
            &[SEQUENCE],
            // More than there is, in all forms.
            &[SEQUENCE, 1],
            &[SEQUENCE, 0x81],
            &[SEQUENCE, 0x81, 2, 0],
            &[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
            &[SEQUENCE, 0x85, 0, 0, 0, 0, 0],
            &[SEQUENCE, 0xff, 0xff, 0xff],
            // Another tag.
            &[SET, 0],
        ] {
            assert_eq!(take(der, SEQUENCE), None, "{der:x?}");
        }
        assert_eq!(take(&[SEQUENCE, 0x81, 1, 7, 9], SEQUENCE), Some((&[7][..], &[9][..])));
    }

    // X.690 §10.1: the definite form
    #[test]
    fn a_length_that_is_not_said_is_refused() {
        assert_eq!(take(&[SEQUENCE, 0x80, INTEGER, 1, 1, 0, 0], SEQUENCE), None);
    }

    #[test]
    fn damage_is_no_panic() {
        let good = certificate(&["mx.example.org"]);
        for at in 0..good.len() {
            assert_eq!(Parts::of(&good[..at]), None);
            for byte in [0, 0x7f, 0x80, 0x84, 0x88, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                Parts::of(&bad);
            }
        }
    }
}

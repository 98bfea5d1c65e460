//! The main host of a certificate: its first alternative name, in place of the former common name.
//!
//! rustls decides whether a certificate is for a given host. Anything unexpected in the DER is no name, never a
//! panic.

use super::der::{BOOLEAN, OCTETS, OID, Parts, SEQUENCE, take};

/// `[2]` of a `GeneralName`.
const DNS_NAME: u8 = 0x82;
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Returns the first name of a host among the alternative names of a certificate in DER.
// RFC 5280 §4.2.1.6: subjectAltName
pub(super) fn first_host(certificate: &[u8]) -> Option<String> {
    let mut rest = Parts::of(certificate)?.extensions;
    while let Some((extension, after)) = take(rest, SEQUENCE) {
        rest = after;
        let Some((ALTERNATIVE_NAME, value)) = take(extension, OID) else { continue };
        let value = take(value, BOOLEAN).map_or(value, |(_, after)| after);
        let (value, _) = take(value, OCTETS)?;
        let (mut list, _) = take(value, SEQUENCE)?;
        while let Some(tag) = list.first() {
            let (one, after) = take(list, *tag)?;
            list = after;
            if *tag == DNS_NAME
                && let Ok(one) = str::from_utf8(one)
            {
                return Some(one.to_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::der::tests::certificate;
    use super::*;

    // RFC 5280 §4.2.1.6 (test)
    #[test]
    fn the_first_host_is_found_among_the_names() {
        for (names, first) in [
            (&["192.0.2.1", "mx.example.org", "*.example.net"][..], Some("mx.example.org")),
            (&["*.example.net"], Some("*.example.net")),
            (&["192.0.2.1"], None),
            (&[], None),
        ] {
            assert_eq!(first_host(&certificate(names)).as_deref(), first, "{names:?}");
        }
    }

    #[test]
    fn damage_is_no_panic() {
        let good = certificate(&["mx.example.org"]);
        for at in 0..good.len() {
            assert_eq!(first_host(&good[..at]), None);
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                drop(first_host(&bad));
            }
        }
    }
}

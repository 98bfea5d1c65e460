//! The names of hosts that a certificate is for: its alternative names, which stand where common names once did.
//!
//! Anything unexpected in the DER is no name, never a panic.

use super::validity::{INTEGER, SEQUENCE, VERSION, take};

const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
/// `[3]`, explicit.
const EXTENSIONS: u8 = 0xa3;
/// `[2]` of a `GeneralName`.
const DNS_NAME: u8 = 0x82;
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads the names of hosts of a certificate in DER.
// RFC 5280 §4.2.1.6: subjectAltName
pub(super) fn host_names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let Some(mut rest) = extensions(certificate) else { return names };
    while let Some((extension, after)) = take(rest, SEQUENCE) {
        rest = after;
        let Some((ALTERNATIVE_NAME, value)) = take(extension, OID) else { continue };
        let value = take(value, BOOLEAN).map_or(value, |(_, after)| after);
        let list = take(value, OCTETS).and_then(|(value, _)| take(value, SEQUENCE));
        let mut list = list.map_or(&[][..], |(list, _)| list);
        while let Some(tag) = list.first()
            && let Some((one, after)) = take(list, *tag)
        {
            list = after;
            if *tag == DNS_NAME
                && let Ok(one) = str::from_utf8(one)
            {
                names.push(one.to_owned());
            }
        }
    }
    names
}

/// Whether a name stands for a host; a star for one label.
// RFC 6125 §6.4.3: a star is the whole leftmost label
pub(super) fn is_for(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(rest), Some((_, parent))) => rest.contains('.') && rest.eq_ignore_ascii_case(parent),
        _ => pattern.eq_ignore_ascii_case(host),
    }
}

// RFC 5280 §4.1: Certificate, TBSCertificate
fn extensions(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut rest, _) = take(certificate, SEQUENCE)?;
    if let Some((_, after_version)) = take(rest, VERSION) {
        rest = after_version;
    }
    // serialNumber, signature, issuer, validity, subject, subjectPublicKeyInfo
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE, SEQUENCE] {
        (_, rest) = take(rest, tag)?;
    }
    let (extensions, _) = take(rest, EXTENSIONS)?;
    take(extensions, SEQUENCE).map(|(list, _)| list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn certificate(names: &[&str]) -> Vec<u8> {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    // RFC 5280 §4.2.1.6 (test), RFC 6125 §6.4.3 (test)
    #[test]
    fn hosts_are_found_among_the_names() {
        assert_eq!(host_names(&certificate(&["mx.example.org", "*.example.net"])), ["mx.example.org", "*.example.net"]);
        assert_eq!(host_names(&certificate(&["192.0.2.1"])), Vec::<String>::new());
        assert_eq!(host_names(&certificate(&[])), Vec::<String>::new());
        for (pattern, host, fits) in [
            ("mx.example.org", "MX.example.org.", true),
            ("*.example.net", "a.example.net", true),
            ("*.example.net", "a.b.example.net", false),
            ("*.example.net", "example.net", false),
            ("*.net", "example.net", false),
            ("m*.example.net", "mx.example.net", false),
        ] {
            assert_eq!(is_for(pattern, host), fits, "{pattern} {host}");
        }
    }

    #[test]
    fn damage_is_no_panic() {
        let good = certificate(&["mx.example.org"]);
        for at in 0..good.len() {
            host_names(&good[..at]);
            for byte in [0, 0x7f, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                host_names(&bad);
            }
        }
    }
}

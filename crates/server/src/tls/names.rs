//! What a certificate says of its owner and its issuer, as sendmail writes it: `/C=US/O=Example+20Org/CN=mx.example.com`.
//!
//! Anything unexpected is left out, never a panic: who relies on a name compares it with another one.

use super::validity::take;
use route::access::demand::Certificate;

const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]` and `[3]`, explicit.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `[2]` of a `GeneralName`.
const DNS_NAME: u8 = 0x82;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// The names of attributes, as OpenSSL has them.
const ATTRIBUTES: [(&[u8], &str); 14] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x04], "SN"),
    (&[0x55, 0x04, 0x05], "serialNumber"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "street"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x55, 0x04, 0x0c], "title"),
    (&[0x55, 0x04, 0x2a], "GN"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], "UID"),
];

/// Reads a certificate in DER.
// RFC 5280 §4.1: Certificate, TBSCertificate
pub(super) fn read(certificate: &[u8]) -> Option<Certificate> {
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
    let (_validity, rest) = take(rest, SEQUENCE)?;
    let (subject, rest) = take(rest, SEQUENCE)?;
    let (_key, rest) = take(rest, SEQUENCE)?;
    let (subject, common_name) = name(subject);
    Some(Certificate {
        subject,
        issuer: name(issuer).0,
        common_name,
        names: take(rest, EXTENSIONS).map(|(extensions, _)| host_names(extensions)).unwrap_or_default(),
    })
}

/// A name as text, and its common name.
// RFC 5280 §4.1.2.4: Name
fn name(mut rest: &[u8]) -> (String, String) {
    let (mut text, mut common_name) = (String::new(), String::new());
    while let Some((mut set, after)) = take(rest, SET) {
        rest = after;
        while let Some((attribute, after)) = take(set, SEQUENCE) {
            set = after;
            let Some((oid, value)) = take(attribute, OID) else { continue };
            let Some(value) = contents(value) else { continue };
            let known = ATTRIBUTES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
            text.push('/');
            text.push_str(known.unwrap_or("UNKNOWN"));
            text.push('=');
            hidden(value, &mut text);
            if oid == COMMON_NAME {
                common_name.clear();
                hidden(value, &mut common_name);
            }
        }
    }
    (text, common_name)
}

/// The contents of an element with any tag.
fn contents(der: &[u8]) -> Option<&[u8]> {
    take(der, *der.first()?).map(|(contents, _)| contents)
}

/// As sendmail hides what a map could misread.
fn hidden(octets: &[u8], text: &mut String) {
    for octet in octets {
        match octet {
            b'+' | b'<' | b'>' | b'(' | b')' | b'"' => text.push_str(&format!("+{octet:02X}")),
            0x21..=0x7e => text.push(char::from(*octet)),
            _ => text.push_str(&format!("+{octet:02X}")),
        }
    }
}

/// The names of hosts among the alternative names.
// RFC 5280 §4.2.1.6: subjectAltName
fn host_names(extensions: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let Some((mut rest, _)) = take(extensions, SEQUENCE) else { return names };
    while let Some((extension, after)) = take(rest, SEQUENCE) {
        rest = after;
        let Some((ALTERNATIVE_NAME, value)) = take(extension, OID) else { continue };
        let value = take(value, BOOLEAN).map_or(value, |(_, after)| after);
        let Some((list, _)) = take(value, OCTETS).and_then(|(value, _)| take(value, SEQUENCE)) else { continue };
        let mut list = list;
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate() -> Vec<u8> {
        let names = vec!["mx.example.org".to_owned(), "*.example.net".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CountryName, "US");
        params.distinguished_name.push(DnType::OrganizationName, "Example (Org)");
        params.distinguished_name.push(DnType::CommonName, "mx.example.org");
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    // RFC 5280 §4.1.2.4 (test), RFC 5280 §4.2.1.6 (test)
    #[test]
    fn names_are_written_as_sendmail_does() {
        let read = read(&certificate()).unwrap();
        let name = "/C=US/O=Example+20+28Org+29/CN=mx.example.org";
        assert!(read.subject.contains(name), "{}", read.subject);
        assert_eq!(read.issuer, read.subject);
        assert_eq!(read.common_name, "mx.example.org");
        assert_eq!(read.names, ["mx.example.org", "*.example.net"]);
    }

    #[test]
    fn damage_is_no_panic() {
        let good = certificate();
        for at in 0..good.len() {
            read(&good[..at]);
            for byte in [0, 0x7f, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                read(&bad);
            }
        }
    }
}

//! Subject and issuer of a certificate, as sendmail writes names: `/C=US/O=Example/CN=Example+20CA`.
//!
//! The short names are those of OpenSSL; characters that are not printable, blanks and `<>()"+` are hexadecimal behind
//! a `+`, so that a name is one word in a map. A slash within a value is `+2F` here: sendmail leaves it, and `O=x/CN=y`
//! would read as two names. Anything unexpected in the DER is `None`, never a panic.

use super::der::{BMP_STRING, OID, Parts, SEQUENCE, SET, UNIVERSAL_STRING, take};
use std::fmt::Write as _;

/// The names in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The name of its holder.
    pub(crate) subject: Box<str>,
    /// The name of its signer.
    pub(crate) issuer: Box<str>,
    /// The first common name of the subject.
    pub(crate) common_name: Option<Box<str>>,
}

/// Returns the names in a certificate in DER.
pub(super) fn names(certificate: &[u8]) -> Option<Names> {
    let parts = Parts::of(certificate)?;
    let (issuer, subject) = (attributes(parts.issuer)?, attributes(parts.subject)?);
    let common_name = subject.iter().find(|(kind, _)| kind == "CN").map(|(_, value)| value.as_str().into());
    Some(Names { subject: line(&subject), issuer: line(&issuer), common_name })
}

fn line(attributes: &[(String, String)]) -> Box<str> {
    let mut text = String::new();
    for (kind, value) in attributes {
        write!(text, "/{kind}={value}").expect("a string takes everything");
    }
    text.into()
}

/// Returns the attributes of a name, in their order.
// RFC 5280 §4.1.2.4: RDNSequence
fn attributes(mut name: &[u8]) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    while !name.is_empty() {
        let (mut set, after) = take(name, SET)?;
        while !set.is_empty() {
            let (pair, after) = take(set, SEQUENCE)?;
            let (oid, value) = take(pair, OID)?;
            let tag = *value.first()?;
            let (value, _) = take(value, tag)?;
            found.push((kind(oid), encoded(tag, value)));
            set = after;
        }
        name = after;
    }
    Some(found)
}

/// OpenSSL's short name of an attribute, or its numbers.
fn kind(oid: &[u8]) -> String {
    let short = match *oid {
        [0x55, 0x04, last] => match last {
            3 => "CN",
            4 => "SN",
            5 => "serialNumber",
            6 => "C",
            7 => "L",
            8 => "ST",
            9 => "street",
            10 => "O",
            11 => "OU",
            12 => "title",
            13 => "description",
            17 => "postalCode",
            41 => "name",
            42 => "GN",
            43 => "initials",
            44 => "generationQualifier",
            46 => "dnQualifier",
            65 => "pseudonym",
            97 => "organizationIdentifier",
            _ => "",
        },
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 1] => "UID",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 25] => "DC",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 1] => "emailAddress",
        _ => "",
    };
    if short.is_empty() { dotted(oid) } else { short.to_owned() }
}

fn dotted(oid: &[u8]) -> String {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for octet in oid {
        number = number << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    let first = numbers.first().copied().unwrap_or(0);
    let root = (first / 40).min(2);
    let mut text = format!("{root}.{}", first - root * 40);
    for number in numbers.iter().skip(1) {
        write!(text, ".{number}").expect("a string takes everything");
    }
    text
}

/// Returns a value as one word.
fn encoded(tag: u8, value: &[u8]) -> String {
    let wide: String;
    let octets = match tag {
        BMP_STRING => {
            let units = value.as_chunks::<2>().0.iter().map(|unit| u16::from_be_bytes(*unit));
            wide = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
            wide.as_bytes()
        }
        UNIVERSAL_STRING => {
            let units = value.as_chunks::<4>().0.iter().map(|unit| u32::from_be_bytes(*unit));
            wide = units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
            wide.as_bytes()
        }
        _ => value,
    };
    let mut text = String::with_capacity(octets.len());
    for octet in octets {
        match octet {
            b'<' | b'>' | b'(' | b')' | b'"' | b'+' | b'/' => write!(text, "+{octet:02X}"),
            0x21..=0x7e => text.write_char(char::from(*octet)),
            _ => write!(text, "+{octet:02X}"),
        }
        .expect("a string takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn made(entries: Vec<(DnType, DnValue)>) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in entries {
            params.distinguished_name.push(kind, value);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_are_written_as_sendmail_writes_them() {
        let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
        let der = made(vec![
            (DnType::CountryName, utf8("US")),
            (DnType::StateOrProvinceName, utf8("California")),
            (DnType::OrganizationName, utf8("endmail.org")),
            (DnType::OrganizationalUnitName, utf8("private/CN=root")),
            (DnType::CommonName, utf8("Darth Mail (Cert)")),
            (DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), utf8("darth+cert@endmail.org")),
            (DnType::CustomDnType(vec![2, 5, 4, 99]), utf8("\u{fc}")),
            (DnType::LocalityName, DnValue::BmpString("K\u{f6}ln".try_into().unwrap())),
        ]);
        let found = names(&der).unwrap();
        assert_eq!(
            &*found.subject,
            "/C=US/ST=California/O=endmail.org/OU=private+2FCN=root/CN=Darth+20Mail+20+28Cert+29\
             /emailAddress=darth+2Bcert@endmail.org/2.5.4.99=+C3+BC/L=K+C3+B6ln"
        );
        assert_eq!(found.issuer, found.subject);
        assert_eq!(found.common_name.as_deref(), Some("Darth+20Mail+20+28Cert+29"));
        let nameless = names(&made(Vec::new())).unwrap();
        assert_eq!((&*nameless.subject, nameless.common_name), ("", None));
    }

    #[test]
    fn broken_certificates_have_no_names() {
        let der = made(vec![(DnType::CommonName, DnValue::Utf8String("x".to_owned()))]);
        for end in 0..der.len() {
            assert_eq!(names(&der[..end]), None, "{end}");
        }
        for at in 0..der.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut changed = der.clone();
                changed[at] ^= bits;
                drop(names(&changed));
            }
        }
    }
}

//! Defects of a certificate in words for operators: rustls' errors as all judges of certificates read them.

use rustls::CertificateError;

/// A defect of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// None of the CAs has signed it.
    Stranger,
    /// It is that of a CA.
    OfCa,
    Expired,
    NotYetValid,
    /// It is for these hosts, and not for the one that is wanted.
    ForOthers {
        wanted: String,
        hosts: Vec<String>,
    },
    /// It is for servers, and a client presented it, or the other way round.
    OtherUse,
    /// In the words of the library.
    Other(String),
}

impl Flaw {
    pub(crate) fn of(error: &CertificateError) -> Self {
        match error {
            // A bad signature: a CA that was made anew has its name and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Stranger,
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::OfCa,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForNameContext { expected, presented } => {
                Self::ForOthers { wanted: expected.to_str().into_owned(), hosts: presented.clone() }
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::OtherUse,
            other => Self::Other(other.to_string()),
        }
    }

    /// Words the defect: `has expired`. `cas`: which CAs count, `in tls.client_ca`; `role`: the proper holder,
    /// `clients` or `servers`.
    pub(crate) fn text(&self, cas: &str, role: &str) -> String {
        match self {
            Self::Stranger => format!("is signed by none of the CAs {cas}"),
            Self::OfCa => format!("is that of a CA and not for {role}"),
            Self::Expired => "has expired".to_owned(),
            Self::NotYetValid => "is not valid yet".to_owned(),
            Self::ForOthers { wanted, hosts } if hosts.is_empty() => {
                format!("is not for {wanted}: it has no subjectAltName")
            }
            Self::ForOthers { wanted, hosts } => format!("is not for {wanted} but for {}", hosts.join(", ")),
            Self::OtherUse => format!("is not for {role}"),
            Self::Other(text) => format!("is not accepted: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::OtherError;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    #[derive(Debug)]
    struct CaUsedAsEndEntity;

    impl std::fmt::Display for CaUsedAsEndEntity {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("CA used")
        }
    }

    impl std::error::Error for CaUsedAsEndEntity {}

    #[test]
    fn each_flaw_has_words() {
        let others = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("d.test").unwrap(),
            presented: presented.iter().map(|name| (*name).to_owned()).collect(),
        };
        for (error, text) in [
            (CertificateError::UnknownIssuer, "is signed by none of the CAs in ca.pem"),
            (CertificateError::BadSignature, "is signed by none of the CAs in ca.pem"),
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "is not valid yet"),
            (CertificateError::InvalidPurpose, "is not for servers"),
            (CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity))), "is that of a CA and not for servers"),
            (others(&["e.test", "f.test"]), "is not for d.test but for e.test, f.test"),
            (others(&[]), "is not for d.test: it has no subjectAltName"),
            (CertificateError::BadEncoding, "is not accepted: BadEncoding"),
        ] {
            assert_eq!(Flaw::of(&error).text("in ca.pem", "servers"), text);
        }
    }
}

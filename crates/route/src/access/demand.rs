//! Whether a connection is what `TLS_Srv:`, `TLS_Rcpt:` and `TLS_Clt:` demand of it, with sendmail's codes and words.
//!
//! Without `PERM+` what is not good enough is tried again later. Names are compared with the common name of the certificate and
//! with its alternative names, since authorities no longer write the former.

use super::Access;
use super::tag::{Certified, Tagged, TlsDemand};
use crate::question::{Ask, Found, Stop};
use mail::{EnhancedCode, Outcome};
use std::fmt;

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secured<'a> {
    /// How the other side is called, for `CN` alone.
    pub name: &'a str,
    /// What was found out about the other side.
    pub verified: Verified<'a>,
    /// The strength of the encryption; 0 in clear.
    pub bits: u32,
    /// The certificate of the other side.
    pub certificate: Option<&'a Certificate>,
}

/// What was found out about the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified<'a> {
    /// Its certificate is good.
    Good,
    /// It is not, for this reason.
    Failed(&'a str),
    /// It showed none.
    Nothing,
    /// There is no encryption, since the other side does not offer it.
    NotOffered,
    /// There is no encryption, since we have not tried it.
    Clear,
}

/// What a certificate says, as sendmail writes it: `/C=US/O=Example+20Org/CN=mx.example.com`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// The common name of the subject.
    pub common_name: String,
    /// The names of hosts that it is for.
    pub names: Vec<String>,
}

impl Certificate {
    /// Whether it is for a host of this name; a star stands for one label.
    // RFC 6125 §6.4: wildcards only as the whole leftmost label
    fn is_for(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.');
        let fits = |pattern: &str| match (pattern.strip_prefix("*."), name.split_once('.')) {
            (Some(rest), Some((_, parent))) => rest.contains('.') && rest.eq_ignore_ascii_case(parent),
            _ => pattern.eq_ignore_ascii_case(name),
        };
        self.common_name.eq_ignore_ascii_case(name) || self.names.iter().any(|pattern| fits(pattern))
    }
}

/// A demand that a connection does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// `4.7.0`, or `5.7.0` with `PERM+`.
    pub status: EnhancedCode,
    /// sendmail's reply code: 454, with `TEMP+` 403, with `PERM+` 503.
    pub code: u16,
    /// What is missing.
    pub text: String,
    /// The entry.
    pub found: Found,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, code, text, found } = self;
        let line = found.place.line.map(|line| format!(" line {line}")).unwrap_or_default();
        write!(f, "{code} {status} {text} ({} {} in {}{line})", found.key, found.value, found.place.file)
    }
}

impl TlsDemand {
    /// Whether it cannot be met in clear.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        self.verify || self.bits > 0 || !self.further.is_empty()
    }
}

impl Access {
    /// What of a demand a connection does not meet; `None`: it meets all.
    ///
    /// # Errors
    /// When the map has to be asked for an issuer, or cannot be.
    pub fn unmet(
        &self,
        ask: &mut Ask<'_>,
        demand: &Tagged<TlsDemand>,
        connection: &Secured<'_>,
    ) -> Result<Option<Unmet>, Stop> {
        let Tagged { value: TlsDemand { is_temporary, verify, bits, further }, found } = demand;
        let (code, outcome) = match is_temporary {
            None => (454, Outcome::Transient),
            Some(true) => (403, Outcome::Transient),
            Some(false) => (503, Outcome::Permanent),
        };
        let unmet = |text: String| {
            Some(Unmet { status: EnhancedCode::of(outcome, 7, 0), code, text, found: found.clone() })
        };
        if *verify {
            let why = match connection.verified {
                Verified::Good => None,
                Verified::Failed(why) => Some(format!("authentication failed: {why}")),
                Verified::Nothing => Some("not authenticated".to_owned()),
                Verified::NotOffered => Some("other side does not support STARTTLS".to_owned()),
                Verified::Clear => Some("STARTTLS disabled locally".to_owned()),
            };
            if let Some(why) = why {
                return Ok(unmet(why));
            }
        }
        if connection.bits < *bits {
            return Ok(unmet(format!("encryption too weak {} less than {bits}", connection.bits)));
        }
        let nothing = Certificate::default();
        let certificate = connection.certificate.unwrap_or(&nothing);
        for one in further {
            let why = match one {
                Certified::Cn(name) => {
                    let name = name.as_deref().unwrap_or(connection.name);
                    let has = [std::slice::from_ref(&certificate.common_name), &certificate.names].concat().join(" ");
                    (!certificate.is_for(name)).then(|| format!("CN {has} does not match {name}"))
                }
                Certified::Subject(subject) => (certificate.subject != *subject)
                    .then(|| format!("Cert Subject {} does not match {subject}", certificate.subject)),
                Certified::Issuer(issuer) => (certificate.issuer != *issuer)
                    .then(|| format!("Cert Issuer {} does not match {issuer}", certificate.issuer)),
                Certified::IssuerTag(tag) => {
                    let key = format!("{tag}:{}", certificate.issuer);
                    let entry = ask.find(super::MAP, self.map(), &key)?;
                    let is_good = entry.is_some_and(|entry| entry.value.trim().eq_ignore_ascii_case("OK"));
                    (!is_good).then(|| format!("Cert Issuer {} not acceptable", certificate.issuer))
                }
            };
            if let Some(why) = why {
                return Ok(unmet(why));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::tag::Server;
    use super::super::tests::table;
    use super::*;
    use crate::question::Answers;

    fn certificate() -> Certificate {
        Certificate {
            subject: "/O=Bank/CN=mx.bank.example".to_owned(),
            issuer: "/C=US/O=Ca+20Org".to_owned(),
            common_name: "mx.bank.example".to_owned(),
            names: vec!["other.example".to_owned(), "*.wild.example".to_owned()],
        }
    }

    /// What is missing of `value` on a connection, as `code status text`.
    fn missing(value: &str, verified: Verified<'_>, bits: u32, has_certificate: bool) -> Option<String> {
        let map = table(&[("TLS_Srv:mx.bank.example", value), ("Good:/C=US/O=Ca+20Org", "OK")]);
        let access = Access::new(vec![map], Options::default());
        let answers = Answers::new();
        let mut ask = Ask::new(&answers);
        let server = Server { name: Some("mx.bank.example"), ip: None };
        let demand = access.tls_server(&mut ask, server).unwrap().expect("it is a demand");
        let certificate = certificate();
        let certificate = has_certificate.then_some(&certificate);
        let connection = Secured { name: "mx.bank.example", verified, bits, certificate };
        let unmet = access.unmet(&mut ask, &demand, &connection).unwrap()?;
        assert_eq!(unmet.found.key.as_ref(), "TLS_Srv:mx.bank.example");
        Some(format!("{} {} {}", unmet.code, unmet.status, unmet.text))
    }

    #[test]
    fn what_is_demanded_is_met() {
        for value in [
            "VERIFY",
            "VERIFY:256",
            "ENCR:256",
            "PERM+VERIFY:128+CN",
            "VERIFY+CN:mx.bank.example",
            "VERIFY+CN:OTHER.example",
            "VERIFY+CN:a.wild.example",
            "VERIFY+CI:/C=US/O=Ca+20Org++CS:/O=Bank/CN=mx.bank.example++CITag:Good",
        ] {
            assert_eq!(missing(value, Verified::Good, 256, true), None, "{value}");
        }
        assert_eq!(missing("ENCR:112", Verified::Failed("x"), 128, true), None);
        assert_eq!(missing("ENCR:0", Verified::NotOffered, 0, false), None);
    }

    #[test]
    fn what_is_missing_is_said_with_sendmails_codes() {
        let good = Verified::Good;
        for (value, verified, bits, text) in [
            ("VERIFY", Verified::Failed("expired"), 256, "454 4.7.0 authentication failed: expired"),
            ("TEMP+VERIFY", Verified::NotOffered, 0, "403 4.7.0 other side does not support STARTTLS"),
            ("PERM+VERIFY", Verified::Clear, 0, "503 5.7.0 STARTTLS disabled locally"),
            ("VERIFY:128", Verified::Nothing, 256, "454 4.7.0 not authenticated"),
            ("VERIFY:256", good, 128, "454 4.7.0 encryption too weak 128 less than 256"),
            ("PERM+ENCR:112", Verified::NotOffered, 0, "503 5.7.0 encryption too weak 0 less than 112"),
            (
                "VERIFY+CN:mx2.bank.example",
                good,
                256,
                "454 4.7.0 CN mx.bank.example other.example *.wild.example does not match mx2.bank.example",
            ),
            ("VERIFY+CI:/C=DE", good, 256, "454 4.7.0 Cert Issuer /C=US/O=Ca+20Org does not match /C=DE"),
            ("VERIFY+CS:/x", good, 256, "454 4.7.0 Cert Subject /O=Bank/CN=mx.bank.example does not match /x"),
            ("VERIFY+CITag:Bad", good, 256, "454 4.7.0 Cert Issuer /C=US/O=Ca+20Org not acceptable"),
        ] {
            assert_eq!(missing(value, verified, bits, bits > 0).as_deref(), Some(text), "{value}");
        }
        for name in ["wild.example", "a.b.wild.example", "bank.example"] {
            assert!(!certificate().is_for(name), "{name}");
        }
        assert!(missing("ENCR:0+CN", Verified::Clear, 0, false).is_some(), "in clear there is no name");
    }
}

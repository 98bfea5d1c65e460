//! Whether a connection meets the demands of `TLS_Clt:`, `TLS_Srv:` and `TLS_Rcpt:`, in sendmail's words.
//!
//! Invariant: names of a certificate count only if it was verified. sendmail looks at them in any case, so that with
//! `ENCR:112+CN:name` a peer that signs its own certificate can have any name.

use super::tag::{Certified, Tagged, TlsDemand};
use super::{Access, MAP, value};
use crate::question::{Ask, Stop};
use crate::refusal::Refusal;
use mail::{EnhancedCode, Outcome};

/// The result of the check of the other side's certificate: sendmail's `${verify}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// `NONE`: there is no encryption.
    #[default]
    None,
    /// `NOT`: it was not asked for.
    Not,
    /// `NO`: none was shown.
    No,
    /// `FAIL`: it was shown and could not be verified.
    Fail,
    /// `OK`: it was verified.
    Ok,
}

impl Verify {
    /// sendmail's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Not => "NOT",
            Self::No => "NO",
            Self::Fail => "FAIL",
            Self::Ok => "OK",
        }
    }
}

/// The properties of a connection, encrypted or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Secured<'a> {
    /// The result of the check of its certificate.
    pub verify: Verify,
    /// Bits of the key of the encryption; 0 without.
    pub bits: u32,
    /// The common name of the certificate.
    pub common_name: Option<&'a str>,
    /// The subject of the certificate, as in [`super::Certificate`].
    pub subject: Option<&'a str>,
    /// The issuer of the certificate.
    pub issuer: Option<&'a str>,
    /// The name of the other side, for `CN` without a name.
    pub name: Option<&'a str>,
}

impl<'a> Secured<'a> {
    fn verified(&self, name: Option<&'a str>) -> &'a str {
        name.filter(|_| self.verify == Verify::Ok).unwrap_or_default()
    }
}

impl Access {
    /// Why a connection is not good enough; `None`: it is.
    ///
    /// # Errors
    /// When the map has to be asked for `CITag:`, or cannot be.
    pub fn lacks(
        &self,
        ask: &mut Ask<'_>,
        demand: &Tagged<TlsDemand>,
        connection: &Secured<'_>,
    ) -> Result<Option<Refusal>, Stop> {
        let Some(text) = self.lacking(ask, &demand.value, connection)? else { return Ok(None) };
        let code = |outcome| EnhancedCode::of(outcome, 7, 0);
        let (reply, status) = match demand.value.is_temporary {
            Some(true) => (403, code(Outcome::Transient)),
            Some(false) => (503, code(Outcome::Permanent)),
            None => (454, code(Outcome::Transient)),
        };
        Ok(Some(Refusal::new(reply, status, &text).with_found(Some(demand.found.clone()))))
    }

    fn lacking(&self, ask: &mut Ask<'_>, demand: &TlsDemand, connection: &Secured<'_>) -> Result<Option<String>, Stop> {
        if demand.verify && connection.verify != Verify::Ok {
            let text = match connection.verify {
                Verify::None => "other side does not support STARTTLS",
                Verify::Not => "no authentication requested",
                Verify::No => "not authenticated",
                Verify::Fail | Verify::Ok => "authentication failed",
            };
            return Ok(Some(text.to_owned()));
        }
        if connection.bits < demand.bits {
            let (bits, wanted) = (connection.bits, demand.bits);
            return Ok(Some(format!("encryption too weak {bits} less than {wanted}")));
        }
        for further in &demand.further {
            let (what, has, wants) = match further {
                Certified::Cn(name) => {
                    let wanted = name.as_deref().or(connection.name).unwrap_or_default();
                    ("CN", connection.verified(connection.common_name), wanted)
                }
                Certified::Subject(subject) => ("Cert Subject", connection.verified(connection.subject), &**subject),
                Certified::Issuer(issuer) => ("Cert Issuer", connection.verified(connection.issuer), &**issuer),
                Certified::IssuerTag(tag) => {
                    let issuer = connection.verified(connection.issuer);
                    if !self.has_issuer(ask, tag, issuer)? {
                        return Ok(Some(format!("Cert Issuer {issuer} not acceptable")));
                    }
                    continue;
                }
            };
            // Two that are empty are no match.
            if has.is_empty() || !has.eq_ignore_ascii_case(wants.trim_end_matches('.')) {
                return Ok(Some(format!("{what} {has} does not match {wants}")));
            }
        }
        Ok(None)
    }

    /// Whether the map has `tag:issuer` with `OK`.
    fn has_issuer(&self, ask: &mut Ask<'_>, tag: &str, issuer: &str) -> Result<bool, Stop> {
        if issuer.is_empty() {
            return Ok(false);
        }
        let found = ask.find(MAP, &self.map, &format!("{tag}:{issuer}"))?;
        Ok(found.is_some_and(|found| value::AccessValue::parse(&found.value) == value::AccessValue::Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{known, table};
    use super::super::{Client, ClientName, Options};
    use super::*;

    const CA: &str = "/C=US/O=Example/CN=Example+20CA";
    const GOOD: Secured<'_> = Secured {
        verify: Verify::Ok,
        bits: 256,
        common_name: Some("mx.good.test"),
        subject: Some("/CN=mx.good.test"),
        issuer: Some(CA),
        name: Some("mx.good.test"),
    };

    fn told(demand: &str, connection: &Secured<'_>) -> String {
        let entries = [("TLS_Clt:good.test", demand), (&*format!("Trusted:{CA}"), "OK"), ("Other:/x", "REJECT")];
        let access = Access::new(vec![table(&entries)], Options::default());
        let client = Client::of("192.0.2.1".parse().unwrap()).named(ClientName::Verified("mx.good.test"));
        let demand = known(|ask| access.tls_client(ask, &client)).expect("a demand");
        let lacks = known(|ask| access.lacks(ask, &demand, connection));
        lacks.map_or_else(|| "+".to_owned(), |refusal| refusal.to_string())
    }

    #[test]
    fn what_is_demanded_is_there_or_said() {
        let plain = Secured::default();
        let with = |verify| Secured { verify, ..GOOD };
        for (demand, connection, want) in [
            ("VERIFY", GOOD, "+"),
            ("VERIFY", plain, "454 4.7.0 other side does not support STARTTLS"),
            ("VERIFY", with(Verify::Not), "454 4.7.0 no authentication requested"),
            ("TEMP+VERIFY", with(Verify::No), "403 4.7.0 not authenticated"),
            ("PERM+VERIFY", with(Verify::Fail), "503 5.7.0 authentication failed"),
            ("VERIFY:257", GOOD, "454 4.7.0 encryption too weak 256 less than 257"),
            ("ENCR:256", with(Verify::Fail), "+"),
            ("ENCR:0", plain, "+"),
            ("ENCR:1", plain, "454 4.7.0 encryption too weak 0 less than 1"),
            ("PERM+ENCR:112", plain, "503 5.7.0 encryption too weak 0 less than 112"),
            ("VERIFY+CN", GOOD, "+"),
            ("VERIFY+CN:MX.good.test", GOOD, "+"),
            ("VERIFY+CN:good.test", GOOD, "454 4.7.0 CN mx.good.test does not match good.test"),
            ("VERIFY+CN", Secured { name: None, ..GOOD }, "454 4.7.0 CN mx.good.test does not match "),
            ("VERIFY+CN", Secured { name: None, common_name: None, ..GOOD }, "454 4.7.0 CN  does not match "),
            ("VERIFY:128+CS:/CN=mx.good.test++CI:/C=US/O=Example/CN=Example+20CA", GOOD, "+"),
            ("VERIFY+CS:/CN=x", GOOD, "454 4.7.0 Cert Subject /CN=mx.good.test does not match /CN=x"),
            ("VERIFY+CN++CI:/x", GOOD, "454 4.7.0 Cert Issuer /C=US/O=Example/CN=Example+20CA does not match /x"),
            ("VERIFY+CITag:Trusted", GOOD, "+"),
            ("VERIFY+CITag:Other", Secured { issuer: Some("/x"), ..GOOD }, "454 4.7.0 Cert Issuer /x not acceptable"),
            ("VERIFY+CITag:Nobody", Secured { issuer: Some("/x"), ..GOOD }, "454 4.7.0 Cert Issuer /x not acceptable"),
            // Names in a certificate that was not verified.
            ("ENCR:112+CN:mx.good.test", with(Verify::Fail), "454 4.7.0 CN  does not match mx.good.test"),
            ("ENCR:112+CITag:Trusted", with(Verify::Fail), "454 4.7.0 Cert Issuer  not acceptable"),
        ] {
            assert_eq!(told(demand, &connection), want, "{demand}");
        }
    }
}

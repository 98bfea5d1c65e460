//! The tags of the access map that do not decide about mail at once: limits, TLS, passwords, queue groups, copies.
//!
//! Their keys never count without the tag. A value that is not understood is as if the entry were not there; `lint`
//! says so.

use super::key::{self, Group, Tag};
use super::value::unquote;
use super::{Access, Client, ClientName};
use crate::question::{Ask, MapEntry, Stop};
use mail::{Address, Domain};
use std::fmt;
use std::net::IpAddr;

/// The properties of a tag of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TagInfo {
    pub(super) name: &'static str,
    /// The form of its keys.
    pub(super) keys: Keys,
    /// The form of its values.
    pub(super) values: Values,
    /// Whether the tag alone is the key of a default.
    pub(super) has_default: bool,
}

/// The form of the keys of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Names and addresses of hosts.
    Hosts,
    /// Addresses of hosts.
    Ips,
    /// Mail addresses, `user@`, domains.
    Addresses,
    /// Domains of mail addresses.
    Domains,
    /// Anything.
    Any,
}

/// The form of the values of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Ruling,
    FriendOrHater,
    Number,
    Tls,
    No,
    Auth,
    Letters,
    Group,
    Address,
    Certificate,
    Any,
}

const fn known(name: &'static str, keys: Keys, values: Values, has_default: bool) -> TagInfo {
    TagInfo { name, keys, values, has_default }
}

/// All tags.
pub(super) const TAGS: [TagInfo; 22] = [
    known("Connect", Keys::Hosts, Values::Ruling, false),
    known("From", Keys::Addresses, Values::Ruling, false),
    known("To", Keys::Addresses, Values::Ruling, false),
    known("Spam", Keys::Addresses, Values::FriendOrHater, false),
    known("GreetPause", Keys::Hosts, Values::Number, false),
    known("ClientRate", Keys::Ips, Values::Number, true),
    known("ClientConn", Keys::Ips, Values::Number, true),
    known("TLS_Clt", Keys::Hosts, Values::Tls, true),
    known("TLS_Srv", Keys::Hosts, Values::Tls, true),
    known("TLS_Rcpt", Keys::Addresses, Values::Tls, true),
    known("Try_TLS", Keys::Hosts, Values::No, true),
    known("Srv_Features", Keys::Hosts, Values::Letters, true),
    known("Clt_Features", Keys::Hosts, Values::Letters, true),
    known("TLS_Srv_features", Keys::Hosts, Values::Any, false),
    known("TLS_Clt_features", Keys::Hosts, Values::Any, false),
    known("AuthInfo", Keys::Hosts, Values::Auth, true),
    known("CertIssuer", Keys::Any, Values::Certificate, false),
    known("CertSubject", Keys::Any, Values::Certificate, false),
    known("Compat", Keys::Any, Values::Any, false),
    known("QGRP", Keys::Addresses, Values::Group, false),
    known("STS", Keys::Domains, Values::No, false),
    known("bcc", Keys::Domains, Values::Address, false),
];

/// The tag of a key, as it is written, and the text behind it.
pub(super) fn split(key: &str) -> (Option<&str>, &str) {
    match key.split_once(':') {
        Some((tag, rest)) if of(tag).is_some() => (Some(tag), rest),
        _ => (None, key),
    }
}

/// Returns the properties of a tag, in any case.
pub(super) fn of(tag: &str) -> Option<&'static TagInfo> {
    TAGS.iter().find(|known| known.name.eq_ignore_ascii_case(tag))
}

/// The bit of a tag, in any case; 0: there is no such tag.
pub(super) fn bit(tag: &str) -> u32 {
    TAGS.iter().position(|known| known.name.eq_ignore_ascii_case(tag)).map_or(0, |at| 1 << at)
}

/// A value and the entry that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tagged<T> {
    /// The value.
    pub value: T,
    /// The entry.
    pub found: MapEntry,
}

impl<T> Tagged<T> {
    /// Whether the key is the tag alone: for clients without an entry of their own.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.found.key.ends_with(':')
    }
}

/// The other end of a connection that we open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its address.
    pub ip: Option<IpAddr>,
}

/// The demand on a TLS connection: `[TEMP+|PERM+]VERIFY[:bits]` or `ENCR:bits`, `+` further demands with `++` between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsDemand {
    /// `TEMP+`: a connection that is not good enough is tried again later; `PERM+`: never; `None`: as is usual.
    pub is_temporary: Option<bool>,
    /// `VERIFY`: the certificate must be good.
    pub verify: bool,
    /// The least strength of encryption; 0: any.
    pub bits: u32,
    /// Further demands, all of which must be met.
    pub further: Vec<Certified>,
}

/// A demand on a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certified {
    /// `CN:name`; `CN` alone: the name of the other end.
    Cn(Option<String>),
    /// `CS:subject`
    Subject(String),
    /// `CI:issuer`
    Issuer(String),
    /// `CITag:tag`: the map has `tag:issuer` with `OK`.
    IssuerTag(String),
}

impl TlsDemand {
    /// Reads a demand. `None`: it is none, as `OK`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = unquote(text.trim());
        let prefix = |word: &str| text.get(..word.len()).filter(|start| start.eq_ignore_ascii_case(word)).map(str::len);
        let (is_temporary, rest) = match (prefix("TEMP+"), prefix("PERM+")) {
            (Some(end), _) => (Some(true), text.get(end..)?),
            (_, Some(end)) => (Some(false), text.get(end..)?),
            _ => (None, &*text),
        };
        let (what, further) = rest.split_once('+').map_or((rest, None), |(what, further)| (what, Some(further)));
        let (word, bits) = what.split_once(':').map_or((what, None), |(word, bits)| (word, Some(bits)));
        let bits = bits.map(|bits| bits.trim().parse::<u32>());
        let (verify, bits) = match (word.trim().to_ascii_uppercase().as_str(), bits) {
            ("VERIFY", None) => (true, 0),
            ("VERIFY", Some(Ok(bits))) => (true, bits),
            ("ENCR", Some(Ok(bits))) => (false, bits),
            _ => return None,
        };
        let further =
            further.map_or_else(|| Some(Vec::new()), |list| list.split("++").map(Certified::parse).collect())?;
        Some(Self { is_temporary, verify, bits, further })
    }
}

impl Certified {
    fn parse(text: &str) -> Option<Self> {
        let (word, name) = text.split_once(':').map_or((text, None), |(word, name)| (word, Some(name.to_owned())));
        match (word.trim().to_ascii_uppercase().as_str(), name) {
            ("CN", name) => Some(Self::Cn(name)),
            ("CS", Some(name)) => Some(Self::Subject(name)),
            ("CI", Some(name)) => Some(Self::Issuer(name)),
            ("CITAG", Some(name)) => Some(Self::IssuerTag(name)),
            _ => None,
        }
    }
}

/// The login of this host at a server: `"U:user" "P:password" "M:PLAIN"`. Its `Debug` does not show the password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthInfo {
    /// `U:`: the user.
    pub user: Option<String>,
    /// `I:`: the login name; if it is not given, the user.
    pub identity: Option<String>,
    /// `P:`: the password; see [`Self::is_base64`].
    pub password: Option<String>,
    /// `P=`: the password is in Base64.
    pub is_base64: bool,
    /// `R:`: the realm.
    pub realm: Option<String>,
    /// `M:`: mechanisms in the order in which they are tried.
    pub mechanisms: Vec<String>,
}

impl AuthInfo {
    /// Reads a value. `None`: it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut info = Self::default();
        for word in words(text) {
            let mut chars = word.chars();
            let (letter, mark) = (chars.next()?.to_ascii_uppercase(), chars.next()?);
            let value = chars.as_str().to_owned();
            match (letter, mark) {
                ('U', ':' | '=') => info.user = Some(value),
                ('I', ':' | '=') => info.identity = Some(value),
                ('P', ':' | '=') => (info.password, info.is_base64) = (Some(value), mark == '='),
                ('R', ':' | '=') => info.realm = Some(value),
                ('M', ':' | '=') => info.mechanisms = value.split_whitespace().map(str::to_ascii_uppercase).collect(),
                _ => return None,
            }
        }
        (info.user.is_some() || info.identity.is_some()).then_some(info)
    }
}

impl fmt::Debug for AuthInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "…");
        f.debug_struct("AuthInfo")
            .field("user", &self.user)
            .field("identity", &self.identity)
            .field("password", &password)
            .field("realm", &self.realm)
            .field("mechanisms", &self.mechanisms)
            .finish_non_exhaustive()
    }
}

/// Words with blanks between; quotes keep blanks.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in text.chars() {
        if !is_quoted && c.is_whitespace() {
            words.push(std::mem::take(&mut word));
            continue;
        }
        if c == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = is_quoted && c == '\\' && !is_escaped;
        word.push(c);
    }
    words.push(word);
    words.iter().filter(|word| !word.is_empty()).map(|word| unquote(word)).collect()
}

/// The decision of `Compat:` on a pair of sender and recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compat {
    /// `DISCARD:text`
    Discard(String),
    /// `TEMP:text`
    Later(String),
    /// `ERROR:text`
    Fail(String),
}

impl Access {
    fn tagged<T>(
        &self,
        ask: &mut Ask<'_>,
        groups: &[Group],
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<Tagged<T>>, Stop> {
        let is_skip = |found: &MapEntry| found.value.trim().eq_ignore_ascii_case("SKIP");
        let found = self.find(ask, groups, is_skip)?.filter(|(_, is_skip)| !is_skip);
        Ok(found.and_then(|(found, _)| Some(Tagged { value: read(found.value.trim())?, found })))
    }

    /// The keys of a host: its name, its address, and the default if the tag has one.
    fn host(&self, tag: &'static str, name: Option<&str>, ip: Option<IpAddr>) -> Vec<Group> {
        if !self.may_have(tag) {
            return Vec::new();
        }
        let has_default = of(tag).is_some_and(|known| known.has_default);
        let tag = Tag::only(tag);
        let domain = name.and_then(|name| Domain::parse(name.trim_end_matches('.').as_bytes()).ok());
        let named = match (domain, ip) {
            (Some(domain), _) => Some(key::domain(tag, &domain, self.options.lookup_dot_domain)),
            (None, Some(ip)) => Some(key::nameless(tag, ip)),
            (None, None) => None,
        };
        let address = ip.map(|ip| self.address(tag, ip));
        named.into_iter().chain(address).chain(has_default.then(|| key::default(tag))).collect()
    }

    fn client(&self, tag: &'static str, client: &Client<'_>) -> Vec<Group> {
        let name = match client.name {
            ClientName::Verified(name) => Some(name),
            _ => None,
        };
        self.host(tag, name, client.ip)
    }

    fn number(&self, ask: &mut Ask<'_>, tag: &'static str, ip: IpAddr) -> Result<Option<Tagged<u32>>, Stop> {
        if !self.may_have(tag) {
            return Ok(None);
        }
        let tag = Tag::only(tag);
        self.tagged(ask, &[self.address(tag, ip), key::default(tag)], |text| text.parse().ok())
    }

    /// `ClientRate:`: how many connections a client may open in a window, sendmail's is 60 s. 0: as many as it likes.
    ///
    /// # Errors
    /// When the map has to be asked, or cannot be.
    pub fn rate(&self, ask: &mut Ask<'_>, ip: IpAddr) -> Result<Option<Tagged<u32>>, Stop> {
        self.number(ask, "ClientRate", ip)
    }

    /// `ClientConn:`: how many connections a client may have at once. 0: as many as it likes.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn connections(&self, ask: &mut Ask<'_>, ip: IpAddr) -> Result<Option<Tagged<u32>>, Stop> {
        self.number(ask, "ClientConn", ip)
    }

    /// `GreetPause:`: how many milliseconds a client has to wait in silence for the greeting. 0: it need not.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn greet_pause(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Option<Tagged<u32>>, Stop> {
        self.tagged(ask, &self.client("GreetPause", client), |text| text.parse().ok())
    }

    /// `Srv_Features:`: letters for the extensions a client is offered, as `S` for no STARTTLS and `l` for nothing
    /// without AUTH.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn server_features(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Option<Tagged<String>>, Stop> {
        self.tagged(ask, &self.client("Srv_Features", client), letters)
    }

    /// `Clt_Features:`: letters for the extensions used with a server, as `P` for no PIPELINING and `D` for no DANE.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn client_features(&self, ask: &mut Ask<'_>, server: Server<'_>) -> Result<Option<Tagged<String>>, Stop> {
        self.tagged(ask, &self.host("Clt_Features", server.name, server.ip), letters)
    }

    /// `TLS_Clt:`: the demand on a client's connection.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn tls_client(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Option<Tagged<TlsDemand>>, Stop> {
        self.tagged(ask, &self.client("TLS_Clt", client), TlsDemand::parse)
    }

    /// `TLS_Srv:`: the demand on a connection to a server.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn tls_server(&self, ask: &mut Ask<'_>, server: Server<'_>) -> Result<Option<Tagged<TlsDemand>>, Stop> {
        self.tagged(ask, &self.host("TLS_Srv", server.name, server.ip), TlsDemand::parse)
    }

    /// `TLS_Rcpt:`: the demand on the connection over which mail for this recipient goes.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn tls_recipient(&self, ask: &mut Ask<'_>, recipient: &Address) -> Result<Option<Tagged<TlsDemand>>, Stop> {
        if !self.may_have("TLS_Rcpt") {
            return Ok(None);
        }
        let tag = Tag::only("TLS_Rcpt");
        let local = recipient.local_part().as_str();
        let domain = key::domain(tag, recipient.domain(), self.options.lookup_dot_domain);
        let groups = [key::full(tag, local, recipient.domain()), key::user(tag, local), domain, key::default(tag)];
        self.tagged(ask, &groups, TlsDemand::parse)
    }

    /// `Try_TLS:`: whether STARTTLS is used with a server; `None`: the map does not say.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn try_tls(&self, ask: &mut Ask<'_>, server: Server<'_>) -> Result<Option<Tagged<bool>>, Stop> {
        self.tagged(ask, &self.host("Try_TLS", server.name, server.ip), |text| Some(!text.eq_ignore_ascii_case("NO")))
    }

    /// `STS:`: whether the MTA-STS policy of a domain counts; `None`: the map does not say.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn sts(&self, ask: &mut Ask<'_>, domain: &Domain) -> Result<Option<Tagged<bool>>, Stop> {
        let group = key::domain(Tag::only("STS"), domain, self.options.lookup_dot_domain);
        self.tagged(ask, &[group], |text| Some(!text.eq_ignore_ascii_case("NO")))
    }

    /// `AuthInfo:`: the login at a server.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn auth_info(&self, ask: &mut Ask<'_>, server: Server<'_>) -> Result<Option<Tagged<AuthInfo>>, Stop> {
        let mut found = self.tagged(ask, &self.host("AuthInfo", server.name, server.ip), AuthInfo::parse)?;
        if let Some(tagged) = &mut found {
            // The place of the entry is no secret.
            tagged.found.value = "…".into();
        }
        Ok(found)
    }

    /// `QGRP:`: the queue group of a recipient.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn queue_group(&self, ask: &mut Ask<'_>, recipient: &Address) -> Result<Option<Tagged<String>>, Stop> {
        if !self.may_have("QGRP") {
            return Ok(None);
        }
        let tag = Tag::only("QGRP");
        let domain = key::domain(tag, recipient.domain(), self.options.lookup_dot_domain);
        let groups = [key::full(tag, recipient.local_part().as_str(), recipient.domain()), domain];
        self.tagged(ask, &groups, |text| is_group(text).then(|| text.to_owned()))
    }

    /// `bcc:`: the address that gets a copy of mail to the domain of a recipient; a value that is no address means no
    /// copy.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn bcc(&self, ask: &mut Ask<'_>, recipient: &Address) -> Result<Option<Tagged<Address>>, Stop> {
        if !self.may_have("bcc") {
            return Ok(None);
        }
        let group = key::domain(Tag::only("bcc"), recipient.domain(), self.options.lookup_dot_domain);
        self.tagged(ask, &[group], |text| unquote(text).parse().ok())
    }

    /// `Compat:sender<@>recipient`: whether this sender's mail goes to this recipient.
    ///
    /// # Errors
    /// As [`Self::rate`].
    pub fn compat(
        &self,
        ask: &mut Ask<'_>,
        sender: &Address,
        recipient: &Address,
    ) -> Result<Option<Tagged<Compat>>, Stop> {
        let group = key::named(Tag::only("Compat"), &format!("{sender}<@>{recipient}"));
        self.tagged(ask, &[group], |text| {
            let (word, text) = text.split_once([':', ' ']).unwrap_or((text, ""));
            match word.to_ascii_uppercase().as_str() {
                "DISCARD" => Some(Compat::Discard(unquote(text.trim()))),
                "TEMP" => Some(Compat::Later(unquote(text.trim()))),
                "ERROR" => Some(Compat::Fail(unquote(text.trim()))),
                _ => None,
            }
        })
    }
}

/// The longest name of a queue group.
const GROUP_BYTES_MAX: usize = 64;

/// Whether a text can be the name of a queue group: printable ASCII without blanks.
#[must_use]
pub fn is_group(text: &str) -> bool {
    !text.is_empty() && text.len() <= GROUP_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Letters, with blanks between.
pub(super) fn letters(text: &str) -> Option<String> {
    let letters: String = text.split_whitespace().collect();
    (!letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(letters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_on_tls() {
        let read = |text: &str| TlsDemand::parse(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(read("VERIFY"), TlsDemand { is_temporary: None, verify: true, bits: 0, further: Vec::new() });
        assert_eq!(read("ENCR:112"), TlsDemand { is_temporary: None, verify: false, bits: 112, further: Vec::new() });
        assert_eq!(
            read("TEMP+VERIFY:128+CN:mx.bank.example++CI:/C=US/CN=Ca++CITag:Trusted++CS:/x++CN"),
            TlsDemand {
                is_temporary: Some(true),
                verify: true,
                bits: 128,
                further: vec![
                    Certified::Cn(Some("mx.bank.example".to_owned())),
                    Certified::Issuer("/C=US/CN=Ca".to_owned()),
                    Certified::IssuerTag("Trusted".to_owned()),
                    Certified::Subject("/x".to_owned()),
                    Certified::Cn(None),
                ],
            }
        );
        assert_eq!(read("perm+encr:256").is_temporary, Some(false));
        for text in ["", "OK", "ENCR", "VERIFY:x", "VERIFY+", "VERIFY+CX:1", "TEMP+", "VERIFY:99999999999"] {
            assert_eq!(TlsDemand::parse(text), None, "{text}");
        }
    }

    #[test]
    fn logins() {
        let info = AuthInfo::parse(r#""U:me" "I:me@x" "P:se cr\"et" "R:realm" "M:PLAIN login""#).unwrap();
        assert_eq!((info.user.as_deref(), info.identity.as_deref()), (Some("me"), Some("me@x")));
        assert_eq!((info.password.as_deref(), info.is_base64), (Some("se cr\"et"), false));
        assert_eq!((info.realm.as_deref(), info.mechanisms.join(" ")), (Some("realm"), "PLAIN LOGIN".to_owned()));
        assert!(!format!("{info:?}").contains("cr"), "no password in logs");
        assert!(AuthInfo::parse(r#""U:me" "P=c2VjcmV0""#).unwrap().is_base64);
        for text in ["", "\"P:x\"", "\"X:y\"", "U", "\"U;x\""] {
            assert_eq!(AuthInfo::parse(text), None, "{text}");
        }
    }

    #[test]
    fn tags_of_keys() {
        for (key, want) in [
            ("Connect:10.1", (Some("Connect"), "10.1")),
            ("connect:IPv6:2001:db8", (Some("connect"), "IPv6:2001:db8")),
            ("IPv6:2001:db8", (None, "IPv6:2001:db8")),
            ("Form:x", (None, "Form:x")),
            ("x@y", (None, "x@y")),
            ("ClientRate:", (Some("ClientRate"), "")),
        ] {
            assert_eq!(split(key), want, "{key}");
        }
    }
}

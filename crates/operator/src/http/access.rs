//! The names, tokens and rights in force, and the decision about a request.
//!
//! A browser sends requests for any page that it shows. Three checks keep foreign pages out: a name in `Host` that is
//! not ours is refused (a foreign name may lead to our address: DNS rebinding), a change needs a field that a foreign
//! page cannot send, and its `Origin` must be ours.

use super::response::Refusal;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::{StatusCode, header};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The fewest characters of a token.
pub const TOKEN_CHARACTERS_MIN: usize = 16;
/// The field that every change has.
pub(super) const CHANGE_FIELD: HeaderName = HeaderName::from_static("x-mailrace");
/// The field in which a browser says which page asks.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rights of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpRights {
    /// Nothing but health.
    #[default]
    None,
    /// Everything but the content of mail, and no changes.
    View,
    /// Everything.
    Operate,
}

impl HttpRights {
    /// Its word in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::View => "view",
            Self::Operate => "operate",
        }
    }
}

/// A secret and the rights that it gives.
#[derive(Clone)]
pub struct HttpToken {
    name: Arc<str>,
    secret: Vec<u8>,
    rights: HttpRights,
}

/// Shows no secret.
impl fmt::Debug for HttpToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpToken").field("name", &self.name).field("rights", &self.rights).finish_non_exhaustive()
    }
}

/// The content of a file is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It has fewer characters than [`TOKEN_CHARACTERS_MIN`].
    Short,
    /// It has a character that no client can send.
    Character,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "the first line has fewer than {TOKEN_CHARACTERS_MIN} characters"),
            Self::Character => f.write_str("the first line has another character than letters, digits and -._~+/="),
        }
    }
}

impl std::error::Error for TokenError {}

impl HttpToken {
    /// Reads the secret from the first line of a file.
    ///
    /// # Errors
    /// That line is no secret.
    // RFC 6750 §2.1
    pub fn read(name: &str, text: &str, rights: HttpRights) -> Result<Self, TokenError> {
        let secret = text.lines().next().unwrap_or_default().trim();
        let is_token = |octet: u8| octet.is_ascii_alphanumeric() || b"-._~+/=".contains(&octet);
        if !secret.bytes().all(is_token) {
            return Err(TokenError::Character);
        }
        if secret.len() < TOKEN_CHARACTERS_MIN {
            return Err(TokenError::Short);
        }
        Ok(Self { name: name.into(), secret: secret.as_bytes().to_vec(), rights })
    }
}

/// A client whose certificate gives rights.
#[derive(Clone, Debug)]
pub struct HttpClient {
    /// The common name in its certificate.
    pub name: Arc<str>,
    /// The rights that it gives.
    pub rights: HttpRights,
}

/// The names, tokens and rights in force. A reload replaces them as a whole.
#[derive(Clone, Debug, Default)]
pub struct HttpAccess {
    /// Names of this server in `Host`, beside addresses and `localhost`.
    pub names: Vec<String>,
    /// The name by which recipients of mail reach the pages behind links of digests, and nothing else.
    pub public_name: Option<String>,
    /// Rights of clients while there are neither tokens nor clients with a certificate.
    pub without_token: HttpRights,
    /// The tokens.
    pub tokens: Vec<HttpToken>,
    /// Clients with a certificate.
    pub clients: Vec<HttpClient>,
}

/// A client that may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// The name of its token or certificate; empty for a client without one.
    pub(super) token: Arc<str>,
    pub(super) rights: HttpRights,
    is_by_certificate: bool,
}

impl HttpAccess {
    /// Checks that a request is meant for this server: its name is an address, or one of ours.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "the request has no field Host, or several"));
        };
        let name = host_name(host);
        if is_address(name) || name.eq_ignore_ascii_case("localhost") {
            return Ok(());
        }
        if self.names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        let shown: String = name.chars().filter(char::is_ascii_graphic).take(80).collect();
        let text = format!("\"{shown}\" is no name of this server; ask for its address, or add the name to http.names");
        Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, text))
    }

    /// Checks that a request for a page behind a link is meant for this server.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn check_public_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let name = hosts.next().and_then(|host| host.to_str().ok()).map(host_name);
        let is_public = name.is_some_and(|name| self.is_public_name(name));
        if is_public && hosts.next().is_none() { Ok(()) } else { self.check_host(headers) }
    }

    fn is_public_name(&self, name: &str) -> bool {
        self.public_name.as_deref().is_some_and(|public| public.eq_ignore_ascii_case(name))
    }

    /// Finds the client of a request, whose certificate has a verified name or none, and checks that it has the rights.
    ///
    /// # Errors
    /// It lacks a token, has a wrong one, or one with fewer rights.
    pub(super) fn authorize(
        &self,
        headers: &HeaderMap,
        certificate: Option<&str>,
        needed: HttpRights,
    ) -> Result<Caller, Refusal> {
        let caller = self.caller(headers, certificate)?;
        if caller.rights >= needed {
            return Ok(caller);
        }
        if caller.token.is_empty() {
            let next = match !self.has_credentials() {
                true => "set http.without_token, or add an [[http.token]] and send it",
                false if self.tokens.is_empty() => "come with the certificate of an [[http.client]]",
                false => "send a token: Authorization: Bearer …",
            };
            return Err(Refusal::unauthorized(format!("this needs the right \"{}\"; {next}", needed.name())));
        }
        let (what, key) =
            if caller.is_by_certificate { ("client", "http.client.role") } else { ("token", "http.token.role") };
        let text = format!(
            "{what} \"{}\" has the right \"{}\", this needs \"{}\"; come as another one, or change {key}",
            caller.token,
            caller.rights.name(),
            needed.name()
        );
        Err(Refusal::new(StatusCode::FORBIDDEN, text))
    }

    const fn has_credentials(&self) -> bool {
        !self.tokens.is_empty() || !self.clients.is_empty()
    }

    fn caller(&self, headers: &HeaderMap, certificate: Option<&str>) -> Result<Caller, Refusal> {
        let Some(given) = headers.get(AUTHORIZATION) else {
            if let Some(client) = self.clients.iter().find(|client| certificate == Some(&*client.name)) {
                return Ok(Caller { token: Arc::clone(&client.name), rights: client.rights, is_by_certificate: true });
            }
            let rights = if self.has_credentials() { HttpRights::None } else { self.without_token };
            return Ok(Caller { token: "".into(), rights, is_by_certificate: false });
        };
        let secret = bearer(given).unwrap_or_default();
        // Every token is compared, in the same time whatever is given.
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.secret.as_slice().ct_eq(secret)) {
                found = Some(token);
            }
        }
        let Some(token) = found else {
            return Err(Refusal::unauthorized("this is none of the tokens of [[http.token]]"));
        };
        Ok(Caller { token: Arc::clone(&token.name), rights: token.rights, is_by_certificate: false })
    }
}

/// Checks that a change was not sent by the page of another site: the page of this server and programs send a field
/// that another site cannot add, and a browser names the site that asks.
///
/// # Errors
/// Another site may have sent it.
// RFC 6454 §7.3
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(CHANGE_FIELD) != Some("1") {
        let error = "a change needs the field X-Mailrace: 1, which the page of another site cannot send";
        return Err(Refusal::new(StatusCode::FORBIDDEN, error));
    }
    let host = text(header::HOST).unwrap_or_default();
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !site.is_some_and(|site| site.eq_ignore_ascii_case(host)) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "the page of another site may change nothing (Origin)"));
        }
    }
    match text(FETCH_SITE) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => {
            Err(Refusal::new(StatusCode::FORBIDDEN, "the page of another site may change nothing (Sec-Fetch-Site)"))
        }
    }
}

/// The secret of `Bearer SECRET`.
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim().as_bytes())
}

/// The name in `Host`, without port, brackets stay.
fn host_name(host: &str) -> &str {
    let name = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => host.get(..at).unwrap_or_default(),
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// An address cannot be made to lead elsewhere by the DNS.
fn is_address(name: &str) -> bool {
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    in_brackets.map_or_else(|| name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()), |ip| ip.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    #[test]
    fn only_our_names_and_addresses_are_asked() {
        let access = HttpAccess { names: vec!["mail.example.com".to_owned()], ..HttpAccess::default() };
        let status = |host: &str| access.check_host(&headers(&[("host", host)])).err().map(|refusal| refusal.status);
        for host in [
            "localhost:8025",
            "LOCALHOST",
            "127.0.0.1:8025",
            "192.0.2.1",
            "[::1]:8025",
            "[2001:db8::1]",
            "Mail.Example.com:443",
            "mail.example.com.",
        ] {
            assert_eq!(status(host), None, "{host}");
        }
        for host in [
            "evil.example",
            "mail.example.com.evil.example",
            "localhost.evil.example:8025",
            "",
            "::1",
            "[::1",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(status(host), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        assert_eq!(access.check_host(&HeaderMap::new()).unwrap_err().status, StatusCode::BAD_REQUEST);
        let two = headers(&[("host", "localhost")]);
        let mut two = two;
        two.append("host", HeaderValue::from_static("localhost"));
        assert_eq!(access.check_host(&two).unwrap_err().status, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn tokens_give_their_rights_and_the_lack_of_one_none() {
        let token = |name, text: &str, rights| HttpToken::read(name, text, rights).unwrap();
        let tokens = vec![
            token("prometheus", "fedcba9876543210\n", HttpRights::View),
            token("ann", &format!(" {SECRET} \nsecond line"), HttpRights::Operate),
        ];
        let access = HttpAccess { without_token: HttpRights::Operate, tokens, ..HttpAccess::default() };
        let ask = |value: Option<&str>, needed| {
            let fields = value.map(|value| ("authorization", value));
            access.authorize(&headers(fields.as_slice()), None, needed).map_err(|refusal| refusal.status.as_u16())
        };
        assert_eq!(ask(None, HttpRights::View), Err(401), "tokens exist, so one is needed");
        assert_eq!(ask(None, HttpRights::None).unwrap().rights, HttpRights::None);
        let ann = Caller { token: "ann".into(), rights: HttpRights::Operate, is_by_certificate: false };
        assert_eq!(ask(Some(&format!("Bearer {SECRET}")), HttpRights::Operate), Ok(ann.clone()));
        assert_eq!(ask(Some(&format!("bearer  {SECRET}")), HttpRights::View), Ok(ann));
        assert_eq!(ask(Some("Bearer fedcba9876543210"), HttpRights::Operate), Err(403));
        for wrong in ["Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef", SECRET]
        {
            assert_eq!(ask(Some(wrong), HttpRights::View), Err(401), "{wrong}");
        }
        let open = HttpAccess { without_token: HttpRights::View, ..HttpAccess::default() };
        assert!(open.authorize(&HeaderMap::new(), None, HttpRights::View).is_ok());
        assert_eq!(open.authorize(&HeaderMap::new(), None, HttpRights::Operate).unwrap_err().status.as_u16(), 401);
        let unknown = headers(&[("authorization", "Bearer 0123456789abcdef")]);
        assert!(
            open.authorize(&unknown, None, HttpRights::View).is_err(),
            "a token that counts for nothing is a mistake"
        );
    }

    #[test]
    fn a_certificate_gives_the_rights_of_its_name() {
        let clients = vec![HttpClient { name: "ann".into(), rights: HttpRights::Operate }];
        let access = HttpAccess { without_token: HttpRights::Operate, clients, ..HttpAccess::default() };
        let ask =
            |name| access.authorize(&HeaderMap::new(), name, HttpRights::View).map(|caller| caller.token.to_string());
        assert_eq!(ask(Some("ann")).ok().as_deref(), Some("ann"));
        assert!(ask(Some("bob")).is_err() && ask(None).is_err(), "a name without rights is as none");
        let refused = |access: &HttpAccess, name| {
            let refusal = access.authorize(&HeaderMap::new(), name, HttpRights::Operate).unwrap_err();
            format!("{refusal:?}")
        };
        assert!(refused(&access, None).contains("certificate of an [[http.client]]"));
        let clients = vec![HttpClient { name: "ann".into(), rights: HttpRights::View }];
        let text = refused(&HttpAccess { clients, ..HttpAccess::default() }, Some("ann"));
        assert!(text.contains("client") && text.contains("http.client.role"), "{text}");
    }

    #[test]
    fn a_secret_is_long_and_can_be_sent() {
        let read = |text| HttpToken::read("x", text, HttpRights::View).map(|_| ());
        assert_eq!(read("0123456789abcdef"), Ok(()));
        assert_eq!([read(""), read("\n0123456789abcdef"), read("0123456789abcde")], [Err(TokenError::Short); 3]);
        assert_eq!([read("0123456789 abcdef"), read("0123456789äbcdef")], [Err(TokenError::Character); 2]);
        assert!(!format!("{:?}", HttpToken::read("x", SECRET, HttpRights::View)).contains(SECRET));
    }

    #[test]
    fn a_change_comes_from_our_page_or_a_program() {
        let ours = [("host", "localhost:8025"), ("x-mailrace", "1")];
        let with = |more: &[(&'static str, &str)]| {
            let fields: Vec<_> = ours.iter().chain(more).copied().collect();
            check_origin(&headers(&fields)).is_ok()
        };
        assert!(with(&[]), "a program");
        assert!(with(&[("origin", "http://localhost:8025"), ("sec-fetch-site", "same-origin")]));
        assert!(!with(&[("origin", "http://localhost")]));
        assert!(!with(&[("origin", "https://evil.example")]));
        assert!(!with(&[("origin", "null")]));
        assert!(!with(&[("sec-fetch-site", "cross-site")]));
        assert!(!with(&[("sec-fetch-site", "same-site")]));
        assert!(check_origin(&headers(&[("host", "localhost:8025")])).is_err(), "without our field");
    }
}

//! The address of a webhook.

use std::fmt;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookTarget {
    pub(super) is_tls: bool,
    /// The host as it stands in the address: a name, or an address with its brackets.
    authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
}

impl WebhookTarget {
    /// Reads `https://host[:port]/path?query` or `http://…`.
    ///
    /// # Errors
    /// The fault, as the end of a sentence that begins with the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let url: hyper::Uri = text.parse().map_err(|_| "is no address of the form https://host/path")?;
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("begins with neither https:// nor http://"),
        };
        let authority = url.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a user or password; requests are signed, and need none");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("has no host");
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = url.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { is_tls, authority: authority.as_str().to_owned(), host, port, path })
    }

    /// Host and port as `Host` has them.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_query() {
        let target = WebhookTarget::parse("https://ops.test/hook?key=secret").unwrap();
        assert_eq!((target.is_tls, target.host.as_str(), target.port), (true, "ops.test", 443));
        assert_eq!((target.path.as_str(), target.to_string().as_str()), ("/hook?key=secret", "https://ops.test/hook"));
        let local = WebhookTarget::parse("http://[::1]:8080").unwrap();
        assert_eq!((local.host.as_str(), local.port, local.path.as_str()), ("::1", 8080, "/"));
        assert_eq!(local.authority(), "[::1]:8080");
        for (text, why) in [
            ("ops.test/hook", "no address"),
            ("ftp://ops.test/", "neither"),
            ("https://", "no"),
            ("https://ann:pw@ops.test/", "user or password"),
            ("https://ops.test/a b", "no address"),
        ] {
            assert!(WebhookTarget::parse(text).is_err_and(|error| error.contains(why)), "{text}");
        }
    }
}

//! The author of a message: the domain in its From field, as sender checks take it.

use mail::DomainName;
use mail::header::HeaderSection;
use mail::header_address::parse_list;

/// The domain in From, or why there is not exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageAuthor {
    /// The domain of all its mailboxes.
    Domain(DomainName),
    /// There is no From field.
    Missing,
    /// The field cannot be read, or names no domain.
    NoDomain,
    /// There are several From fields: programs differ in which one they show.
    SeveralFields,
    /// The mailboxes of the field have different domains.
    SeveralDomains,
}

impl MessageAuthor {
    /// Finds the author of a message.
    // RFC 5322 §3.6.2: exactly one field
    #[must_use]
    pub fn of(header: &HeaderSection<'_>) -> Self {
        let mut from = header.find("From");
        let only = match (from.next(), from.next()) {
            (None, _) => return Self::Missing,
            (Some(_), Some(_)) => return Self::SeveralFields,
            (Some(only), None) => only,
        };
        let value = only.unfolded();
        let Ok(list) = parse_list(&String::from_utf8_lossy(&value), None) else { return Self::NoDomain };
        let mailboxes = list.iter().flat_map(|item| item.mailboxes());
        let mut domains = mailboxes.map(|mailbox| DomainName::new(mailbox.address().domain()));
        let Some(Ok(first)) = domains.next() else { return Self::NoDomain };
        match domains.all(|domain| domain.is_ok_and(|domain| domain.ascii() == first.ascii())) {
            true => Self::Domain(first),
            false => Self::SeveralDomains,
        }
    }

    /// Returns the domain as A-labels in lower case.
    #[must_use]
    pub fn domain(&self) -> Option<&str> {
        if let Self::Domain(domain) = self { Some(domain.ascii()) } else { None }
    }

    /// Returns whether the message names several authors, of which one may be shown and another one checked.
    #[must_use]
    pub const fn is_ambiguous(&self) -> bool {
        matches!(self, Self::SeveralFields | Self::SeveralDomains)
    }

    /// Returns why there is no domain; empty if there is one.
    #[must_use]
    pub const fn fault(&self) -> &'static str {
        match self {
            Self::Domain(_) => "",
            Self::Missing => "there is no From field",
            Self::NoDomain => "From has no domain",
            Self::SeveralFields => "there are several From fields",
            Self::SeveralDomains => "From has several domains",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::header::LineEnd;

    #[test]
    fn only_one_domain_is_an_author() {
        for (header, expected) in [
            ("From: Ann <ann@News.Example.ORG>\r\n", Ok("news.example.org")),
            ("From: a@example.org, \"B, C\" <b@EXAMPLE.org>\r\nSender: c@other.test\r\n", Ok("example.org")),
            ("From: list: a@example.org;\r\n", Ok("example.org")),
            ("To: a@example.org\r\n", Err("there is no From field")),
            ("From: \r\n", Err("From has no domain")),
            ("From: root\r\n", Err("From has no domain")),
            ("From: a@[192.0.2.1]\r\n", Err("From has no domain")),
            ("From: a@evil.test, b@example.org\r\n", Err("From has several domains")),
            ("From: a@evil.test\r\nfrom : b@example.org\r\n", Err("there are several From fields")),
            ("From: a@example.org\r\nFROM: a@example.org\r\n", Err("there are several From fields")),
        ] {
            let author = MessageAuthor::of(&HeaderSection::read(header.as_bytes(), LineEnd::Crlf));
            assert_eq!(author.domain().ok_or_else(|| author.fault()), expected, "{header}");
            assert_eq!(author.is_ambiguous(), expected.is_err_and(|why| why.contains("several")), "{header}");
        }
    }
}

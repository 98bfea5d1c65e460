//! A recipient in a control file: an address as a rule, and the program, file or user that an alias or a `.forward` led
//! to.

use mail::submission::named;
use mail::{Address, DomainName, Notify, OriginalRecipient, Recipient, RecipientParams};
use std::fmt;

/// A recipient that has not got the message yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRecipient {
    /// The line of the file.
    pub line: usize,
    /// Where it goes.
    pub target: QueuedTarget,
    /// NOTIFY and ORCPT.
    pub params: RecipientParams,
    /// The address that the sender named, before aliases (`r`).
    pub named: Option<Address>,
    /// The user that programs and files get it as (`C`): user, numbers, alias.
    pub controller: Option<String>,
    /// Why it was deferred last (`M`).
    pub status: Option<String>,
}

/// Where mail for a recipient goes, as sendmail found out when it took the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuedTarget {
    /// To an address.
    Address(Address),
    /// To a user of this machine, past aliases and `.forward`: `\joe`.
    Unaliased(Address),
    /// Into a program: `|/usr/bin/program`. Without the bar.
    Program(String),
    /// Into a file.
    File(String),
    /// To the members of a list: `:include:/list`. Without the word.
    Include(String),
}

impl QueuedTarget {
    /// Reads the text of a recipient.
    ///
    /// # Errors
    /// It is none: why.
    pub(super) fn read(text: &str, host: &DomainName) -> Result<Self, String> {
        let text = text.trim();
        let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|rest| {
            // A quoted local part is something else: it has an address behind it, or is a name.
            rest.starts_with(['|', '/']) || rest.to_ascii_lowercase().starts_with(":include:")
        });
        let bare = bare.unwrap_or(text);
        if let Some(program) = bare.strip_prefix('|') {
            return Ok(Self::Program(program.trim().to_owned()));
        }
        if bare.starts_with('/') && !bare.contains('@') {
            return Ok(Self::File(bare.to_owned()));
        }
        if let Some((word, path)) = bare.split_at_checked(9).filter(|(word, _)| word.eq_ignore_ascii_case(":include:"))
        {
            debug_assert_eq!(word.len(), 9);
            return Ok(Self::Include(path.trim().to_owned()));
        }
        match bare.strip_prefix('\\') {
            Some(user) => address(user, host).map(Self::Unaliased),
            None => address(bare, host).map(Self::Address),
        }
    }
}

impl fmt::Display for QueuedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "<{address}>"),
            Self::Unaliased(address) => write!(f, "\\<{address}>"),
            Self::Program(program) => write!(f, "|{}", program.escape_debug()),
            Self::File(file) => write!(f, "{}", file.escape_debug()),
            Self::Include(file) => write!(f, ":include:{}", file.escape_debug()),
        }
    }
}

/// The one address that a text names; a name without a domain is a user of `host`.
pub(super) fn address(text: &str, host: &DomainName) -> Result<Address, String> {
    let found =
        named(text, host).map_err(|error| format!("\"{}\" is no address: {error}", super::plain(text.as_bytes())))?;
    match <[Address; 1]>::try_from(found) {
        Ok([address]) => Ok(address),
        Err(found) => {
            Err(format!("\"{}\" has {} addresses, and one is a recipient", super::plain(text.as_bytes()), found.len()))
        }
    }
}

/// NOTIFY from the flags of a recipient: sendmail writes it only where the sender said something (`N`).
pub(super) fn notify(flags: &str) -> Option<Notify> {
    let of = |flag, notify| if flags.contains(flag) { notify } else { Notify::NEVER };
    let asked = of('S', Notify::SUCCESS).and(of('F', Notify::FAILURE)).and(of('D', Notify::DELAY));
    flags.contains('N').then_some(asked)
}

/// ORCPT as it stands in a `Q` line.
pub(super) fn orcpt(value: &str) -> Option<OriginalRecipient> {
    RecipientParams::parse(format!("ORCPT={value}").as_bytes()).ok()?.orcpt
}

impl QueuedRecipient {
    /// The recipient with this address.
    #[must_use]
    pub fn to(&self, address: Address) -> Recipient {
        Recipient { address, params: self.params.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let host = DomainName::new("h.example").unwrap();
        let read = |text: &str| QueuedTarget::read(text, &host).map(|target| target.to_string());
        for (text, shown) in [
            ("joe", "<joe@h.example>"),
            ("<joe@d.example>", "<joe@d.example>"),
            ("\"quoted local\"@d.example", "<\"quoted local\"@d.example>"),
            ("\"|/usr/bin/program -x\"", "|/usr/bin/program -x"),
            ("|/usr/bin/vac joe", "|/usr/bin/vac joe"),
            ("/var/mail/box", "/var/mail/box"),
            (":include:/etc/mail/members", ":include:/etc/mail/members"),
            ("\\joe", "\\<joe@h.example>"),
            ("Joe <joe@d.example>", "<joe@d.example>"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        }
        for bad in ["", "a@b.example, c@d.example", "@", "a@b@c", "<>"] {
            assert!(read(bad).is_err(), "{bad} {:?}", read(bad));
        }
    }

    #[test]
    fn flags_and_original_recipients() {
        assert_eq!(notify("PFD"), None);
        assert_eq!(notify("PN"), Some(Notify::NEVER));
        assert_eq!(notify("PNSD"), Some(Notify::SUCCESS.and(Notify::DELAY)));
        assert_eq!(
            orcpt("rfc822;orig+2Bx@d.example").map(|found| found.address().to_owned()).as_deref(),
            Some("orig+x@d.example")
        );
        assert_eq!(orcpt("orig@d.example"), None);
    }
}

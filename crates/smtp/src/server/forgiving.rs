//! Forgives clients of one's own what printers, scanners and old scripts do to the grammar of commands.
//!
//! A command is rewritten into the form of the grammar, and the strict reader reads the result. So a forgiven command
//! means nothing that a correct command cannot mean. Line ends are not forgiven: only CRLF.CRLF ends DATA.

use std::borrow::Cow;

use mail::Client;

use super::session::Session;
use super::{BareNewline, Dialect, Forgiving};

impl Session {
    /// Whether the client is one of our own: the driver says so, it has logged in, or it is a process of this machine.
    pub(super) fn is_own(&self) -> bool {
        self.client_trusted || self.identity.is_some() || !matches!(self.client, Client::Network(_))
    }

    /// Whether a bare CR or LF becomes CRLF; else it is refused.
    #[must_use]
    pub fn normalizes(&self) -> bool {
        match self.settings.bare_newline {
            BareNewline::Reject => false,
            BareNewline::Own => self.is_own(),
            BareNewline::Normalize => true,
        }
    }

    /// Whether this client may leave the grammar of commands.
    pub(super) fn is_forgiving(&self) -> bool {
        match self.settings.forgiving {
            Forgiving::None => false,
            Forgiving::Own => self.is_own(),
            Forgiving::All => true,
        }
    }

    /// Whether MAIL may come without HELO.
    // RFC 2033 §4.1: an LMTP session begins with LHLO
    pub(super) fn is_hello_optional(&self) -> bool {
        match self.settings.dialect {
            Dialect::Stdin => true,
            Dialect::Lmtp => false,
            Dialect::Smtp | Dialect::Submission => self.is_forgiving(),
        }
    }

    /// Returns the argument behind `FROM:` or `TO:`, in the form of the grammar if this client is forgiven.
    pub(super) fn path<'a>(&self, rest: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_forgiving() { bracketed(rest) } else { rest.into() }
    }
}

/// Puts a path into brackets, takes blanks out of them, and sets parameters apart from it.
fn bracketed(rest: &[u8]) -> Cow<'_, [u8]> {
    let (path, after) = match rest {
        [] => return rest.into(),
        [b'<', inner @ ..] => {
            let Some(end) = unquoted(inner, |byte| byte == b'>') else { return rest.into() };
            let (path, after) = inner.split_at_checked(end).unwrap_or((inner, &[]));
            (path, after.get(1..).unwrap_or_default())
        }
        _ => {
            let end = unquoted(rest, |byte| byte == b' ').unwrap_or(rest.len());
            let (path, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            // Half a pair of brackets, or a name before them, is no plain meaning.
            if unquoted(path, |byte| matches!(byte, b'<' | b'>')).is_some() {
                return rest.into();
            }
            (path, after)
        }
    };
    let is_apart = matches!(after, [] | [b' ', ..]);
    if rest.starts_with(b"<") && is_apart && path.trim_ascii().len() == path.len() {
        return rest.into();
    }
    let after = after.trim_ascii();
    let blank: &[u8] = if after.is_empty() { b"" } else { b" " };
    [b"<", path.trim_ascii(), b">", blank, after].concat().into()
}

/// Finds the first octet outside quotes that is one of those searched for.
fn unquoted(bytes: &[u8], is_searched: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    bytes.iter().position(|byte| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match *byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => is_escaped = is_quoted,
            byte => return !is_quoted && is_searched(byte),
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_get_brackets_and_lose_blanks() {
        for (given, wanted) in [
            ("", ""),
            ("<a@b>", "<a@b>"),
            ("a@b", "<a@b>"),
            ("a@b  SIZE=1 BODY=7BIT", "<a@b> SIZE=1 BODY=7BIT"),
            ("< a@b >", "<a@b>"),
            ("<a@b >SIZE=1", "<a@b> SIZE=1"),
            ("<>", "<>"),
            ("< >", "<>"),
            ("\"a b\"@c SIZE=1", "<\"a b\"@c> SIZE=1"),
            ("<\"a>b\\\" c\"@d> X", "<\"a>b\\\" c\"@d> X"),
            ("\"<a>\"@b", "<\"<a>\"@b>"),
            ("@c:a@b", "<@c:a@b>"),
            // No plain meaning: the reader refuses them.
            ("<a@b", "<a@b"),
            ("a@b>", "a@b>"),
            ("Printer <a@b>", "<Printer> <a@b>"),
            ("Printer<a@b>", "Printer<a@b>"),
            ("a @ b", "<a> @ b"),
            ("<a@b> <c@d>", "<a@b> <c@d>"),
        ] {
            let got = bracketed(given.as_bytes());
            assert_eq!(String::from_utf8_lossy(&got), wanted, "{given}");
        }
    }
}

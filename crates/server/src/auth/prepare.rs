//! Names and passwords as they are compared: SASLprep (RFC 4013), so that one spelling is one user.
//!
//! Control characters, among them NUL, CR and LF, survive in neither.

use std::borrow::Cow;
use zeroize::Zeroizing;

/// Why [`user`] refused a name, for the log.
pub(super) const BAD_USER: &str = "the user name is empty, too long or has characters that SASLprep forbids";
/// Why [`password`] refused a password, for the log.
pub(super) const BAD_PASSWORD: &str = "the password is empty, too long or has characters that SASLprep forbids";

// RFC 4616 §2: 255 octets at most
const USER_OCTETS_MAX: usize = 255;
/// Twice the limit of RFC 4616: SHA-crypt takes time in proportion to the length.
const PASSWORD_OCTETS_MAX: usize = 512;

/// Returns a user name, prepared; `None` if there is none.
// RFC 4013 §2
pub(super) fn user(text: &str) -> Option<String> {
    prepared(text, USER_OCTETS_MAX).map(Cow::into_owned)
}

/// Returns a password, prepared; `None` if there is none. It is wiped from memory when it is dropped.
pub(super) fn password(text: &str) -> Option<Zeroizing<String>> {
    prepared(text, PASSWORD_OCTETS_MAX).map(|password| Zeroizing::new(password.into_owned()))
}

fn prepared(text: &str, octets_max: usize) -> Option<Cow<'_, str>> {
    let fits = |text: &str| !text.is_empty() && text.len() <= octets_max && !text.chars().any(char::is_control);
    if !fits(text) {
        return None;
    }
    stringprep::saslprep(text).ok().filter(|prepared| fits(prepared))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4013 §3 (test)
    #[test]
    fn examples_of_the_rfc() {
        assert_eq!(user("I\u{ad}X").as_deref(), Some("IX"));
        assert_eq!(user("USER").as_deref(), Some("USER"));
        assert_eq!(user("\u{aa}").as_deref(), Some("a"));
        assert_eq!(user("\u{2168}").as_deref(), Some("IX"));
        assert_eq!(user("\u{7}"), None);
        assert_eq!(user("\u{627}1"), None);
    }

    #[test]
    fn nothing_empty_or_endless() {
        assert_eq!(user(""), None);
        assert_eq!(user("\u{ad}"), None, "empty after preparation");
        assert_eq!(user(&"a".repeat(256)), None);
        assert!(password(&"a".repeat(512)).is_some() && password(&"a".repeat(513)).is_none());
    }
}

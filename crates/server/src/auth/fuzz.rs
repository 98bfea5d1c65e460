//! Bodies for fuzzing: any bytes as the responses of an exchange, and as a password file.

use super::dialog::{Dialog, DialogStep, MECHANISMS};
use super::scram::{self, Keys};
use super::users::Users;
use std::path::Path;

/// Runs an exchange with an unknown password. The first byte chooses the mechanism and whether there is an initial
/// response; the rest, cut at 0xFE, are the responses. Asserts no panic, no success, and challenges that are
/// printable and not out of proportion.
///
/// # Panics
/// When one of these does not hold, which is its purpose.
pub fn exchange(data: &[u8]) {
    let (choice, rest) = data.split_first().unwrap_or((&0, &[]));
    let mechanism = MECHANISMS.get(usize::from(choice % 4)).copied().unwrap_or("CRAM-MD5");
    let mut responses = rest.split(|byte| *byte == 0xFE);
    let initial = if choice & 4 == 0 { responses.next() } else { None };
    let mut dialog = Dialog::default();
    let mut next = dialog.start(mechanism, initial);
    for round in 0..10 {
        next = match next {
            DialogStep::Challenge(challenge) => {
                assert!(challenge.len() <= data.len() + 256, "{} bytes from {}", challenge.len(), data.len());
                assert!(challenge.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", challenge.escape_ascii());
                dialog.respond(responses.next().unwrap_or_default())
            }
            DialogStep::Check { user, password } => {
                assert!(!user.is_empty() && !user.chars().any(char::is_control), "{user:?}");
                assert!(!password.is_empty() && !password.chars().any(char::is_control));
                assert!(user.len() <= 255 && password.len() <= 512);
                // The driver has refused: any further response is out of place.
                assert!(matches!(dialog.respond(b""), DialogStep::Failed(_)));
                return;
            }
            DialogStep::Keys(first) => {
                assert!(!first.user.is_empty() && !first.user.chars().any(char::is_control), "{:?}", first.user);
                let keys = Keys::decoy_keys(&first.user, &[0; scram::KEY_OCTETS], std::num::NonZeroU32::MIN, 16);
                dialog.keys(first, keys, "nonce")
            }
            DialogStep::Success(user) => panic!("{user:?} proved a password that nobody has"),
            DialogStep::Failed(failure) => {
                assert!(!failure.why.is_empty() && !failure.why.chars().any(char::is_control), "{failure:?}");
                assert!(matches!(dialog.respond(b""), DialogStep::Failed(_)), "a failed exchange stays failed");
                return;
            }
        };
        assert!(round < 9, "exchanges end");
    }
}

/// Reads a password file. Asserts no panic, that every line is a hash or a problem, and that no problem shows more of
/// the file than a name.
///
/// # Panics
/// When one of these does not hold.
pub fn password_file(data: &[u8]) {
    let mut problems = Vec::new();
    let users = Users::parse(Path::new("users"), data, &mut problems);
    let lines = data.split(|octet| *octet == b'\n').count();
    assert!(users.len() + problems.len() <= lines, "{} users of {lines} lines", users.len());
    for problem in &problems {
        let text = problem.to_string();
        assert!(!text.chars().any(char::is_control) && text.len() < 4_096, "{text:?}");
    }
    assert!(!users.have_scram() || users.scram("nobody", &[0; scram::KEY_OCTETS]).is_some());
}

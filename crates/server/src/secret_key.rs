//! The key beside the mail with which the server recognises texts that it has given away: trace tokens of filters that
//! give mail back, and links of digests.
//!
//! It is made at the first start and stays over restarts. Without the file a new one is made: tokens and links from
//! before are then unknown, and no mail is lost.

use aws_lc_rs::{hmac, rand};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The file in the spool directory.
const FILE: &str = "secret";
/// Octets of the key.
const KEY_OCTETS: usize = 32;
/// Octets of a tag.
const TAG_OCTETS: usize = 32;

/// The key of this server.
pub(crate) struct SecretKey(hmac::Key);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl SecretKey {
    /// Reads the key of the spool, or makes one. Returns a message for the operator, too, if it holds for this process
    /// only.
    pub(crate) fn open(directory: &Path) -> (Self, Option<String>) {
        let path = directory.join(FILE);
        let problem = match read(&path) {
            Ok(octets) => return (Self::of(&octets), None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(error.to_string()),
        };
        let octets = random();
        let made = match problem {
            // A file of another length is kept for the operator to look at.
            Some(problem) => Err(problem),
            None => write(directory, &octets).map_err(|error| error.to_string()),
        };
        let text = made.err().map(|why| {
            let path = path.display();
            format!(
                "{path}: the key of links and trace tokens cannot be used: {why}; those of this start are unknown to the \
                 next one: remove the file, and restart"
            )
        });
        (Self::of(&octets), text)
    }

    /// Makes a key that ends with this process.
    pub(crate) fn of_process() -> Self {
        Self::of(&random())
    }

    /// Returns a text with its tag behind a separator. The same text has another tag for another purpose.
    pub(crate) fn sign(&self, purpose: &str, text: &str, separator: char) -> String {
        let tag = hmac::sign(&self.0, &joined(purpose, text.as_bytes()));
        let tag: String = tag.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
        format!("{text}{separator}{tag}")
    }

    /// Returns the text that [`sign`](Self::sign) has signed for the purpose; `None`: it is forged, or damaged. Takes
    /// the same time for each wrong tag.
    pub(crate) fn signed<'a>(&self, purpose: &str, text: &'a str, separator: char) -> Option<&'a str> {
        let (signed, tag) = text.rsplit_once(separator)?;
        let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let tag: Vec<u8> =
            (tag.len() == 2 * TAG_OCTETS).then(|| tag.as_bytes().chunks(2).map(octet).collect::<Option<_>>())??;
        hmac::verify(&self.0, &joined(purpose, signed.as_bytes()), &tag).is_ok().then_some(signed)
    }

    fn of(octets: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, octets))
    }
}

/// A number that nobody can guess.
pub(crate) fn random_number() -> u64 {
    let octets = random();
    octets.iter().take(8).fold(0, |number, octet| number << 8 | u64::from(*octet))
}

fn joined(purpose: &str, data: &[u8]) -> Vec<u8> {
    [purpose.as_bytes(), b"\0", data].concat()
}

fn random() -> [u8; KEY_OCTETS] {
    let mut octets = [0; KEY_OCTETS];
    rand::fill(&mut octets).expect("the random generator of the system works");
    octets
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    File::open(path)?.take(KEY_OCTETS as u64 + 1).read_to_end(&mut octets)?;
    match octets.len() {
        KEY_OCTETS => Ok(octets),
        other => Err(io::Error::other(format!("it has {other} octets in place of {KEY_OCTETS}"))),
    }
}

/// Writes a new key, and returns when it is durable.
fn write(directory: &Path, octets: &[u8]) -> io::Result<()> {
    let (new, path) = (directory.join("secret.tmp"), directory.join(FILE));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(octets)?;
    file.sync_all()?;
    rustix::fs::rename(&new, &path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_key_stays_and_tags_belong_to_a_purpose() {
        let directory = tempfile::tempdir().unwrap();
        let (first, problem) = SecretKey::open(directory.path());
        assert_eq!(problem, None);
        let text = first.sign("digest", "data", '.');
        let (second, problem) = SecretKey::open(directory.path());
        assert_eq!((problem, second.signed("digest", &text, '.')), (None, Some("data")));
        assert_eq!((second.signed("trace", &text, '.'), second.signed("digest", &text, ' ')), (None, None));
        for forged in [text.replace("data", "date").as_str(), &text[..text.len() - 32], "data.", "data"] {
            assert_eq!(second.signed("digest", forged, '.'), None, "{forged}");
        }
        assert_eq!(SecretKey::of_process().signed("digest", &text, '.'), None);
        let mode = std::fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), b"short").unwrap();
        let (_, problem) = SecretKey::open(directory.path());
        let text = problem.unwrap();
        assert!(text.contains("it has 5 octets in place of 32") && text.contains("remove the file"), "{text}");
        assert_eq!(std::fs::read(directory.path().join(FILE)).unwrap(), b"short");
    }
}

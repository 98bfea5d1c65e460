//! Stored hashes of passwords: reading, checking, making.
//!
//! A hash is checked when it is read, so that checking a password cannot fail later for a reason that the log has not
//! reported. Costs have upper limits: a line of the password file must not stop a thread for hours. All functions
//! that take a password use 10 to 500 ms of CPU and belong on a thread that may block.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use std::num::NonZeroU32;

use super::prepare;
use super::scram::{self, Keys};

const NEXT_STEP: &str = "make a hash with `mailrace auth hash`";
/// KiB; 1 GiB.
const ARGON2_MEMORY_MAX: u32 = 1 << 20;
/// Passes over the memory.
const ARGON2_PASSES_MAX: u32 = 64;
/// 2^16 rounds, about 5 s.
const BCRYPT_COST_MAX: u32 = 16;
const SHA_CRYPT_ROUNDS_MAX: u32 = 5_000_000;
/// For keys we make: 50 ms of the client's time, and far above RFC 7677's 4096.
const SCRAM_ITERATIONS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");

/// A stored hash. `Debug` shows its cost only.
pub(super) enum Hash {
    Argon2id(Box<PasswordHash>),
    Bcrypt(Box<str>),
    ShaCrypt(Box<str>),
    Scram(Keys),
}

/// Parameters that determine the time of a check: an observer cannot tell hashes of equal cost apart by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost(&'static str, u32, u32, u32);

impl Hash {
    /// Reads a hash. The reason of a failure names the next step and never the text, which may be a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            _ if text.starts_with("$argon2id$") => argon2id(text),
            _ if ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) => bcrypt(text),
            _ if text.starts_with("$5$") || text.starts_with("$6$") => sha_crypt(text),
            _ if text.starts_with("SCRAM-SHA-256$") => {
                Keys::parse(text).map(Self::Scram).map_err(|reason| format!("{reason}; {NEXT_STEP}"))
            }
            _ if text.starts_with('{') => {
                Err("a hash with a {SCHEME} in front; take the braces and what is in them away".to_owned())
            }
            _ => Err(format!(
                "neither argon2id ($argon2id$), bcrypt ($2b$), SHA-crypt ($5$, $6$) nor SCRAM-SHA-256; \
                 passwords in clear are not read; {NEXT_STEP}"
            )),
        }
    }

    /// Returns whether `password` has this hash.
    ///
    /// # Errors
    /// The check itself failed: no memory.
    pub(super) fn matches_password(&self, password: &str) -> Result<bool, String> {
        use argon2::password_hash::Error::PasswordInvalid;
        match self {
            Self::Argon2id(hash) => match Argon2::default().verify_password(password.as_bytes(), &**hash) {
                Ok(()) => Ok(true),
                Err(PasswordInvalid) => Ok(false),
                Err(error) => Err(format!("argon2id: {error}")),
            },
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).map_err(|error| format!("bcrypt: {error}")),
            Self::ShaCrypt(hash) => {
                match sha_crypt::ShaCrypt::default().verify_password(password.as_bytes(), &**hash) {
                    Ok(()) => Ok(true),
                    Err(PasswordInvalid) => Ok(false),
                    Err(error) => Err(format!("SHA-crypt: {error}")),
                }
            }
            Self::Scram(keys) => Ok(keys.matches_password(password)),
        }
    }

    pub(super) fn cost(&self) -> Cost {
        match self {
            Self::Argon2id(hash) => Params::try_from(&**hash).map_or(Cost("argon2id", 0, 0, 0), |params| {
                Cost("argon2id", params.m_cost(), params.t_cost(), params.p_cost())
            }),
            Self::Bcrypt(hash) => {
                Cost("bcrypt", hash.split('$').nth(2).and_then(|cost| cost.parse().ok()).unwrap_or(0), 0, 0)
            }
            Self::ShaCrypt(hash) => {
                let rounds = hash.split('$').nth(2).and_then(|field| field.strip_prefix("rounds=")?.parse().ok());
                let name = if hash.starts_with("$5$") { "sha256-crypt" } else { "sha512-crypt" };
                Cost(name, rounds.unwrap_or(sha_crypt::Params::RECOMMENDED_ROUNDS), 0, 0)
            }
            Self::Scram(keys) => Cost("scram-sha-256", keys.iterations.get(), 0, 0),
        }
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.cost().fmt(f)
    }
}

fn argon2id(text: &str) -> Result<Hash, String> {
    let broken = |reason: &dyn std::fmt::Display| format!("a broken argon2id hash ({reason}); {NEXT_STEP}");
    let hash = PasswordHash::new(text).map_err(|error| broken(&error))?;
    let params = Params::try_from(&hash).map_err(|error| broken(&error))?;
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err(broken(&"no salt or no hash in it"));
    }
    if hash.version.is_some_and(|version| Version::try_from(version).is_err()) {
        return Err(broken(&"unknown version"));
    }
    if params.m_cost() > ARGON2_MEMORY_MAX || params.t_cost() > ARGON2_PASSES_MAX {
        return Err(format!(
            "argon2id with m={} (KiB) and t={}, but m={ARGON2_MEMORY_MAX} and t={ARGON2_PASSES_MAX} are the most; {NEXT_STEP}",
            params.m_cost(),
            params.t_cost(),
        ));
    }
    Ok(Hash::Argon2id(Box::new(hash)))
}

fn bcrypt(text: &str) -> Result<Hash, String> {
    let cost = text.get(4..6).and_then(|cost| cost.parse::<u32>().ok());
    let rest = text.get(7..).unwrap_or_default();
    let is_whole = text.get(6..7) == Some("$") && rest.len() == 53 && rest.bytes().all(is_crypt_base64);
    match cost.filter(|_| is_whole && text.parse::<bcrypt::HashParts>().is_ok()) {
        Some(cost @ 4..=BCRYPT_COST_MAX) => {
            let hash = Hash::Bcrypt(text.into());
            debug_assert_eq!(hash.cost().1, cost);
            Ok(hash)
        }
        Some(cost) => Err(format!("bcrypt with cost {cost}, but 4 to {BCRYPT_COST_MAX} are possible; {NEXT_STEP}")),
        None => Err(format!("a broken bcrypt hash; {NEXT_STEP}")),
    }
}

fn sha_crypt(text: &str) -> Result<Hash, String> {
    let broken = || format!("a broken SHA-crypt hash; {NEXT_STEP}");
    let mut fields = text.split('$').skip(2).peekable();
    let rounds = fields.next_if(|field| field.starts_with("rounds="));
    if let Some(rounds) = rounds.and_then(|field| field.strip_prefix("rounds=")) {
        let min = sha_crypt::Params::ROUNDS_MIN;
        if !rounds.parse::<u32>().is_ok_and(|rounds| (min..=SHA_CRYPT_ROUNDS_MAX).contains(&rounds)) {
            return Err(format!("SHA-crypt with other than {min} to {SHA_CRYPT_ROUNDS_MAX} rounds; {NEXT_STEP}"));
        }
    }
    let (salt, digest) = (fields.next().ok_or_else(broken)?, fields.next().ok_or_else(broken)?);
    let digits = if text.starts_with("$5$") { 43 } else { 86 };
    let is_whole = fields.next().is_none()
        && (1..=16).contains(&salt.len())
        && salt.bytes().all(is_crypt_base64)
        && digest.len() == digits
        && digest.bytes().all(is_crypt_base64);
    if is_whole { Ok(Hash::ShaCrypt(text.into())) } else { Err(broken()) }
}

fn is_crypt_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/')
}

/// How [`hash_password`] hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// 19 MiB, 2 passes: for PLAIN and LOGIN.
    Argon2id,
    /// Keys for SCRAM-SHA-256, with which PLAIN and LOGIN work too.
    ScramSha256,
}

/// Why [`hash_password`] made nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashError {
    /// Empty, more than 512 bytes, control characters, or characters that SASLprep (RFC 4013) forbids.
    Password,
    /// No memory.
    Failed(String),
}

impl std::fmt::Display for HashError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Password => write!(f, "{}; choose another", prepare::BAD_PASSWORD),
            Self::Failed(reason) => write!(f, "cannot make the hash: {reason}"),
        }
    }
}

impl std::error::Error for HashError {}

/// Makes the text behind `user:` in the password file, with a random salt. Takes 10 to 100 ms of CPU.
///
/// # Errors
/// The password cannot be one, or there is no memory.
pub fn hash_password(password: &str, scheme: Scheme) -> Result<String, HashError> {
    let password = prepare::password(password).ok_or(HashError::Password)?;
    match scheme {
        Scheme::Argon2id => Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
            .hash_password_with_salt(password.as_bytes(), &scram::random_octets::<16>())
            .map(|hash: PasswordHash| hash.to_string())
            .map_err(|error| HashError::Failed(error.to_string())),
        Scheme::ScramSha256 => {
            Ok(Keys::derive(&password, scram::random_octets::<16>().to_vec(), SCRAM_ITERATIONS).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of argon2's reference implementation for "password", and "correct horse" by libxcrypt 4.4.
    const FOREIGN: [(&str, &str); 6] = [
        ("password", "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"),
        ("correct horse", "$5$rounds=10000$saltstringsaltst$ffO6RHJbzihHqETll0c/MLDJrGhQw9fAaO1LcVIStWB"),
        (
            "correct horse",
            "$6$rounds=1000$abc./$pjmesxaVMID3dQP.tw4HKVVFIUnr6HRHmyS8GwP6X8/S9FPx49tKrdk1HkZqvanWZSN62UC8eAsBAiD8QYdra/",
        ),
        ("Hello world!", "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"),
        ("correct horse", "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"),
        ("correct horse", "$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"),
    ];

    #[test]
    fn hashes_of_other_programs() {
        for (password, text) in FOREIGN {
            let hash = Hash::parse(text).unwrap();
            assert_eq!(hash.matches_password(password), Ok(true), "{text}");
            assert_eq!(hash.matches_password(&format!("{password} ")), Ok(false), "{text}");
            assert_ne!(hash.cost().1, 0, "{text}");
        }
    }

    #[test]
    fn own_hashes_fit_and_differ_each_time() {
        for scheme in [Scheme::Argon2id, Scheme::ScramSha256] {
            let [one, two] = [(); 2].map(|()| hash_password("pass\u{2168}", scheme).unwrap());
            assert_ne!(one, two);
            // RFC 4013 §2.2 (test): NFKC makes three letters of the numeral
            assert_eq!(Hash::parse(&one).unwrap().matches_password("passIX"), Ok(true), "{one}");
            assert_eq!(Hash::parse(&two).unwrap().matches_password("passIx"), Ok(false), "{two}");
            assert_eq!(hash_password("a\nb", scheme), Err(HashError::Password));
        }
    }

    #[test]
    fn every_damage_is_refused_or_harmless() {
        for (password, text) in FOREIGN {
            for at in 0..text.len() {
                if let Some(short) = text.get(..at)
                    && let Ok(hash) = Hash::parse(short)
                {
                    assert_eq!(hash.matches_password(password), Ok(false), "{short}");
                }
            }
        }
    }

    #[test]
    fn refusals_name_the_reason_and_never_the_text() {
        for (text, reason) in [
            ("secret", "passwords in clear"),
            ("{PLAIN}secret", "take the braces"),
            ("$1$salt$secret", "neither argon2id"),
            ("$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "neither argon2id"),
            ("$argon2id$secret", "a broken argon2id hash"),
            ("$argon2id$v=19$m=4000000,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4", "m=1048576"),
            ("$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ", "no salt or no hash"),
            ("$2b$31$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e", "4 to 16"),
            ("$2b$04$secret", "a broken bcrypt hash"),
            ("$5$rounds=99999999$salt$secret", "1000 to 5000000 rounds"),
            ("$5$saltsaltsaltsaltsalt$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5", "a broken SHA-crypt hash"),
            ("$6$salt$secret", "a broken SHA-crypt hash"),
            ("SCRAM-SHA-256$secret", "not SCRAM-SHA-256$"),
        ] {
            let message = Hash::parse(text).unwrap_err();
            assert!(message.contains(reason), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}

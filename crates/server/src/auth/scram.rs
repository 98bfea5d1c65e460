//! SCRAM-SHA-256, the server's side, as pure functions: messages and stored keys in, messages out.
//!
//! The server never knows the password. It stores two keys derived from it (RFC 5802 §3); a client proves that it
//! knows the password, and the server proves that it knows the keys. No channel binding: SCRAM-SHA-256-PLUS is not
//! offered, so `n` and `y` are accepted and `p=` is refused.
//!
//! Not rsasl, whose client tests this code: its server gives an unknown user a new salt at each attempt and an error
//! of its own, by which a client can tell known users from unknown ones.

use aws_lc_rs::{digest, hmac, pbkdf2, rand};
use base64ct::{Base64, Encoding as _};
use std::fmt;
use std::num::NonZeroU32;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::prepare;

/// Octets of SHA-256, and so of all keys.
pub(super) const KEY_OCTETS: usize = 32;
/// RFC 7677 §4: at least 4096
pub(super) const ITERATIONS_MIN: u32 = 4096;
/// The client does the work; beyond this it gives up.
pub(super) const ITERATIONS_MAX: u32 = 10_000_000;
/// Octets of a client's message; names and nonces are short.
const MESSAGE_OCTETS_MAX: usize = 4096;

type ScramKey = [u8; KEY_OCTETS];

/// Stored keys of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) iterations: NonZeroU32,
    pub(super) salt: Vec<u8>,
    pub(super) stored: ScramKey,
    pub(super) server: ScramKey,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Keys {
    /// Derives the keys; takes about 0.5 µs per iteration.
    // RFC 5802 §3: SaltedPassword, ClientKey, StoredKey, ServerKey
    pub(super) fn derive(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        // Either of these two keys is enough to log in, so memory is wiped after use.
        let mut salted = Zeroizing::new([0; KEY_OCTETS]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut *salted);
        let client = Zeroizing::new(hmac_sha256(&*salted, b"Client Key"));
        Self { iterations, salt, stored: sha256(&*client), server: hmac_sha256(&*salted, b"Server Key") }
    }

    /// Returns whether these are the keys of `password`, for mechanisms that send it. As slow as [`Self::derive`].
    pub(super) fn matches_password(&self, password: &str) -> bool {
        let derived = Self::derive(password, self.salt.clone(), self.iterations);
        bool::from(derived.stored.ct_eq(&self.stored))
    }

    /// Returns keys that no password has: an unknown user gets the same dialog up to the proof as others. The salt
    /// depends on the user and `secret` alone, as that of a real user stays the same from attempt to attempt.
    pub(super) fn decoy_keys(user: &str, secret: &ScramKey, iterations: NonZeroU32, salt_octets: usize) -> Self {
        let mut salt = Vec::with_capacity(salt_octets);
        for block in 0_u8..=u8::MAX {
            if salt.len() >= salt_octets {
                break;
            }
            salt.extend_from_slice(&hmac_sha256(secret, &[&[block], user.as_bytes()].concat()));
        }
        salt.truncate(salt_octets);
        let (stored, server) = (random_octets(), random_octets());
        Self { iterations, salt, stored, server }
    }

    /// Reads `SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = || "not SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY".to_owned();
        let rest = text.strip_prefix("SCRAM-SHA-256$").ok_or_else(form)?;
        let (cost, keys) = rest.split_once('$').ok_or_else(form)?;
        let (iterations, salt) = cost.split_once(':').ok_or_else(form)?;
        let (stored, server) = keys.split_once(':').ok_or_else(form)?;
        let number = iterations.parse::<u32>().map_err(|_| format!("{iterations:?} iterations is no number"))?;
        let iterations = NonZeroU32::new(number)
            .filter(|number| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&number.get()))
            .ok_or_else(|| format!("{number} iterations, but {ITERATIONS_MIN} to {ITERATIONS_MAX} are possible"))?;
        let salt = Base64::decode_vec(salt).map_err(|_| "the salt is not base64".to_owned())?;
        if salt.is_empty() || salt.len() > 1024 {
            return Err("the salt must have 1 to 1024 octets".to_owned());
        }
        let key = |text: &str, name: &str| {
            decode_key(text).ok_or_else(|| format!("the {name} key is not the base64 of {KEY_OCTETS} octets"))
        };
        Ok(Self { iterations, salt, stored: key(stored, "stored")?, server: key(server, "server")? })
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] = [&self.salt[..], &self.stored, &self.server].map(Base64::encode_string);
        write!(f, "SCRAM-SHA-256${}:{salt}${stored}:{server}", self.iterations)
    }
}

/// The client's first message, understood.
#[derive(Debug)]
pub(super) struct First {
    /// Prepared, not empty.
    pub(super) user: String,
    gs2_header: String,
    bare: String,
    nonce: String,
}

impl First {
    /// Returns the user name of a message, as far as there is one, for the log.
    pub(super) fn name_in(message: &[u8]) -> Option<String> {
        let name = message.split(|octet| *octet == b',').find_map(|part| part.strip_prefix(b"n="))?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Reads client-first-message. The reason of a failure is for the log.
    // RFC 5802 §7
    pub(super) fn parse(message: &[u8]) -> Result<Self, &'static str> {
        let text = text(message)?;
        let (flag, rest) = text.split_once(',').ok_or("SCRAM: no GS2 header")?;
        match flag {
            // RFC 5802 §6: `y` means that the client would bind and believes that we cannot, which is so
            "n" | "y" => {}
            _ if flag.starts_with("p=") => return Err("SCRAM: channel binding was not offered"),
            _ => return Err("SCRAM: no GS2 header"),
        }
        let (authorization, bare) = rest.split_once(',').ok_or("SCRAM: no GS2 header")?;
        let authorization = match authorization {
            "" => None,
            _ => Some(authorization.strip_prefix("a=").ok_or("SCRAM: no GS2 header").and_then(name)?),
        };
        let mut attributes = bare.split(',');
        // RFC 5802 §5.1: `m=` announces an extension without which the exchange must fail
        let user = attributes.next().and_then(|first| first.strip_prefix("n=")).ok_or("SCRAM: no user name")?;
        let nonce = attributes.next().and_then(|second| second.strip_prefix("r=")).ok_or("SCRAM: no nonce")?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("SCRAM: the nonce is not printable");
        }
        let user = name(user)?;
        if authorization.is_some_and(|authorization| authorization != user) {
            return Err("authorization identity differs from the user");
        }
        let gs2_header = text.strip_suffix(bare).unwrap_or_default().to_owned();
        Ok(Self { user, gs2_header, bare: bare.to_owned(), nonce: nonce.to_owned() })
    }

    /// Makes server-first-message, and the value that judges the answer to it. `nonce` is fresh, printable, without
    /// comma.
    // RFC 5802 §5: nonce = client's and server's part, s = salt, i = iterations
    pub(super) fn answer(self, keys: Keys, nonce: &str) -> (Expected, Vec<u8>) {
        let nonce = format!("{}{nonce}", self.nonce);
        let message = format!("r={nonce},s={},i={}", Base64::encode_string(&keys.salt), keys.iterations);
        let opening = format!("{},{message},", self.bare);
        (Expected { opening, nonce, gs2_header: self.gs2_header, keys }, message.into_bytes())
    }
}

/// Values that the client's final message must match.
#[derive(Debug)]
pub(super) struct Expected {
    /// AuthMessage up to client-final-message-without-proof.
    opening: String,
    nonce: String,
    gs2_header: String,
    keys: Keys,
}

impl Expected {
    /// Judges client-final-message. `Ok`: the client knows the password; answer with this server-final-message.
    pub(super) fn judge(&self, message: &[u8]) -> Result<Vec<u8>, &'static str> {
        let text = text(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or("SCRAM: no proof")?;
        let mut attributes = without_proof.split(',');
        let binding =
            attributes.next().and_then(|first| first.strip_prefix("c=")).ok_or("SCRAM: no GS2 header again")?;
        let nonce = attributes.next().and_then(|second| second.strip_prefix("r=")).ok_or("SCRAM: no nonce again")?;
        let header = Base64::decode_vec(binding).map_err(|_| "SCRAM: the GS2 header is not base64")?;
        // RFC 5802 §5.1: c= repeats the GS2 header, so that nobody in between changed `y` to `n` or the other way
        if header != self.gs2_header.as_bytes() {
            return Err("SCRAM: another GS2 header than before");
        }
        if nonce != self.nonce {
            return Err("SCRAM: another nonce than ours");
        }
        let proof = decode_key(proof).ok_or("SCRAM: the proof is not the base64 of 32 octets")?;
        let auth_message = [self.opening.as_bytes(), without_proof.as_bytes()].concat();
        // RFC 5802 §3: ClientKey = ClientProof XOR ClientSignature; H(ClientKey) must be StoredKey
        let mut client = Zeroizing::new(hmac_sha256(&self.keys.stored, &auth_message));
        client.iter_mut().zip(proof).for_each(|(signature, proof)| *signature ^= proof);
        if bool::from(sha256(&*client).ct_eq(&self.keys.stored)) {
            let signature = hmac_sha256(&self.keys.server, &auth_message);
            return Ok(format!("v={}", Base64::encode_string(&signature)).into_bytes());
        }
        Err("wrong password or unknown user")
    }
}

/// Returns random octets from the system's generator.
///
/// # Panics
/// If the generator fails, which it does not after the start of the machine.
pub(super) fn random_octets<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    rand::fill(&mut octets).expect("the random generator of the system works");
    octets
}

/// Returns the server's part of a nonce: 144 bits, printable.
pub(super) fn nonce() -> String {
    Base64::encode_string(&random_octets::<18>())
}

fn text(message: &[u8]) -> Result<&str, &'static str> {
    if message.len() > MESSAGE_OCTETS_MAX {
        return Err("SCRAM: the message is too long");
    }
    str::from_utf8(message).map_err(|_| "SCRAM: the message is not UTF-8")
}

// RFC 5802 §5.1: `=2C` is a comma, `=3D` an equals sign, and no other `=` may stand in a name
fn name(encoded: &str) -> Result<String, &'static str> {
    let mut parts = encoded.split('=');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err("SCRAM: a bare equals sign in a name"),
        };
        decoded.push(character);
        decoded.push_str(rest);
    }
    prepare::user(&decoded).ok_or(prepare::BAD_USER)
}

fn decode_key(text: &str) -> Option<ScramKey> {
    Base64::decode_vec(text).ok()?.try_into().ok()
}

fn sha256(data: &[u8]) -> ScramKey {
    let mut key = [0; KEY_OCTETS];
    key.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    key
}

fn hmac_sha256(key: &[u8], data: &[u8]) -> ScramKey {
    let mut tag = [0; KEY_OCTETS];
    tag.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref());
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7677 §3 (test)
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn keys() -> Keys {
        let salt = Base64::decode_vec("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Keys::derive("pencil", salt, NonZeroU32::new(4096).unwrap())
    }

    fn expected(first: &[u8]) -> Expected {
        First::parse(first).unwrap().answer(keys(), SERVER_NONCE).0
    }

    #[test]
    fn the_exchange_of_rfc_7677() {
        let first = First::parse(CLIENT_FIRST).unwrap();
        assert_eq!(first.user, "user");
        let (expected, message) = first.answer(keys(), SERVER_NONCE);
        assert_eq!(str::from_utf8(&message), Ok(SERVER_FIRST));
        assert_eq!(expected.judge(CLIENT_FINAL.as_bytes()).as_deref(), Ok(SERVER_FINAL));
    }

    #[test]
    fn every_changed_octet_of_the_final_message_fails() {
        let expected = expected(CLIENT_FIRST);
        for at in 0..CLIENT_FINAL.len() {
            for flip in [1, 0x20, 0x80] {
                let mut message = CLIENT_FINAL.as_bytes().to_vec();
                message[at] ^= flip;
                assert!(expected.judge(&message).is_err(), "{}", message.escape_ascii());
            }
        }
    }

    // RFC 5802 §6 (test)
    #[test]
    fn channel_binding_flags() {
        assert!(First::parse(b"y,,n=user,r=abc").is_ok());
        assert_eq!(First::parse(b"p=tls-unique,,n=user,r=abc").unwrap_err(), "SCRAM: channel binding was not offered");
        // The flag was `y` at first, and the final message is that of `n`.
        let swapped = expected(b"y,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(swapped.judge(CLIENT_FINAL.as_bytes()).unwrap_err(), "SCRAM: another GS2 header than before");
    }

    // RFC 5802 §5.1 (test)
    #[test]
    fn names_are_decoded_and_must_agree() {
        assert_eq!(First::parse(b"n,,n=a=2Cb=3Dc,r=x").unwrap().user, "a,b=c");
        assert_eq!(First::parse(b"n,a=u=3D,n=u=3D,r=x,ext=1").unwrap().user, "u=");
        for bad in [
            &b"n,a=other,n=user,r=x"[..],
            b"n,,n=a=b,r=x",
            b"n,,n=a=2,r=x",
            b"n,,n=,r=x",
            b"n,,n=us\x07er,r=x",
            b"n,,m=ext,n=user,r=x",
            b"n,,n=user,r=",
            b"n,,n=user,r=a b",
            b"n,,n=user",
            b"n,,r=x,n=user",
            b"n,user,n=user,r=x",
            b"",
            b"n",
            b"n,",
            b"n,,n=\xff,r=x",
        ] {
            assert!(First::parse(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn keys_survive_their_text_and_know_their_password() {
        let keys = keys();
        assert_eq!(Keys::parse(&keys.to_string()), Ok(keys.clone()));
        assert!(keys.matches_password("pencil") && !keys.matches_password("pencil "));
        assert!(!format!("{keys:?}").contains("stored"), "keys are not for logs");
    }

    #[test]
    fn broken_keys_are_named() {
        for (text, reason) in [
            ("SCRAM-SHA-256$4096:AAAA", "not SCRAM-SHA-256$"),
            ("SCRAM-SHA-256$x:AAAA$A:B", "is no number"),
            ("SCRAM-SHA-256$1:AAAA$A:B", "4096 to 10000000"),
            ("SCRAM-SHA-256$4096:$A:B", "1 to 1024"),
            ("SCRAM-SHA-256$4096:AAA$A:B", "salt is not base64"),
            ("SCRAM-SHA-256$4096:AAAA$AAAA:B", "stored key"),
        ] {
            assert!(Keys::parse(text).unwrap_err().contains(reason), "{text}");
        }
    }

    #[test]
    fn decoys_stay_the_same_for_a_user_and_fit_nothing() {
        let secret = [7; 32];
        let iterations = NonZeroU32::new(4096).unwrap();
        let decoy = |user| Keys::decoy_keys(user, &secret, iterations, 40);
        assert_eq!(decoy("a").salt, decoy("a").salt);
        assert_ne!(decoy("a").salt, decoy("b").salt);
        assert_eq!(decoy("a").salt.len(), 40);
        assert!(!decoy("a").matches_password(""));
    }
}

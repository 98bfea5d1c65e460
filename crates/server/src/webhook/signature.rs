//! The signature of a request, by which its receiver knows that it comes from this server and when.
//!
//! `Mailrace-Signature: t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 (RFC 2104) of `SECONDS.BODY` with the secret.

use crate::config::Config;
use aws_lc_rs::hmac;
use os::safe_file::Trust;
use std::fmt::{self, Write as _};
use std::io::Read as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Octets of a file with a secret that are read.
const FILE_BYTES_MAX: u64 = 4_096;
/// The fewest characters of a secret.
const SECRET_CHARACTERS_MIN: usize = 16;

/// The secret of a webhook.
pub(super) struct SigningSecret(hmac::Key);

/// Shows no secret.
impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret")
    }
}

impl SigningSecret {
    /// Reads the first line of a file.
    ///
    /// # Errors
    /// The file cannot be used; the text is for the operator.
    pub(super) fn read(config: &Config, path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let failed = |why: String| {
            format!("webhook.secret_file: {shown}: {why}; put a secret into it, as openssl rand -hex 32 makes one")
        };
        let mut text = Zeroizing::new(String::new());
        let opened = Trust::secrets(&config.server.user, &config.server.group).open(path);
        let (file, _) = opened.map_err(|error| failed(error.to_string()))?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
        let secret = text.lines().next().unwrap_or_default().trim();
        if secret.len() < SECRET_CHARACTERS_MIN {
            return Err(failed(format!("the first line has fewer than {SECRET_CHARACTERS_MIN} characters")));
        }
        Ok(Self::of(secret.as_bytes()))
    }

    pub(super) fn of(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns the value of the header field for a body that is sent in this second since 1970.
    pub(super) fn sign(&self, seconds: u64, body: &str) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{seconds}.").as_bytes());
        context.update(body.as_bytes());
        let mut value = format!("t={seconds},v1=");
        for octet in context.sign().as_ref() {
            write!(value, "{octet:02x}").expect("a string takes everything");
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against `printf '7.[]' | openssl dgst -sha256 -hmac 0123456789abcdef`.
    #[test]
    fn the_signature_is_that_of_openssl() {
        let signed = SigningSecret::of(b"0123456789abcdef").sign(7, "[]");
        assert_eq!(signed, "t=7,v1=882f5e1ebb050ea1a3e45475314eb30cc00dc41b938a69208009e50259f23a18");
    }
}

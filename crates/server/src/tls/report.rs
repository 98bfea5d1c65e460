//! Words of the log about a TLS connection, and about one that failed.

use rustls::{CipherSuite, CommonState, Error, InvalidMessage, PeerIncompatible, ServerConnection};
use std::fmt;
use std::io;

/// Returns version, cipher and server name of a connection whose handshake is done.
pub(super) fn describe(connection: &ServerConnection) -> smtp::server::Tls {
    let (version, cipher, bits) = agreed(connection);
    smtp::server::Tls { version, cipher, bits, server_name: connection.server_name().map(Into::into) }
}

/// Returns version, cipher and bits of either side's connection.
pub(super) fn agreed(connection: &CommonState) -> (Box<str>, Box<str>, u16) {
    let cipher = connection.negotiated_cipher_suite().map_or_else(String::new, |suite| cipher_name(suite.suite()));
    let version = match connection.protocol_version() {
        Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "TLS",
    };
    let bits = bits(&cipher);
    (version.into(), cipher.into(), bits)
}

/// Returns the name that OpenSSL, and so other servers' logs, give a cipher suite.
fn cipher_name(suite: CipherSuite) -> String {
    let name = suite.as_str().unwrap_or("unknown");
    if let Some(rest) = name.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    let name =
        name.strip_prefix("TLS_").unwrap_or(name).replace("_WITH_", "-").replace("AES_", "AES").replace('_', "-");
    // OpenSSL leaves the hash of ChaCha20 suites away.
    name.strip_suffix("POLY1305-SHA256").map_or_else(|| name.clone(), |start| format!("{start}POLY1305"))
}

fn bits(cipher: &str) -> u16 {
    let is = |part: &str| cipher.contains(part);
    match () {
        () if is("AES256") || is("AES_256") || is("CHACHA20") => 256,
        () if is("AES128") || is("AES_128") => 128,
        () => 0,
    }
}

/// Why there is no TLS connection. The text is for the log.
#[derive(Debug)]
pub struct HandshakeError {
    peer: TlsPeer,
    reason: TlsFailure,
}

/// The peer of the handshake.
#[derive(Clone, Copy, Debug)]
pub(super) enum TlsPeer {
    Client,
    NextHop,
}

#[derive(Debug)]
enum TlsFailure {
    TimedOut,
    /// The peer closed the connection.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// The two could not agree, or the peer does not speak TLS.
    Refused(Error),
}

impl HandshakeError {
    pub(super) const fn timed_out(peer: TlsPeer) -> Self {
        Self { peer, reason: TlsFailure::TimedOut }
    }

    /// Returns whether the handshake took too long, without an error of either side.
    pub(crate) const fn has_timed_out(&self) -> bool {
        matches!(self.reason, TlsFailure::TimedOut)
    }

    /// Returns whether the peer's first octets are no record of TLS: clear text, or octets that an attacker put in
    /// front of the records.
    pub(crate) const fn is_no_record(&self) -> bool {
        use InvalidMessage::{InvalidContentType, InvalidEmptyPayload, MessageTooLarge, UnknownProtocolVersion};
        matches!(
            self.reason,
            TlsFailure::Refused(Error::InvalidMessage(
                InvalidContentType | InvalidEmptyPayload | MessageTooLarge | UnknownProtocolVersion
            ))
        )
    }

    pub(super) const fn refused(peer: TlsPeer, error: Error) -> Self {
        Self { peer, reason: TlsFailure::Refused(error) }
    }

    pub(super) fn from_io(peer: TlsPeer, error: io::Error) -> Self {
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return Self::refused(peer, error.clone());
        }
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                TlsFailure::Closed
            }
            _ => TlsFailure::Broken(error),
        };
        Self { peer, reason }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = match self.peer {
            TlsPeer::Client => "client",
            TlsPeer::NextHop => "server",
        };
        let error = match (&self.reason, self.peer) {
            (TlsFailure::TimedOut, TlsPeer::Client) => {
                return f.write_str("no handshake within tls.handshake_time_max");
            }
            (TlsFailure::TimedOut, TlsPeer::NextHop) => return f.write_str("no handshake in time"),
            (TlsFailure::Closed, _) => return write!(f, "{peer} closed the connection in the handshake"),
            (TlsFailure::Broken(error), _) => return write!(f, "connection broke in the handshake: {error}"),
            (TlsFailure::Refused(error), _) => error,
        };
        match error {
            Error::AlertReceived(alert) => write!(f, "{peer} sent alert {}", snake_case(&format!("{alert:?}"))),
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => f.write_str("plain text instead of TLS"),
            Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => f.write_str("no shared cipher"),
            Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon) => {
                f.write_str("no shared key exchange group")
            }
            Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                // OpenSSL 3.0's s_client with -tls1_1: TLS 1.1 does not know the extension.
                | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
            ) => write!(f, "{peer}'s TLS versions are below tls.version_min"),
            Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
                f.write_str("no shared cipher or signature algorithm")
            }
            // The error of rustls when no certificate fits; the client's signature algorithms are reduced to those of
            // shared ciphers.
            Error::General(text) if text.contains("no server certificate chain") => {
                f.write_str("no shared cipher or signature algorithm")
            }
            error => error.fmt(f),
        }
    }
}

impl std::error::Error for HandshakeError {}

/// `BadCertificate` as RFC 8446 writes it, `bad_certificate`.
// RFC 8446 §6
fn snake_case(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for character in name.chars() {
        if after_lower && character.is_ascii_uppercase() {
            text.push('_');
        }
        after_lower = !character.is_ascii_uppercase();
        text.push(character.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn ciphers_have_the_names_of_openssl() {
        for (suite, name, expected) in [
            (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", 256),
            (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", 128),
            (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256", 256),
            (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384", 256),
            (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256", 128),
            (CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        ] {
            assert_eq!(cipher_name(suite), name);
            assert_eq!(bits(name), expected);
        }
    }

    #[test]
    fn alerts_have_the_names_of_the_rfc() {
        for (alert, name) in [
            (AlertDescription::BadCertificate, "bad_certificate"),
            (AlertDescription::UnknownCA, "unknown_ca"),
            (AlertDescription::CertificateExpired, "certificate_expired"),
        ] {
            for (peer, who) in [(TlsPeer::Client, "client"), (TlsPeer::NextHop, "server")] {
                let error = HandshakeError::refused(peer, Error::AlertReceived(alert));
                assert_eq!(error.to_string(), format!("{who} sent alert {name}"));
            }
        }
    }
}

//! Opens a connection to a directory: socket, TLS, bind, and the texts for failures.
//!
//! A certificate counts if a CA of `ldap.ca_file` (else of the system) signed it for the host of the URL. In many
//! directories a server has a self-signed CA certificate, which cannot be verified as one of a server; it counts if
//! the file has that very certificate.

use crate::config;
use crate::tls::flaw::Flaw;
use crate::tls::{authorities, validity};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, StdStream};
use os::blocking;
use os::safe_file::{Refusal, Trust};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Silence after which the kernel probes the server: firewalls forget connections that are silent for minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Octets of a password file that are read; its first line counts.
const PASSWORD_FILE_BYTES_MAX: u64 = 64 << 10;

/// Result codes (RFC 4511 §4.1.9).
const PROTOCOL_ERROR: u32 = 2;
const STRONGER_AUTH_REQUIRED: u32 = 8;
const CONFIDENTIALITY_REQUIRED: u32 = 13;
const INVALID_CREDENTIALS: u32 = 49;

/// Returns a connection to the server of this URL, bound as the table says. The error is a text for the operator.
///
/// # Cancel safety
/// Yes.
pub(super) async fn dial(table: &config::Ldap, url: &str) -> Result<Ldap, String> {
    let (scheme, host, port) = parts(url);
    let is_tls = scheme == "ldaps" || table.starttls && scheme == "ldap";
    let mut settings = LdapConnSettings::new().set_starttls(table.starttls && scheme == "ldap");
    if is_tls {
        let ca_file = table.ca_file.clone();
        let made = blocking::run(move || tls(ca_file.as_deref())).await;
        settings = settings.set_config(made.map_err(|_| "the reading thread broke off".to_owned())??);
    }
    if scheme != "ldapi" {
        let stream = connect(host, port).await.map_err(|error| error.to_string())?;
        settings = settings.set_std_stream(StdStream::Tcp(stream));
    }
    let opened = LdapConnAsync::with_settings(settings, url).await;
    let (connection, mut ldap) = opened.map_err(|error| opening_text(&error, table))?;
    // The task ends with its handles; a failed operation reports the error, too.
    tokio::spawn(async move { drop(connection.drive().await) });
    if !table.bind.is_empty() {
        let password = password(table).await?;
        let bound = ldap.simple_bind(&table.bind, &password).await.and_then(ldap3::LdapResult::success);
        bound.map_err(|error| bind_text(&error, table))?;
    }
    Ok(ldap)
}

async fn connect(host: &str, port: u16) -> io::Result<std::net::TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    stream.into_std()
}

/// Scheme, host and port of a URL that the rules of the configuration have let through.
fn parts(url: &str) -> (&str, &str, u16) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("ldap", url));
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let usual = if scheme == "ldaps" { 636 } else { 389 };
    (scheme, host, port.and_then(|port| port.parse().ok()).unwrap_or(usual))
}

async fn password(table: &config::Ldap) -> Result<String, String> {
    let Some(path) = table.password_file.clone() else {
        return Err("ldap.bind without ldap.password_file".to_owned());
    };
    let shown = path.display().to_string();
    let read = blocking::run(move || read_password(&path)).await;
    let text = match read {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(format!("ldap.password_file: {shown}: {error}")),
        Err(_) => return Err(format!("ldap.password_file: {shown}: the reading thread broke off")),
    };
    match text.lines().next() {
        // Servers take it for an anonymous bind, which succeeds (RFC 4513 §5.1.2).
        None | Some("") => Err(format!("ldap.password_file: {shown} has no password in its first line")),
        Some(password) => Ok(password.to_owned()),
    }
}

/// Reads the beginning of a password file, if only root and the server's user and group can have written it.
fn read_password(path: &Path) -> Result<String, Refusal> {
    let (file, _) = Trust::secrets("", "").open(path)?;
    let mut text = String::new();
    file.take(PASSWORD_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// TLS with the CAs of the file, or of the system.
fn tls(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    const KEY: &str = "ldap.ca_file";
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificates = match ca_file {
        Some(path) => authorities::of_file(path).map_err(|problem| format!("{KEY}: {problem}"))?,
        None => authorities::of_system(KEY)?,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|error| match ca_file {
        Some(path) => format!("{KEY}: {}: {error}", path.display()),
        None => error.to_string(),
    })?;
    let exact = if ca_file.is_some() { certificates } else { Vec::new() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting { verifier, exact }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Trusts certificates that a CA signed, and the very certificates in the file.
#[derive(Debug)]
struct Trusting {
    verifier: Arc<WebPkiServerVerifier>,
    exact: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.exact.iter().any(|exact| exact == end_entity) {
            return self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        match validity::not_after(end_entity) {
            Some(not_after) if not_after >= now.as_secs() => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::Expired.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Returns the cause of a failed operation, without the library's words around it.
pub(super) fn text(error: &LdapError) -> String {
    match error {
        LdapError::Io { source } => source.to_string(),
        LdapError::LdapResult { result } => result_text(result),
        LdapError::ResultRecv { .. }
        | LdapError::OpSend { .. }
        | LdapError::EndOfStream
        | LdapError::IdScrubSend { .. } => "it closed the connection".to_owned(),
        other => other.to_string(),
    }
}

/// Returns `invalidCredentials:` and the message of the server.
pub(super) fn result_text(result: &ldap3::LdapResult) -> String {
    let text = result.to_string();
    let name = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(name, _)| name);
    let said = if result.text.is_empty() { String::new() } else { format!(": {}", result.text) };
    format!("{name} ({}){said}", result.rc)
}

fn opening_text(error: &LdapError, table: &config::Ldap) -> String {
    match error {
        LdapError::LdapResult { result } if table.starttls => {
            let next = match result.rc {
                PROTOCOL_ERROR => "; write ldaps:// if it has TLS on a port of its own, or give it a certificate",
                _ => "",
            };
            format!("it refuses StartTLS: {}{next}", result_text(result))
        }
        LdapError::Io { source } => match source.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => tls_text(error, table),
            None if source.kind() == io::ErrorKind::UnexpectedEof => {
                "it closed the connection before TLS was agreed on; see whether that port has TLS".to_owned()
            }
            None => text(error),
        },
        LdapError::Rustls { source } => tls_text(source, table),
        _ => text(error),
    }
}

fn tls_text(error: &Error, table: &config::Ldap) -> String {
    let flaw = match error {
        Error::InvalidCertificate(error) => Flaw::of(error),
        Error::InvalidMessage(_) => return format!("TLS: {error}; see whether that port has TLS"),
        _ => return format!("TLS: {error}"),
    };
    let file = table.ca_file.as_ref().map(|path| format!("in {}", path.display()));
    let cas = file.as_deref().unwrap_or("of the system");
    let next = match &flaw {
        // If the file had that very certificate, it would count.
        Flaw::OfCa => {
            return format!("its certificate signed itself and is not {cas}; name a file with it in ldap.ca_file");
        }
        Flaw::Stranger => "; name the file of its CA in ldap.ca_file",
        Flaw::ForOthers { hosts, .. } if hosts.is_empty() => "; make a new one",
        Flaw::ForOthers { .. } => "; write in ldap.servers a name that it is for",
        Flaw::Expired => "; the directory needs a new one",
        Flaw::NotYetValid => "; compare the clocks",
        Flaw::OtherUse | Flaw::Other(_) => "",
    };
    format!("its certificate {}{next}", flaw.text(cas, "servers"))
}

fn bind_text(error: &LdapError, table: &config::Ldap) -> String {
    let next = match error {
        LdapError::LdapResult { result } => match result.rc {
            INVALID_CREDENTIALS => {
                let file = table.password_file.as_ref().map_or_else(PathBuf::new, Clone::clone);
                format!("; see the name in ldap.bind and the password in {}", file.display())
            }
            CONFIDENTIALITY_REQUIRED | STRONGER_AUTH_REQUIRED => {
                "; set ldap.starttls = true, or write ldaps://".to_owned()
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    format!("bind as \"{}\": {}{next}", table.bind, text(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "secret\n").unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_password(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read(0o600), Ok("secret\n".to_owned()));
        let why = read(0o602).unwrap_err();
        assert!(why.contains("can be written by everybody") && why.contains("chmod go-w "), "{why}");
    }

    #[test]
    fn a_url_has_three_parts() {
        for (url, expected) in [
            ("ldap://a.example", ("ldap", "a.example", 389)),
            ("ldaps://a.example/", ("ldaps", "a.example", 636)),
            ("ldaps://[2001:db8::1]:3269", ("ldaps", "2001:db8::1", 3269)),
            ("ldap://10.0.0.1:3890/", ("ldap", "10.0.0.1", 3890)),
        ] {
            assert_eq!(parts(url), expected);
        }
    }

    #[test]
    fn only_the_named_certificate_is_trusted_without_a_ca() {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, end: Option<i32>| {
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            if let Some(year) = end {
                params.not_after = rcgen::date_time_ymd(year, 1, 1);
            }
            params.self_signed(&KeyPair::generate().unwrap()).unwrap()
        };
        let (own, other, old) = (make("d.test", None), make("d.test", None), make("d.test", Some(2001)));
        let file = directory.path().join("ca.pem");
        std::fs::write(&file, format!("{}{}", own.pem(), old.pem())).unwrap();
        let exact = authorities::of_file(&file).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(exact.iter().cloned());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let trusting = Trusting { verifier, exact };
        let look = |certificate: &rcgen::Certificate, name: &str| {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
            let name = ServerName::try_from(name).unwrap();
            trusting.verify_server_cert(certificate.der(), &[], &name, &[], now).map(|_| ())
        };
        assert_eq!(look(&own, "d.test"), Ok(()));
        for (certificate, name, word) in [
            (&own, "e.test", "its certificate is not for e.test but for "),
            (&other, "d.test", "signed itself and is not in /ca.pem"),
            (&old, "d.test", "has expired"),
        ] {
            let error = look(certificate, name).unwrap_err();
            let table = config::Ldap { ca_file: Some("/ca.pem".into()), ..super::super::tests::blank() };
            let text = tls_text(&error, &table);
            assert!(text.contains(word), "{text}: {error:?}");
        }
    }
}

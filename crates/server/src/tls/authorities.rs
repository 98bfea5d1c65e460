//! The CAs that judge certificates: of files, or of the system.
//!
//! The CAs for next hops, of `tls.ca_files` or of the system, are read when the first certificate is judged, and
//! again after an hour, since a system renews them. If a file cannot be read any more, the earlier CAs stay.

use super::{TlsProblem, certificate};
use os::{blocking, clock};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which the files are not read again.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// Certificates of the last reading.
#[derive(Debug, Default)]
pub(super) struct Authorities(Mutex<Option<CachedRoots>>);

#[derive(Clone, Debug)]
struct CachedRoots {
    files: Vec<PathBuf>,
    at: Instant,
    roots: Arc<RootCertStore>,
}

impl Authorities {
    /// Returns the authorities in these files; of the system, if there are none.
    ///
    /// # Errors
    /// They cannot be read; what to tell the operator.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn get(&self, files: &[PathBuf]) -> Result<Arc<RootCertStore>, Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|kept| kept.files == files);
        let now = clock::now();
        if let Some(kept) = &kept
            && now.saturating_duration_since(kept.at) < KEPT_FOR
        {
            return Ok(Arc::clone(&kept.roots));
        }
        let wanted = files.to_vec();
        let read = blocking::run(move || read(&wanted)).await;
        let roots = match (read.unwrap_or_else(|_| Err("the reading thread broke off".into())), kept) {
            (Ok(roots), _) => Arc::new(roots),
            (Err(_), Some(kept)) => kept.roots,
            (Err(why), None) => return Err(why),
        };
        let kept = CachedRoots { files: files.to_vec(), at: now, roots: Arc::clone(&roots) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(roots)
    }
}

fn read(files: &[PathBuf]) -> Result<RootCertStore, Arc<str>> {
    const KEY: &str = "tls.ca_files";
    let mut found = if files.is_empty() { of_system(KEY)? } else { Vec::new() };
    for path in files {
        found.extend(of_file(path).map_err(|problem| format!("{KEY}: {problem}"))?);
    }
    let mut roots = RootCertStore::empty();
    // A CA that rustls cannot parse is left out; the others count.
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(format!("{KEY}: no certificate of a CA that can judge others; name a file with some").into());
    }
    Ok(roots)
}

/// Returns the CA certificates in a file in PEM, at least one. Blocks on the disk.
///
/// # Errors
/// It cannot be read, is broken or has none; the text names the file, and not the setting.
pub(crate) fn of_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let found = certificate::read_certificates(path)?;
    if found.is_empty() {
        let reason = "no certificate in it (BEGIN CERTIFICATE); name a file with CA certificates in PEM";
        return Err(TlsProblem::of(path, reason));
    }
    Ok(found)
}

/// Returns the CA certificates of the system, where OpenSSL looks for them, at least one. Blocks on the disk. `key`:
/// the setting that names others.
///
/// # Errors
/// There is none that can be read.
pub(crate) fn of_system(key: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        return Err(format!("this machine has no CA certificates{why}; install ca-certificates, or set {key}"));
    }
    Ok(found.certs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    fn authority() -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn all_that_can_judge_is_taken_from_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one.pem", "two.pem"].map(|name| directory.path().join(name));
        let strange = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let key = KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(&one, format!("a CA\n{}{strange}{key}{}", authority(), authority())).unwrap();
        std::fs::write(&two, authority()).unwrap();
        assert_eq!(of_file(&one).unwrap().len(), 3);
        assert_eq!(read(&[one, two.clone()]).unwrap().len(), 3);
        std::fs::write(&two, strange).unwrap();
        assert_eq!(
            &*read(&[two]).unwrap_err(),
            "tls.ca_files: no certificate of a CA that can judge others; name a file with some"
        );
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let good = authority();
        let next = good.lines().count() + 2;
        for (text, said) in [
            (
                String::new(),
                "no certificate in it (BEGIN CERTIFICATE); name a file with CA certificates in PEM".to_owned(),
            ),
            (format!("\n{good}-----BEGIN CERTIFICATE-----\n\n!\n"), format!("broken PEM from line {next} on: ")),
            (
                format!("\n{good}-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n{good}"),
                format!("broken PEM from line {next} on: "),
            ),
            ("-----BEGIN CERTIFICATE---\n".to_owned(), "broken PEM from line 1 on: ".to_owned()),
        ] {
            std::fs::write(&path, text).unwrap();
            let why = read(std::slice::from_ref(&path)).unwrap_err();
            assert!(why.starts_with(&format!("tls.ca_files: {}: {said}", path.display())), "{why}");
        }
        std::fs::remove_file(&path).unwrap();
        let why = of_file(&path).unwrap_err().to_string();
        assert!(
            why.contains("ca.pem: cannot be read: ") && why.ends_with("; name a file that mailrace may read"),
            "{why}"
        );
    }
}

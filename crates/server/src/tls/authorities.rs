//! The authorities that certificates of next hops are judged by: those of `tls.ca_files`, or those of the system.
//!
//! They are read when the first certificate is judged, and again after an hour, since a system renews them. A file that cannot be
//! read any more leaves what was read before.

use crate::env::{blocking, clock};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long what was read is believed.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// Where systems keep theirs; the first that is there counts.
const SYSTEM_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct Authorities(Mutex<Option<Kept>>);

#[derive(Clone, Debug)]
struct Kept {
    files: Vec<PathBuf>,
    at: Instant,
    roots: Arc<RootCertStore>,
}

impl Authorities {
    /// The authorities in these files; of the system, if there are none.
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
        let kept = Kept { files: files.to_vec(), at: now, roots: Arc::clone(&roots) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(roots)
    }
}

fn read(files: &[PathBuf]) -> Result<RootCertStore, Arc<str>> {
    let system = SYSTEM_FILES.map(Path::new).into_iter().find(|path| path.exists()).map(Path::to_owned);
    let mut roots = RootCertStore::empty();
    for path in if files.is_empty() { system.as_slice() } else { files } {
        let cannot = |error: &dyn std::fmt::Display| -> Arc<str> {
            format!("{} cannot be read: {error}; see tls.ca_files", path.display()).into()
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
            // One that rustls does not understand can judge nothing; the others can.
            drop(roots.add(certificate.map_err(|error| cannot(&error))?));
        }
    }
    if roots.is_empty() {
        let what = if files.is_empty() { "the system has no file of authorities" } else { "there are no authorities" };
        return Err(format!("{what}; name them in tls.ca_files").into());
    }
    Ok(roots)
}

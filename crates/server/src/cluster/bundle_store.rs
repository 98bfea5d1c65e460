//! Bundles of shared configuration in the engine: a stream with a message for each piece.
//!
//! A bundle is named by the SHA-256 of its octets, and what was read is compared with its name. So a server that is
//! behind can lack a piece, which is asked for again, and cannot give another one.

use super::api::{self, CallError, Direct};
use super::connection::Engine;
use super::error::EngineAccessError;
use async_nats::HeaderMap;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use cluster::{Bundle, BundleDigest, BundleName};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const STREAM: &str = "MRC_config";
const SUBJECTS: &str = "MRC.>";
/// Time until a piece that a server lacks is asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Questions for a piece.
const TRIES: usize = 40;

/// The stream with bundles.
#[derive(Clone, Debug)]
pub(super) struct BundleStore {
    engine: Engine,
}

/// Names a bundle.
pub(super) fn name_of(octets: &[u8]) -> BundleName {
    let sum = digest(&SHA256, octets);
    let digest = BundleDigest(sum.as_ref().try_into().unwrap_or_default());
    BundleName { digest, octets: u32::try_from(octets.len()).unwrap_or(u32::MAX) }
}

fn subject(digest: BundleDigest, piece: u32) -> String {
    format!("MRC.{digest}.{piece}")
}

impl BundleStore {
    pub(super) const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Makes the stream, and removes bundles that are not among these.
    ///
    /// # Errors
    /// No answer, or the reason of the engine.
    pub(super) async fn prepare(&self, replicas: usize, kept: &[BundleDigest]) -> Result<(), EngineAccessError> {
        let failed = |error: CallError| error.of(&format!("stream \"{STREAM}\" with {replicas} copies"));
        let config = api::last_of_subjects(STREAM, SUBJECTS, replicas);
        match api::call(&self.engine, &format!("STREAM.CREATE.{STREAM}"), &config).await {
            Ok(_) => {}
            // Of another number of copies.
            Err(error) if error.is(api::STREAM_NAME_IN_USE) => {
                api::call(&self.engine, &format!("STREAM.UPDATE.{STREAM}"), &config).await.map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        for digest in self.stored().await.map_err(failed)?.into_iter().filter(|one| !kept.contains(one)) {
            let filter = json!({ "filter": format!("MRC.{digest}.>") });
            api::call(&self.engine, &format!("STREAM.PURGE.{STREAM}"), &filter).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Bundles of which the stream has the first piece.
    async fn stored(&self) -> Result<BTreeSet<BundleDigest>, CallError> {
        let filter = json!({ "subjects_filter": "MRC.*.0" });
        let info = api::call(&self.engine, &format!("STREAM.INFO.{STREAM}"), &filter).await?;
        let subjects = info.pointer("/state/subjects").and_then(Value::as_object);
        let digest = |subject: &String| BundleDigest::parse(subject.strip_prefix("MRC.")?.strip_suffix(".0")?);
        Ok(subjects.into_iter().flat_map(serde_json::Map::keys).filter_map(digest).collect())
    }

    /// Stores a piece.
    ///
    /// # Errors
    /// No answer, or the reason of the engine. The piece may be stored all the same; it is the same each time.
    pub(super) async fn put(&self, name: BundleName, octets: &[u8], piece: u32) -> Result<(), EngineAccessError> {
        let content = Bytes::copy_from_slice(BundleName::piece(octets, piece));
        let subject = subject(name.digest, piece);
        let stored = api::publish(&self.engine, STREAM, subject, HeaderMap::new(), content).await;
        stored.map(drop).map_err(|error| error.of(&format!("piece {piece} of bundle {}", name.digest.short())))
    }

    /// Reads a bundle.
    ///
    /// # Errors
    /// It is not there as a whole, or is another one than its name says; a text for the operator.
    pub(super) async fn fetch(&self, name: BundleName) -> Result<Bundle, String> {
        let short = name.digest.short();
        let mut octets = Vec::new();
        for piece in 0..name.pieces() {
            let content = self.fetch_piece(name.digest, piece).await;
            let content = content.map_err(|error| format!("piece {piece} of the files {short}: {error}"))?;
            octets.extend_from_slice(&content);
        }
        if name_of(&octets) != name {
            return Err(format!("the files {short} are damaged in the engine; push them again"));
        }
        Bundle::decode(&octets).map_err(|error| format!("the files {short}: {error}; push them again"))
    }

    async fn fetch_piece(&self, digest: BundleDigest, piece: u32) -> Result<Bytes, CallError> {
        let question = json!({ "last_by_subj": subject(digest, piece) }).to_string();
        for _ in 0..TRIES {
            let subject = format!("$JS.API.DIRECT.GET.{STREAM}");
            let answer = self.engine.request(subject, None, question.clone().into()).await?;
            if let Direct::Message(message) = api::direct(answer)? {
                return Ok(message.payload);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Err(CallError::Fault("it is not there; push the files again".to_owned()))
    }
}

//! Signs a message for a next hop, as the last change of its content: mail of own users with DKIM, forwarded mail of
//! others with an ARC set.

use super::outbound_session::{OutboundSession, Unread};
use crate::admit::relay::Rights;
use crate::message::{Content, ContentForm, OutboundMessage};
use crate::signing::{BodyHash, SealingPlan, SigningPlan};
use bytes::Bytes;
use mail::header::{HeaderSection, LineEnd};
use mail::{Client, Protocol, QueueId, Received};
use observe::{Event, SignatureKind};
use os::clock;

/// Octets of a stored content that are read at once.
const PIECE_BYTES: u64 = 256 << 10;
/// The largest header section of a message that is signed; stored content has no larger one.
const HEADER_BYTES_MAX: usize = 16 << 20;
/// Why a signature could not be made.
const LIBRARY_FAILED: &str = "the cryptographic library failed; run mailrace check, which reads the keys";

/// The fields that a message gets.
enum FieldsPlan {
    /// DKIM signatures.
    Dkim(SigningPlan),
    /// An ARC set.
    Arc(SealingPlan),
}

/// Returns whether mail that came like this is mail of our own users: it came from a client that had logged in, from
/// `relay.from`, from a program of this machine, or it is a report of ours.
fn is_own(received: &Received, rights: &Rights) -> bool {
    let has_logged_in = match received.protocol {
        Protocol::Esmtp(session) | Protocol::Lmtp(session) => session.auth,
        Protocol::Local | Protocol::Smtp => false,
    };
    has_logged_in
        || match received.client {
            Client::Network(address) => rights.is_from(address.ip()),
            Client::Process { .. } | Client::Internal => true,
        }
}

impl OutboundSession<'_> {
    /// Gives a message its signature fields: DKIM signatures if it is mail of own users and there is a key for its
    /// author, an ARC set if it is mail of others that was checked. Returns whether it has some.
    ///
    /// Content that is not in memory is read once for all connections that send the message.
    // RFC 6376 §5.3: a signature over content that is converted later fails
    pub(super) async fn sign(&self, outgoing: &mut OutboundMessage, form: ContentForm) -> Result<bool, Unread> {
        let live = self.work.context.live.load_full();
        let (keys, authserv_id) = (&live.signing, &live.config.auth_results.id);
        if !keys.signs() && !keys.seals() {
            return Ok(false);
        }
        let is_own = is_own(&outgoing.envelope.received, &live.rights);
        if !(if is_own { keys.signs() } else { keys.seals() }) {
            return Ok(false);
        }
        let (id, known) = (outgoing.envelope.id, &self.work.dispatch.messages.signatures);
        let kept = (form == ContentForm::Stored).then(|| known.get(keys, id)).flatten();
        let fields = match kept {
            Some(fields) => fields,
            None => {
                let mut reader = ContentPieces { session: self, outgoing, at: 0 };
                let plan = |header: &HeaderSection<'_>| match is_own {
                    true => keys.for_message(header).map(FieldsPlan::Dkim),
                    false => keys.for_forwarded(header, authserv_id).map(FieldsPlan::Arc),
                };
                let fields = match reader.header(plan).await? {
                    Some((plan, body)) => self.signed(id, plan, reader.hash(body).await?),
                    None => Bytes::new(),
                };
                if form == ContentForm::Stored {
                    known.remember(keys, id, fields.clone());
                }
                fields
            }
        };
        outgoing.signature = (!fields.is_empty()).then_some(fields);
        Ok(outgoing.signature.is_some())
    }

    /// Signs. If that fails with a key, the message leaves without its signature. The log has a line for each key.
    fn signed(&self, id: QueueId, plan: FieldsPlan, body: BodyHash) -> Bytes {
        let kind = match plan {
            FieldsPlan::Dkim(_) => SignatureKind::Dkim,
            FieldsPlan::Arc(_) => SignatureKind::Arc,
        };
        let mut report = |domain: &str, selector: &str, is_made: bool| {
            let failure = (!is_made).then_some(LIBRARY_FAILED);
            self.work.context.record(&Event::Signed { id, kind, domain, selector, failure });
        };
        let time = clock::unix_us() / 1_000_000;
        match plan {
            FieldsPlan::Dkim(plan) => plan.sign(body, time, &mut report),
            FieldsPlan::Arc(plan) => plan.seal(body, time, &mut report),
        }
    }
}

/// Reads the content of a message that is about to be sent, piece by piece, and leaves it there.
struct ContentPieces<'a, 's> {
    session: &'a OutboundSession<'s>,
    outgoing: &'a OutboundMessage,
    /// Pieces in memory that were read, or octets of stored content.
    at: u64,
}

impl ContentPieces<'_, '_> {
    /// Returns the next piece; `None` behind the last.
    async fn next(&mut self) -> Result<Option<Bytes>, Unread> {
        match &self.outgoing.content {
            Content::Here(pieces) => {
                let piece = usize::try_from(self.at).ok().and_then(|at| pieces.get(at)).cloned();
                self.at += 1;
                Ok(piece)
            }
            Content::Stored { .. } => {
                let (start, id) = (self.at, self.outgoing.envelope.id);
                let end = (start + PIECE_BYTES).min(self.outgoing.content_bytes);
                if start >= end {
                    return Ok(None);
                }
                let reading = &self.session.work.dispatch.messages.reading;
                let piece = OutboundMessage::part(reading, id, start, end).await.map_err(Unread::Why)?;
                if piece.is_empty() {
                    return Err(Unread::broken());
                }
                self.at += piece.len() as u64;
                Ok(Some(piece))
            }
        }
    }

    /// Reads the header section. Returns the result of `use_it`, and the hash of the octets of the body that were read.
    async fn header<T>(
        &mut self,
        use_it: impl FnOnce(&HeaderSection<'_>) -> Option<T>,
    ) -> Result<Option<(T, BodyHash)>, Unread> {
        let mut content = Bytes::new();
        loop {
            let piece = self.next().await?;
            let is_all = piece.is_none();
            content = match piece {
                Some(piece) if content.is_empty() => piece,
                Some(piece) => [&*content, &*piece].concat().into(),
                None => content,
            };
            let header = HeaderSection::read(&content, LineEnd::Crlf);
            if !header.is_closed() && !is_all && content.len() < HEADER_BYTES_MAX {
                continue;
            }
            let Some(found) = use_it(&header) else { return Ok(None) };
            let mut body = BodyHash::new();
            body.push(content.get(header.body_offset()..).unwrap_or_default());
            return Ok(Some((found, body)));
        }
    }

    /// Adds the rest of the body to its hash.
    async fn hash(&mut self, mut body: BodyHash) -> Result<BodyHash, Unread> {
        while let Some(piece) = self.next().await? {
            body.push(&piece);
        }
        Ok(body)
    }
}

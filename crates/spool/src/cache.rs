//! CacheEntry messages in memory, so that a first delivery reads nothing from the disk.
//!
//! Bounded by bytes; the oldest go first, finished ones at once. Pieces of a body that is still arriving are kept like
//! any other, and are no longer collected once some were given up.

use crate::sections::places;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The estimated memory of an entry beside its bytes: its places in map and line, the counters of its bytes, and the
/// overhead of the allocator.
const OVERHEAD: usize = 512;

#[derive(Debug, Default)]
struct CacheEntry {
    envelope: Bytes,
    /// The header section of a message in chunks; of another one it is in the only part.
    header: Bytes,
    parts: Vec<Bytes>,
    bytes: usize,
    whole: bool,
    /// Where each recipient stands in `envelope`; made when a caller asks for some of them.
    places: Option<Arc<[u32]>>,
}

/// A message that is here.
#[derive(Debug)]
pub(crate) struct CachedMessage {
    /// The envelope section as it was written first.
    pub(crate) envelope: Bytes,
    /// Where each recipient stands in it, by position.
    pub(crate) places: Arc<[u32]>,
    /// The content in pieces.
    pub(crate) pieces: Vec<Bytes>,
}

/// The cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: HashMap<u64, CacheEntry>,
    /// In order of arrival; may name entries that have gone.
    order: VecDeque<u64>,
    bytes: usize,
    bytes_max: usize,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a whole message.
    pub(crate) fn put(&mut self, id: u64, envelope: Bytes, content: Bytes) {
        let bytes = envelope.len() + content.len() + OVERHEAD;
        self.enter(id, CacheEntry { envelope, parts: vec![content], bytes, whole: true, ..CacheEntry::default() });
    }

    /// Keeps piece `number` of an arriving body, if all before it are still here.
    pub(crate) fn put_part(&mut self, id: u64, number: u32, part: Bytes) {
        if number == 0 {
            let bytes = part.len() + OVERHEAD;
            self.enter(id, CacheEntry { parts: vec![part], bytes, ..CacheEntry::default() });
        } else if let Some(recent) = self.entries.get_mut(&id).filter(|recent| recent.parts.len() == number as usize) {
            recent.bytes += part.len();
            self.bytes += part.len();
            recent.parts.push(part);
            self.shrink();
        }
    }

    /// Completes an arriving body of `parts` pieces with its envelope and its header section.
    pub(crate) fn complete(&mut self, id: u64, parts: u32, envelope: Bytes, header: Bytes) {
        match self.entries.get_mut(&id) {
            Some(recent) if recent.parts.len() == parts as usize => {
                let bytes = envelope.len() + header.len();
                recent.bytes += bytes;
                self.bytes += bytes;
                (recent.envelope, recent.header) = (envelope, header);
                recent.whole = true;
                self.shrink();
            }
            _ => self.remove(id),
        }
    }

    fn enter(&mut self, id: u64, recent: CacheEntry) {
        self.remove(id);
        self.bytes += recent.bytes;
        self.entries.insert(id, recent);
        self.order.push_back(id);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max {
            match self.order.pop_front() {
                Some(id) => self.remove(id),
                None => break,
            }
        }
        if self.order.len() > 2 * self.entries.len() + 1024 {
            let entries = &self.entries;
            self.order.retain(|id| entries.contains_key(id));
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(gone) = self.entries.remove(&id) {
            self.bytes -= gone.bytes;
        }
    }

    /// The content in pieces, if it is here.
    pub(crate) fn content(&self, id: u64) -> Option<Vec<Bytes>> {
        self.entries.get(&id).filter(|recent| recent.whole).map(CacheEntry::pieces)
    }

    /// Header section and chunks of a message in chunks, if it is here.
    pub(crate) fn chunks(&self, id: u64) -> Option<(Bytes, Vec<Bytes>)> {
        let recent = self.entries.get(&id).filter(|recent| recent.whole)?;
        Some((recent.header.clone(), recent.parts.clone()))
    }

    /// The whole message, if it is here. Its envelope is read whole once; the list of places counts as memory of it.
    pub(crate) fn message(&mut self, id: u64) -> Option<CachedMessage> {
        let recent = self.entries.get_mut(&id).filter(|recent| recent.whole)?;
        let places = match &recent.places {
            Some(places) => Arc::clone(places),
            None => {
                let places: Arc<[u32]> = places(&recent.envelope)?.into();
                let bytes = size_of_val(&*places);
                recent.bytes += bytes;
                self.bytes += bytes;
                recent.places.insert(places).clone()
            }
        };
        let found = CachedMessage { envelope: recent.envelope.clone(), places, pieces: recent.pieces() };
        self.shrink();
        Some(found)
    }

    /// The envelope section as it was written first with the size of its content, if both are here.
    pub(crate) fn envelope(&self, id: u64) -> Option<(Bytes, u64)> {
        let recent = self.entries.get(&id).filter(|recent| recent.whole)?;
        let body: u64 = recent.parts.iter().map(|part| part.len() as u64).sum();
        Some((recent.envelope.clone(), recent.header.len() as u64 + body))
    }
}

impl CacheEntry {
    /// The content in pieces, none of them empty but the only one.
    fn pieces(&self) -> Vec<Bytes> {
        let header = (!self.header.is_empty()).then(|| self.header.clone());
        header.into_iter().chain(self.parts.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_by_bytes_and_never_half_a_body() {
        let mut cache = Cache::new(10_000);
        let part = |n| Bytes::from(vec![n; 2_000]);
        cache.put(1, Bytes::from_static(b"e"), part(1));
        assert_eq!(cache.content(1), Some(vec![part(1)]));
        cache.put_part(2, 0, part(2));
        cache.put_part(2, 1, part(3));
        assert_eq!(cache.content(2), None, "not whole yet");
        cache.put_part(2, 3, part(5));
        cache.complete(2, 2, Bytes::from_static(b"e"), Bytes::from_static(b"header"));
        assert_eq!(cache.content(2), Some(vec![Bytes::from_static(b"header"), part(2), part(3)]));
        assert_eq!(cache.envelope(2), Some((Bytes::from_static(b"e"), 4_006)));
        cache.put_part(3, 0, part(6));
        cache.put_part(3, 1, part(7));
        cache.put_part(3, 2, part(8));
        assert_eq!(cache.content(1), None, "the oldest went");
        for id in 4..100 {
            cache.put(id, Bytes::new(), part(0));
            assert!(cache.bytes() <= 10_000);
        }
        cache.put_part(3, 3, part(9));
        cache.complete(3, 4, Bytes::new(), Bytes::new());
        assert_eq!(cache.content(3), None, "its first pieces were given up");
        for id in 0..100 {
            cache.remove(id);
        }
        assert_eq!(cache.bytes(), 0);
    }
}

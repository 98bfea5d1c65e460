//! The sites of destinations until they expire, so that scheduler and connections go by one answer.
//!
//! Bounded: a site that was forgotten is asked for again, which the cache of the DNS answers.

use super::Site;
use std::collections::HashMap;
use std::sync::Arc;

/// Destinations in each half of the cache.
const HALF_MAX: usize = 20_000;

/// Sites by destination in two halves: when the young half is full the old one is forgotten, and the young is the old.
#[derive(Debug, Default)]
pub(crate) struct SiteCache {
    young: HashMap<Arc<[u8]>, Arc<Site>>,
    old: HashMap<Arc<[u8]>, Arc<Site>>,
    /// Counts how often all was forgotten.
    generation: u64,
}

impl SiteCache {
    /// Returns the site of a destination, if it still holds.
    pub(crate) fn get(&mut self, destination: &Arc<[u8]>) -> Option<Arc<Site>> {
        let found = match self.young.get(destination) {
            Some(found) => Arc::clone(found),
            None => {
                let found = self.old.remove(destination)?;
                self.insert(Arc::clone(destination), Arc::clone(&found));
                found
            }
        };
        if found.is_valid() {
            return Some(found);
        }
        self.young.remove(destination);
        None
    }

    /// Returns the site of a destination as far as it is known, also if it has expired.
    pub(crate) fn peek(&self, destination: &[u8]) -> Option<&Site> {
        self.young.get(destination).or_else(|| self.old.get(destination)).map(|site| &**site)
    }

    /// Keeps the site of a destination until it expires.
    pub(crate) fn insert(&mut self, destination: Arc<[u8]>, site: Arc<Site>) {
        if self.young.len() >= HALF_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&destination);
        self.young.insert(destination, site);
    }

    /// Forgets the site of a destination: it has none now.
    pub(crate) fn remove(&mut self, destination: &[u8]) {
        self.young.remove(destination);
        self.old.remove(destination);
    }

    /// Forgets all sites, since the configuration leads elsewhere.
    pub(crate) fn clear(&mut self) {
        self.generation += 1;
        self.young.clear();
        self.old.clear();
    }

    /// Returns the number by which a look-up finds out whether its answer is out of date: it changes with
    /// [`clear`](Self::clear).
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::resolve::SiteHosts;
    use crate::resolve::site::LookupTime;
    use os::clock;
    use std::time::Duration;

    fn site(seconds: u64) -> Arc<Site> {
        let rule = Config::default().rule_for(b"d.test", &[]);
        let until = clock::now() + Duration::from_secs(seconds);
        Arc::new(Site {
            name: b"s".as_slice().into(),
            rule,
            until,
            hosts: SiteHosts::Remote(Vec::new()),
            lookup_time: LookupTime::default(),
        })
    }

    fn name(number: usize) -> Arc<[u8]> {
        format!("d{number}.test").into_bytes().into()
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let (mut cache, site) = (SiteCache::default(), site(3_600));
        for number in 0..5 * HALF_MAX {
            cache.insert(name(number), Arc::clone(&site));
            assert!(cache.get(&name(0)).is_some(), "it is used all the time");
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * HALF_MAX);
        assert!(cache.get(&name(1)).is_none());
        cache.clear();
        assert!(cache.get(&name(0)).is_none() && cache.generation() == 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_site_is_not_used_after_its_time() {
        let mut cache = SiteCache::default();
        cache.insert(name(1), site(5));
        assert!(cache.get(&name(1)).is_some());
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(cache.get(&name(1)).is_none());
        cache.insert(name(2), site(5));
        cache.remove(&name(2));
        assert!(cache.get(&name(2)).is_none());
    }
}

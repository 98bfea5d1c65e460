//! Passes the dialog of one connection on to operators that watch its destination.
//!
//! While nobody watches anything it costs a look at one number for each turn of the connection.

use crate::transcript::{DialogFilter, DialogPlace, Transcripts};
use os::clock;
use std::io::IoSlice;
use std::sync::Arc;

/// The end of a connection that watchers hear.
#[derive(Debug)]
pub(super) struct DialogTap {
    transcripts: Arc<Transcripts>,
    place: DialogPlace,
    /// While somebody watches this connection.
    filter: Option<DialogFilter>,
}

impl DialogTap {
    /// Makes the tap of a connection that has just come about.
    pub(super) fn new(transcripts: &Arc<Transcripts>, place: DialogPlace) -> Box<Self> {
        let mut tap = Self { transcripts: Arc::clone(transcripts), place, filter: None };
        tap.look(true);
        tap.tell("connected");
        Box::new(tap)
    }

    /// Looks whether anybody watches. Begins only where `is_between`: no transaction is open, no login goes on, and
    /// nothing is being sent, so that neither content nor a secret is taken for commands.
    pub(super) fn look(&mut self, is_between: bool) {
        if !self.transcripts.is_on() {
            self.filter = None;
        } else if self.filter.is_none() && is_between && self.transcripts.is_watched(&self.place) {
            self.filter = Some(DialogFilter::default());
        }
    }

    /// Tells of the connection itself.
    pub(super) fn tell(&self, text: &str) {
        if self.filter.is_some() {
            self.transcripts.record(&self.place, clock::unix_us(), "*", text);
        }
    }

    /// Takes the first `octets` of slices, which were sent.
    pub(super) fn sent(&mut self, slices: &[IoSlice<'_>], octets: usize) {
        let Some(filter) = &mut self.filter else { return };
        let (transcripts, place, now) = (&self.transcripts, &self.place, clock::unix_us());
        let mut left = octets;
        for slice in slices {
            let taken = slice.get(..left.min(slice.len())).unwrap_or_default();
            left -= taken.len();
            filter.sent(taken, &mut |direction, text| transcripts.record(place, now, direction, text));
        }
    }

    /// Takes octets that came; none at the end.
    pub(super) fn received(&mut self, octets: &[u8]) {
        let Some(filter) = &mut self.filter else { return };
        let (transcripts, place, now) = (&self.transcripts, &self.place, clock::unix_us());
        if octets.is_empty() {
            return transcripts.record(place, now, "*", "the host closed the connection");
        }
        filter.received(octets, &mut |direction, text| transcripts.record(place, now, direction, text));
    }
}

impl Drop for DialogTap {
    fn drop(&mut self) {
        self.tell("closed");
    }
}

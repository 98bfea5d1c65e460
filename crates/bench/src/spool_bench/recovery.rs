//! A spool with a million queued messages: how long until it is open, what it holds in memory, how long to verify it
//! all.

use mail::{Node, QueueIds};
use spool::disk::real::RealDisk;
use spool::inspect::inspect;
use spool::{NewBody, NewMessage, NewRecipient, State, Store};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::bodies::{Bodies, HEAD, RECIPIENT};
use super::machine;
use crate::clock;
use crate::engines::{Kind, Room};

pub(super) const SECONDS: &str = "opening, seconds";
pub(super) const INDEX_BYTES: &str = "index bytes per message with its recipient";
pub(super) const VERIFY_SECONDS: &str = "verifying everything, seconds per 4 GB";

/// Bytes of each body.
const BODY_BYTES: usize = 4 << 10;
/// Threads that fill the spool.
const FILLERS: usize = 64;
/// Bytes on disk per message at most, with envelope and padding.
const STORED_BYTES: u64 = 6 << 10;

/// Values with their names, and remarks.
type Recovered = (Vec<(String, f64)>, Vec<String>);

/// Fills, closes, opens and verifies a spool in `dir`, which is empty.
///
/// # Errors
/// What could not be done.
pub(super) fn measure(dir: &Path, messages: u64, bodies: &Bodies) -> Result<Recovered, String> {
    let bytes_max = (messages * STORED_BYTES).max(1 << 30) + (1 << 30);
    let free = machine::free(dir);
    if free < bytes_max + (1 << 30) {
        return Err(format!(
            "{messages} messages take up to {bytes_max} bytes and 1 GiB is left free; {free} are free"
        ));
    }
    let room = Room { bytes_max, free_min: 1 << 30 };
    let mut values = Vec::new();
    let mut remarks = Vec::new();

    super::say(&format!("recovery: filling with {messages} messages"));
    let begun = clock::now();
    let store = Kind::Mailrace.open(dir, room)?;
    fill(&*store, messages, bodies)?;
    drop(store);
    values.push(("messages".to_owned(), messages as f64));
    values.push(("filling, messages/s".to_owned(), messages as f64 / (clock::now() - begun).as_secs_f64()));

    drop_caches(&mut remarks);
    let resident = machine::resident();
    let begun = clock::now();
    let cpu = clock::cpu();
    let store = Kind::Mailrace.open(dir, room)?;
    values.push((SECONDS.to_owned(), (clock::now() - begun).as_secs_f64()));
    values.push(("opening, CPU seconds".to_owned(), (clock::cpu() - cpu).as_secs_f64()));
    let grown = machine::resident().saturating_sub(resident);
    let statistics = store.statistics();
    if statistics.messages != messages {
        return Err(format!("LOST: {} of {messages} messages are there after opening", statistics.messages));
    }
    values.push((INDEX_BYTES.to_owned(), statistics.index_bytes as f64 / messages as f64));
    values.push(("growth of resident memory, bytes per message".to_owned(), grown as f64 / messages as f64));
    values.push(("destinations".to_owned(), statistics.destinations as f64));
    drop(store);

    drop_caches(&mut remarks);
    let begun = clock::now();
    let root = super::spool_path(dir);
    let summary = inspect(&RealDisk::new(), &root, false, &mut |_| {}).map_err(|e| e.to_string())?;
    let seconds = (clock::now() - begun).as_secs_f64();
    if !summary.damage.is_empty() || summary.recovery.messages != messages {
        let (damage, found) = (summary.damage.len(), summary.recovery.messages);
        return Err(format!("WRONG: {damage} damaged places, {found} of {messages} messages"));
    }
    values.push(("verifying, bytes read".to_owned(), summary.bytes as f64));
    values.push((VERIFY_SECONDS.to_owned(), seconds * 4e9 / summary.bytes.max(1) as f64));
    Ok((values, remarks))
}

fn drop_caches(remarks: &mut Vec<String>) {
    if let Err(error) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        remarks.push(format!(
            "recovery: the page cache could not be dropped ({error}); what is not read directly may come from memory"
        ));
    }
}

fn fill(store: &dyn Store, messages: u64, bodies: &Bodies) -> Result<(), String> {
    let ids = Mutex::new(QueueIds::new(Node::default()));
    let append = |_: u64| -> Result<(), String> {
        let id = ids.lock().unwrap_or_else(PoisonError::into_inner).next(clock::unix_us());
        let recipients = [NewRecipient { data: RECIPIENT, destination: bodies.destination(id) }];
        let body = NewBody::Whole(bodies.body(id, BODY_BYTES));
        let message =
            NewMessage { id, head: HEAD, recipients: &recipients, body, reserved: false, state: State::default() };
        store.append(message).and_then(|commit| commit.wait()).map_err(|e| format!("filling: {e}"))
    };
    std::thread::scope(|scope| {
        let fillers: Vec<_> = (0..FILLERS)
            .map(|number| {
                let append = &append;
                scope.spawn(move || (0..messages).skip(number).step_by(FILLERS).try_for_each(append))
            })
            .collect();
        fillers.into_iter().try_for_each(|filler| filler.join().map_err(|_| "a filler panicked".to_owned())?)
    })
}

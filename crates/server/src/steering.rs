//! Orders of operators that stay in force over restarts, in the file `steering` of the spool directory: hold rules,
//! suspensions and limits of destinations.
//!
//! Unlike the tables of `state_file` it must not be lost: a change is synced before it is in force. A file that cannot
//! be read is put aside as `steering.bad` with an error in the log, and the server starts without its orders; mail that
//! they held stays held.

use crate::config::{Config, NextHop, Rate, SetLimit};
use crate::state_file::replace_synced;
use arc_swap::ArcSwap;
use mail::Envelope;
use operator::answers::LimitLine;
use operator::queue::{EndedOrders, NewMail, STEERING_BYTES_MAX, Steering};
use schedule::Class;
use spool::Hold;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file, in the spool directory.
const FILE: &str = "steering";
/// How often a change looks whether messages are still being stored by the orders before.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often it looks at most: 10 seconds.
const LOOKS_MAX: u32 = 10_000;

/// The orders in force, and their file.
#[derive(Debug, Default)]
pub(crate) struct SteeringTable {
    orders: ArcSwap<Steering>,
    /// Nowhere without a spool.
    path: Option<PathBuf>,
    /// One changes at a time.
    changes: Mutex<()>,
}

impl SteeringTable {
    /// Reads the orders of the last server. Returns a message for the operator if the file cannot be used.
    pub(crate) fn open(config: &Config) -> (Self, Option<String>) {
        let path = config.spool.path.join(FILE);
        let table = |orders: Steering| Self {
            orders: ArcSwap::from_pointee(orders),
            path: Some(path.clone()),
            changes: Mutex::default(),
        };
        let why = match read(&path) {
            Ok(None) => return (table(Steering::default()), None),
            Ok(Some(text)) => match Steering::parse(&text) {
                Ok(orders) => {
                    let (orders, note) = with_readable_limits(orders, &path);
                    return (table(orders), note);
                }
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        let aside = path.with_extension("bad");
        let put_aside = rustix::fs::rename(&path, &aside).is_ok();
        let place = if put_aside { format!("; it is {} now", aside.display()) } else { String::new() };
        let text = format!(
            "{}: hold rules, suspensions and limits of destinations are not in force: {why}{place}; mail that they \
             hold stays held, set them again",
            path.display()
        );
        (table(Steering::default()), Some(text))
    }

    /// Returns the orders. A message is stored by them while this is held; see [`Self::change`].
    pub(crate) fn orders(&self) -> Arc<Steering> {
        self.orders.load_full()
    }

    /// Replaces the orders. On return they are durable, and no message is being stored by the old ones. Blocks.
    ///
    /// # Errors
    /// The reason of `change`, or why the file cannot be written: nothing has changed.
    pub(crate) fn change(&self, change: &mut dyn FnMut(&Steering) -> Result<Steering, String>) -> Result<(), String> {
        let _turn = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let next = change(&self.orders())?;
        if let Some(path) = &self.path {
            let text = next.to_text();
            // The next start reads no more of it.
            if text.len() >= STEERING_BYTES_MAX {
                return Err(format!("rules and limits take {} octets, {STEERING_BYTES_MAX} are the most", text.len()));
            }
            replace_synced(path, text.as_bytes()).map_err(|error| {
                format!("{} cannot be written: {error}; make room, or see who owns the directory", path.display())
            })?;
        }
        let old = self.orders.swap(Arc::new(next));
        // A message that is being stored by the old orders would be missed by a walk over the queue that begins now.
        for _ in 0..LOOKS_MAX {
            if Arc::strong_count(&old) == 1 {
                break;
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Ends orders whose time is over, and returns them. Blocks.
    ///
    /// # Errors
    /// As [`Self::change`]; they end later.
    pub(crate) fn end_overdue(&self, now_s: u64) -> Result<EndedOrders, String> {
        let mut ended = EndedOrders::default();
        if self.orders.load().without_ended(now_s).is_some() {
            self.change(&mut |orders| {
                let (next, these) =
                    orders.without_ended(now_s).unwrap_or_else(|| (orders.clone(), EndedOrders::default()));
                ended = these;
                Ok(next)
            })?;
        }
        Ok(ended)
    }
}

/// Returns the hold of each recipient of new mail, in their order; none for those that no rule holds. Empty where there
/// is no rule.
pub(crate) fn holds_of<'a>(
    orders: &Steering,
    envelope: &Envelope,
    class: Class,
    destinations: impl Iterator<Item = &'a [u8]>,
    now: Duration,
) -> Vec<Option<Hold>> {
    if orders.rules().is_empty() {
        return Vec::new();
    }
    let mail = NewMail { sender: envelope.sender.address(), client: envelope.received.client, class };
    let recipients = envelope.recipients.iter().zip(destinations);
    let rule = |(recipient, destination): (&mail::Recipient, &[u8])| {
        orders.rule_for(&mail, &recipient.address, destination, now.as_secs())
    };
    recipients.map(|one| rule(one).map(operator::queue::HoldRule::hold)).collect()
}

/// Leaves limits out that cannot be read, as an older or newer version may have written them, and says which.
fn with_readable_limits(mut orders: Steering, path: &std::path::Path) -> (Steering, Option<String>) {
    let unreadable = |line: &LimitLine| read_limit(line).err().map(|why| (line.destination.clone(), why));
    let left_out: Vec<(String, String)> = orders.limits().iter().filter_map(unreadable).collect();
    for (destination, _) in &left_out {
        orders = orders.without_limit(destination).unwrap_or(orders);
    }
    let texts: Vec<&str> = left_out.iter().map(|(_, why)| why.as_str()).collect();
    let note = format!(
        "{}: {} of the limits of destinations cannot be read and are not in force: {}; set them again with \"mailrace \
         destination limit\"",
        path.display(),
        texts.len(),
        texts.join("; ")
    );
    (orders, (!texts.is_empty()).then_some(note))
}

/// Reads the limits for the resolution of destinations, in the order of their lines: their places name them.
pub(crate) fn limits_of(orders: &Steering) -> Vec<SetLimit> {
    orders.limits().iter().filter_map(|line| read_limit(line).ok()).collect()
}

/// Reads a limit.
///
/// # Errors
/// Names the value that cannot be used, with an example.
pub(crate) fn read_limit(line: &LimitLine) -> Result<SetLimit, String> {
    let LimitLine { destination, connections, rate, .. } = line;
    let next_hop: NextHop = destination.parse().map_err(|_| {
        format!(
            "{destination:?} names no destination; write a domain, .domain for all below it, [192.0.2.1], \
             mx:*.example.com or hop:HOST:PORT"
        )
    })?;
    let rate = rate.as_ref().map(|rate| {
        let read = rate.parse::<Rate>().ok().filter(|rate| rate.limit().is_some());
        read.ok_or_else(|| format!("{rate:?} is no rate; write messages in a second, as in 2.5"))
    });
    Ok(SetLimit { next_hop, connections: *connections, messages_per_second: rate.transpose()? })
}

fn read(path: &std::path::Path) -> io::Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(u64::try_from(STEERING_BYTES_MAX).unwrap_or(u64::MAX)).read_to_string(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::queue::{Expression, NewRule, RuleKind};

    fn config(directory: &std::path::Path) -> Config {
        let text = format!("[spool]\npath = {:?}\n", directory.display().to_string());
        crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config
    }

    fn set(table: &SteeringTable, until: Option<u64>) -> Result<(), String> {
        let expression = Expression::parse("to:@a.test").unwrap();
        let new = NewRule { kind: RuleKind::Suspension, expression, reason: None, set_by: "ann".to_owned(), until };
        table.change(&mut |orders| orders.with_rule(new.clone(), 7))
    }

    #[test]
    fn a_limit_that_cannot_be_read_moves_no_other() {
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path());
        let limit = |destination: &str| LimitLine {
            destination: destination.to_owned(),
            connections: Some(2),
            rate: None,
            reason: None,
            set_by: "ann".to_owned(),
            set_at: 7,
            until: None,
        };
        let orders = ["a.test", "no such name", "b.test"]
            .iter()
            .fold(Steering::default(), |orders, one| orders.with_limit(limit(one)).unwrap());
        std::fs::create_dir_all(&config.spool.path).unwrap();
        std::fs::write(config.spool.path.join(FILE), orders.to_text()).unwrap();
        let (table, note) = SteeringTable::open(&config);
        let note = note.unwrap();
        assert!(note.contains("1 of the limits") && note.contains("\"no such name\" names no destination"), "{note}");
        let orders = table.orders();
        let left: Vec<&str> = orders.limits().iter().map(|line| line.destination.as_str()).collect();
        assert_eq!(left, ["b.test", "a.test"], "the newest first");
        assert_eq!(limits_of(&orders).len(), 2);
    }

    #[test]
    fn the_next_server_has_the_orders_of_this_one() {
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path());
        let (table, note) = SteeringTable::open(&config);
        assert_eq!(note, None);
        set(&table, Some(10)).unwrap();
        let (again, note) = SteeringTable::open(&config);
        assert_eq!((note, again.orders()), (None, table.orders()));
        assert_eq!(again.end_overdue(9).unwrap(), EndedOrders::default());
        assert_eq!(again.end_overdue(10).unwrap().rules.len(), 1);
        assert!(SteeringTable::open(&config).0.orders().rules().is_empty());
    }

    #[test]
    fn a_change_that_is_not_durable_is_not_in_force() {
        let place = tempfile::tempdir().unwrap();
        let gone = place.path().join("gone");
        let table = SteeringTable::open(&config(&gone)).0;
        assert!(set(&table, None).unwrap_err().contains("gone/steering cannot be written"));
        assert!(table.orders().rules().is_empty());
    }

    #[test]
    fn orders_that_the_next_start_could_not_read_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let table = SteeringTable::open(&config(place.path())).0;
        set(&table, None).unwrap();
        let long = LimitLine { destination: "x".repeat(STEERING_BYTES_MAX), ..LimitLine::default() };
        assert!(table.change(&mut |orders| orders.with_limit(long.clone())).unwrap_err().contains("are the most"));
        assert_eq!(SteeringTable::open(&config(place.path())).0.orders(), table.orders());
        assert_eq!(table.orders().rules().len(), 1);
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_told() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(FILE);
        std::fs::write(&file, "rubbish").unwrap();
        let (table, note) = SteeringTable::open(&config(place.path()));
        let note = note.unwrap();
        assert!(note.contains("steering: hold rules") && note.contains("steering.bad now"), "{note}");
        assert!(table.orders().rules().is_empty() && !file.exists() && place.path().join("steering.bad").exists());
        set(&table, None).unwrap();
        assert!(SteeringTable::open(&config(place.path())).1.is_none());
    }

    #[test]
    fn a_change_waits_for_messages_that_are_being_stored() {
        let table = Arc::new(SteeringTable::default());
        let stored_by = table.orders();
        let changer = {
            let table = Arc::clone(&table);
            std::thread::spawn(move || set(&table, None))
        };
        while table.orders().rules().is_empty() {
            std::thread::yield_now();
        }
        assert!(!changer.is_finished(), "the old orders are in use");
        drop(stored_by);
        changer.join().unwrap().unwrap();
    }

    #[test]
    fn limits_name_next_hops_as_the_configuration_does() {
        let line = |destination: &str, rate: Option<&str>| LimitLine {
            destination: destination.to_owned(),
            connections: Some(2),
            rate: rate.map(str::to_owned),
            ..LimitLine::default()
        };
        for destination in ["a.test", ".a.test", "mx:*.a.test", "[192.0.2.1]", "hop:a.test:25"] {
            assert!(read_limit(&line(destination, Some("0.5"))).is_ok(), "{destination}");
        }
        assert!(read_limit(&line("a test", None)).is_err() && read_limit(&line("a.test", Some("0"))).is_err());
    }
}

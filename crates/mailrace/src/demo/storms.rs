//! The two storms: one that is measured to its last arrival, one in the middle of which the relay is killed.

use super::DemoArguments;
use super::books::{Books, Counted, NAMES};
use super::children::{Relay, Sink};
use super::clock;
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::{Progress, count, thousands};
use bench::receiver::{Manners, Receiver};
use bench::storm::{self, Plan};
use operator::answers::StatusAnswer;
use operator::control::Request;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The time without progress after which a relay counts as stopped. A healthy relay needs milliseconds.
const STALLED: Duration = Duration::from_secs(20);
/// The longest wait for a reply in the second storm: a connection that the dying relay had not taken yet may hear of
/// nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that the next hop takes for a message until the kill, so that there is a queue when it comes.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// The recipient of all messages.
const RECIPIENT: &str = "user0@storm.example";

/// The storm that is measured.
#[derive(Debug)]
pub(super) struct First {
    pub(super) storm: storm::StormReport,
    /// From the first connection to the last delivery.
    pub(super) delivered: Duration,
    /// Flushes of the disk until then.
    pub(super) syncs: u64,
}

/// The storm with the kill.
#[derive(Debug)]
pub(super) struct Second {
    /// The process that was killed.
    pub(super) process: u32,
    /// The messages that had arrived by then.
    pub(super) arrived: u64,
    /// From the kill until the relay took connections again.
    pub(super) ready: Duration,
    /// From then on until the queue was empty.
    pub(super) emptied: Duration,
    pub(super) counted: Counted,
}

fn plan(arguments: &DemoArguments, to: SocketAddr, run: &str) -> Plan {
    Plan {
        messages: Some(arguments.messages),
        sessions: arguments.sessions,
        rcpt: RECIPIENT.to_owned(),
        // Names that no storm of an earlier demonstration has had.
        run: format!("{run}-{}", std::process::id()),
        ..Plan::new(to)
    }
}

/// Sends a storm, and waits until the relay has passed all of it on and the sink has taken it. Ends both.
///
/// # Errors
/// Something was not accepted, or not taken; or a server went away.
pub(super) fn run_measured_storm(arguments: &DemoArguments, relay: Relay, sink: Sink) -> Result<First, Failure> {
    let line = Progress::new();
    let start = clock::now();
    let storm = storm::run(&plan(arguments, relay.address(), "first"), &mut |at| {
        line.show(format_args!("     {} accepted, {:.0}/s", thousands(at.accepted), at.per_second));
    });
    line.clear();
    let storm = storm?;
    if !storm.is_complete() {
        return Err(Failure::new(Exit::Io, format!("not every message was accepted:\n{}", storm.text())));
    }
    let status = all_sent(&mut relay.control()?, storm.accepted)?;
    let delivered = clock::now().duration_since(start);
    relay.end()?;
    let taken = sink.end()?;
    agree(storm.accepted, taken)?;
    Ok(First { storm, delivered, syncs: status.spool.syncs })
}

/// Whether the sink took what the relay says it passed on.
fn agree(sent: u64, taken: Option<u64>) -> Result<(), Failure> {
    let exit = match taken {
        Some(taken) if taken == sent => return Ok(()),
        Some(taken) if taken < sent => Exit::Lost,
        Some(_) => Exit::Damaged,
        None => return Err(Failure::new(Exit::Io, "the sink ended without a word on what it had taken")),
    };
    let (sent, taken) = (count(sent, "message"), thousands(taken.unwrap_or(0)));
    Err(Failure::new(
        exit,
        format!("the relay took {sent} and says that all were delivered; the next hop took {taken}"),
    ))
}

/// Waits until so many recipients were sent, and returns the status then.
fn all_sent(control: &mut Control, wanted: u64) -> Result<StatusAnswer, Failure> {
    let line = Progress::new();
    let (mut before, mut last) = (0, clock::now());
    loop {
        let status: StatusAnswer = control.ask_for(&Request::Status)?;
        let sent = status.deliveries.as_ref().map_or(0, |deliveries| deliveries.sent);
        if sent >= wanted {
            line.clear();
            return Ok(status);
        }
        line.show(format_args!("     {} delivered", thousands(sent)));
        if sent > before {
            (before, last) = (sent, clock::now());
        } else if clock::now().duration_since(last) > STALLED {
            line.clear();
            let message = format!(
                "{} of {} were delivered, and none in the last {} s; the log says why",
                thousands(sent),
                count(wanted, "message"),
                STALLED.as_secs()
            );
            return Err(Failure::new(Exit::Io, message));
        }
        clock::pause();
    }
}

/// Sends a storm to a new relay, kills it when half of it is acknowledged, starts it again and counts what arrives.
///
/// # Errors
/// The system refused something, or a server ended too early. Lost mail is no such error: see [`Counted`].
pub(super) fn run_killed_storm(
    arguments: &DemoArguments,
    receiver: &Receiver,
    ledger: &Path,
) -> Result<Second, Failure> {
    receiver.behave(Manners { chunking: true, delay: SLOW });
    let relay = Relay::start(arguments, receiver.at(), Some(NAMES[0]))?;
    let plan =
        Plan { ledger: Some(ledger.to_owned()), patience: PATIENCE, ..plan(arguments, relay.address(), "second") };
    let mut books = Books::new(&plan.run, plan.sessions, RECIPIENT);
    let process = relay.process();
    let killed = kill_in_the_middle(relay, plan, receiver)?;
    let ledger = storm::acknowledged(ledger).map_err(|error| Failure::io(ledger.display(), &error))?;
    ledger.iter().for_each(|line| books.record_acknowledged(line.seq));

    receiver.behave(Manners { chunking: true, delay: Duration::ZERO });
    let relay = Relay::start(arguments, receiver.at(), Some(NAMES[1]))?;
    let ready = clock::now();
    let queued = empty(&mut relay.control()?, receiver, &mut books)?;
    let emptied = clock::now().duration_since(ready);
    relay.end()?;
    // These messages were in delivery when the queue became empty.
    take(receiver, &mut books);
    Ok(Second {
        process,
        arrived: killed.arrived,
        ready: ready.duration_since(killed.at),
        emptied,
        counted: books.compare(queued),
    })
}

/// The moment of a kill.
struct Killed {
    at: Instant,
    /// The messages that had arrived then.
    arrived: u64,
}

/// Sends a storm and kills the relay with SIGKILL when half of it is acknowledged.
fn kill_in_the_middle(relay: Relay, mut plan: Plan, receiver: &Receiver) -> Result<Killed, Failure> {
    let (told, acknowledged) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    (plan.told, plan.stop) = (Some(told), Some(Arc::clone(&stop)));
    let half = usize::try_from(plan.messages.unwrap_or(2) / 2).unwrap_or(1);
    let (storm, killer) = std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            let seen = acknowledged.iter().take(half).count();
            let moment = Killed { at: clock::now(), arrived: receiver.count() };
            let killed = relay.kill();
            // The relay is dead, so the storm stops.
            stop.store(true, Ordering::Release);
            (seen, killed.map(|()| moment))
        });
        let storm = storm::run(&plan, &mut |_| {});
        // The last sender, without which the thread would wait for ever if the storm did not start.
        drop(plan);
        (storm, killer.join())
    });
    let (seen, killed) =
        killer.map_err(|_| Failure::new(Exit::Io, "the thread that kills the relay panicked; report a bug"))?;
    let report = storm?;
    let killed = killed?;
    if seen < half {
        let message = format!("the storm ended before the relay could be killed:\n{}", report.text());
        return Err(Failure::new(Exit::Io, message));
    }
    Ok(killed)
}

/// Waits until the queue is empty, or nothing arrives any more; returns the number of messages left.
fn empty(control: &mut Control, receiver: &Receiver, books: &mut Books) -> Result<u64, Failure> {
    let line = Progress::new();
    let mut last = clock::now();
    loop {
        if take(receiver, books) {
            last = clock::now();
        }
        let queued = control.ask_for::<StatusAnswer>(&Request::Status)?.queue.messages;
        if queued == 0 || clock::now().duration_since(last) > STALLED {
            line.clear();
            return Ok(queued);
        }
        line.show(format_args!("     {} missing, {} queued", thousands(books.missing_count()), thousands(queued)));
        clock::pause();
    }
}

/// Records the arrivals, and returns whether there were any.
fn take(receiver: &Receiver, books: &mut Books) -> bool {
    let arrivals = receiver.arrivals();
    for arrival in &arrivals {
        books.record_arrived(&arrival.what, &arrival.recipients, &arrival.hello);
    }
    !arrivals.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Negative controls of the first count.
    #[test]
    fn a_relay_that_says_too_much_is_not_believed() {
        let exit = |taken| agree(2030, taken).map_err(|failure| failure.exit);
        assert_eq!(exit(Some(2030)), Ok(()));
        assert_eq!(exit(Some(2029)), Err(Exit::Lost));
        assert_eq!(exit(Some(2031)), Err(Exit::Damaged));
        assert_eq!(exit(None), Err(Exit::Io));
    }
}

//! The loop: one thread that waits for sockets and times, and gives what happens to the pure hosts of `sim`.
//!
//! A connection costs its socket and a few hundred octets here. The thread waits for no disk but for the page cache,
//! when lines of the ledger are written.

use super::InternetProgress;
use super::events::{EventSource, data, kind_and_place};
use super::files::LedgerFile;
use super::name_server::NameServer;
use super::sockets;
use super::timers::Timers;
use crate::clock;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_quickack};
use rustix::net::{RecvFlags, SendFlags, accept_with, recv, send};
use rustix::time::Timespec;
use sim::{How, Mailhost, Tally, Then, World};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events that are taken at a time.
const EVENTS: usize = 1024;
/// Octets asked of a socket at a time.
const READ: usize = 64 << 10;
/// Octets that may wait for a client that does not read; while there are more its input waits too.
const OUTPUT_MAX: usize = 256 << 10;
/// How often lines are written to the ledger and progress is told.
const HOUSEKEEPING: Duration = Duration::from_millis(250);

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) world: World,
    pub(super) tally: Tally,
    pub(super) ledger: LedgerFile,
    pub(super) names: NameServer,
    /// Connections that were closed at once because there were too many.
    pub(super) turned_away: u64,
    /// The first operation that failed on the way.
    pub(super) failed: Option<String>,
    epoll: OwnedFd,
    port: u16,
    start: Instant,
    listeners: Vec<Option<OwnedFd>>,
    doors: VecDeque<(Duration, u32)>,
    connections: Vec<Option<HostConnection>>,
    free: Vec<u32>,
    connections_max: usize,
    timers: Timers,
    buffer: Box<[u8]>,
    progress: Arc<Mutex<InternetProgress>>,
    housekeeping: Duration,
}

#[derive(Debug)]
struct HostConnection {
    stream: OwnedFd,
    mailhost: Mailhost,
    output: Vec<u8>,
    then: Then,
    /// The client sends nothing more. It may still read: Exim (4.96) says QUIT with its last content and shuts its
    /// side.
    is_shut: bool,
    /// The events that the kernel watches for.
    watched: EventFlags,
    /// The time for which there is a timer.
    timer: Option<Duration>,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Fine,
    Over,
}

impl Engine {
    /// Everything but open doors; time begins at `start`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(
        world: World,
        names: NameServer,
        ledger: LedgerFile,
        (connections_max, start): (usize, Instant),
        progress: Arc<Mutex<InternetProgress>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        names.register(epoll.as_fd())?;
        Ok(Self {
            tally: Tally::new(&world),
            doors: world.door_changes().into(),
            world,
            ledger,
            names,
            turned_away: 0,
            failed: None,
            epoll,
            port: 0,
            start,
            listeners: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            connections_max,
            timers: Timers::default(),
            buffer: vec![0; READ].into(),
            progress,
            housekeeping: HOUSEKEEPING,
        })
    }

    /// Ends [`run`](Self::run) when there is something to read there.
    ///
    /// # Errors
    /// It cannot be watched.
    pub(super) fn stopped_by(self, stop: BorrowedFd<'_>) -> io::Result<Self> {
        epoll::add(&self.epoll, stop, data(EventSource::Stop, 0), EventFlags::IN)?;
        Ok(self)
    }

    /// Opens the doors of all hosts on this port.
    ///
    /// # Errors
    /// An address cannot be had; all doors are closed then.
    pub(super) fn open_doors(&mut self, port: u16) -> io::Result<()> {
        self.port = port;
        let hosts = self.world.hosts().len();
        self.listeners = std::iter::repeat_with(|| None).take(hosts).collect();
        let opened = (0..).take(hosts).try_for_each(|host| self.set_door(host, Duration::ZERO));
        if opened.is_err() {
            self.listeners.clear();
        }
        opened
    }

    /// The port of all hosts.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Runs until there is something to read at `stop`.
    pub(super) fn run(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let next = self.timers.next().into_iter().chain(self.doors.front().map(|(at, _)| *at));
            let next = next.chain([self.housekeeping]).min().unwrap_or_default();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&self.until(next))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.fail(&format!("waiting for sockets: {error}")),
            }
            for event in events.drain(..) {
                if self.happened(event) == On::Over {
                    return self.end();
                }
            }
            let now = self.now();
            while let Some((due, place)) = self.timers.due(now) {
                self.woken(place, due, now);
            }
            self.keep_house(now);
        }
    }

    fn now(&self) -> Duration {
        clock::now().saturating_duration_since(self.start)
    }

    /// The time that is left, in whole milliseconds as the kernel counts them, so that it wakes us not too early.
    fn until(&self, next: Duration) -> Timespec {
        let left = next.saturating_sub(self.now());
        let milli = left.as_micros().div_ceil(1_000);
        let milli = i64::try_from(milli).unwrap_or(i64::MAX);
        Timespec { tv_sec: milli / 1_000, tv_nsec: (milli % 1_000) * 1_000_000 }
    }

    fn happened(&mut self, event: Event) -> On {
        match kind_and_place(event.data) {
            (EventSource::Stop, _) => return On::Over,
            (EventSource::Listener, host) => self.accept(host),
            (EventSource::Connection, place) => self.ready(place, event.flags),
            (EventSource::Udp, _) => self.names.answer(&self.world, &mut self.buffer),
            (EventSource::DnsListener, _) => self.names.accept(self.epoll.as_fd()),
            (EventSource::Dns, place) => self.names.read(place, &self.world, &mut self.buffer),
        }
        On::Fine
    }

    /// Writes the ledger, tells progress, opens and closes doors.
    fn keep_house(&mut self, now: Duration) {
        while self.doors.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, host)) = self.doors.pop_front() else { break };
            if let Err(error) = self.set_door(host, now) {
                let address = SocketAddrV4::new(self.world.address(host), self.port);
                self.fail(&format!("{address}: {error}"));
            }
        }
        if now < self.housekeeping {
            return;
        }
        self.housekeeping = now + HOUSEKEEPING;
        self.ledger.flush();
        self.tell();
    }

    fn tell(&self) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.recipients = self.tally.recipients;
        progress.messages = self.tally.messages;
        progress.connections = self.world.counts().connections;
        progress.open = self.world.counts().open;
        progress.queries = self.names.queries;
    }

    fn fail(&mut self, what: &str) {
        self.failed.get_or_insert_with(|| what.to_owned());
    }

    /// Gives a host the door that it has at this time.
    fn set_door(&mut self, host: u32, now: Duration) -> io::Result<()> {
        let Some(slot) = self.listeners.get_mut(host as usize) else { return Ok(()) };
        // The old listener goes before the new one comes: they have one address.
        *slot = None;
        let address = SocketAddrV4::new(self.world.address(host), self.port);
        let door = self.world.door(host, now);
        if let Some(listener) = sockets::door(address, door)? {
            epoll::add(&self.epoll, &listener, data(EventSource::Listener, host), EventFlags::IN)?;
            *slot = Some(listener);
        }
        if now.is_zero() || door == sim::Door::Open {
            return Ok(());
        }
        // Open connections hear of it: those of a dead host are reset, those of a silent one stay and say nothing.
        for place in 0..self.connections.len() {
            let of_host = |connection: &HostConnection| connection.mailhost.host() == host;
            if door == sim::Door::Refuses
                && self.connections.get(place).is_some_and(|slot| slot.as_ref().is_some_and(of_host))
            {
                self.close(place, Then::Reset, now);
            }
        }
        Ok(())
    }

    fn accept(&mut self, host: u32) {
        let Some(Some(listener)) = self.listeners.get(host as usize) else { return };
        // The client has gone, or no file is left; the next event tells.
        let Ok(stream) = accept_with(listener, sockets::FLAGS) else { return };
        let now = self.now();
        if self.connections.len() - self.free.len() >= self.connections_max {
            self.turned_away += 1;
            return;
        }
        let Some(mailhost) = self.world.connect(host, now) else { return };
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            u32::try_from(self.connections.len() - 1).unwrap_or(u32::MAX)
        });
        let watched = EventFlags::IN;
        let is_watched = epoll::add(&self.epoll, &stream, data(EventSource::Connection, place), watched);
        let connection = HostConnection {
            stream,
            mailhost,
            output: Vec::new(),
            then: Then::Stay,
            is_shut: false,
            watched,
            timer: None,
        };
        if let Some(slot) = self.connections.get_mut(place as usize) {
            *slot = Some(connection);
        }
        match is_watched {
            Ok(()) => self.answer(place, now),
            Err(_) => self.close(place as usize, Then::Reset, now),
        }
    }

    /// Something came for a connection, or it may write again.
    fn ready(&mut self, place: u32, flags: EventFlags) {
        let now = self.now();
        let Some(Some(connection)) = self.connections.get_mut(place as usize) else { return };
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            match recv(&connection.stream, &mut *self.buffer, RecvFlags::empty()) {
                Ok((octets, _)) if octets > 0 => {
                    let input = self.buffer.get(..octets).unwrap_or_default();
                    self.world.input(&mut connection.mailhost, input, now);
                    if connection.mailhost.is_in_the_middle() {
                        // A client that sends the rest only after the acknowledgement need not wait; only speed depends
                        // on it.
                        set_tcp_quickack(&connection.stream, true).unwrap_or(());
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A client that shut its side still gets the waiting octets; with both sides shut it reads nothing.
                Ok(_) if !flags.intersects(EventFlags::HUP | EventFlags::ERR) => connection.is_shut = true,
                _ => return self.close(place as usize, Then::Close, now),
            }
        }
        self.answer(place, now);
    }

    fn woken(&mut self, place: u32, due: Duration, now: Duration) {
        let Some(Some(connection)) = self.connections.get_mut(place as usize) else { return };
        if connection.timer == Some(due) {
            connection.timer = None;
            self.answer(place, now);
        }
    }

    /// Sends the due flights, and sets a timer for the rest.
    fn answer(&mut self, place: u32, now: Duration) {
        let Some(Some(connection)) = self.connections.get_mut(place as usize) else { return };
        let mut is_over = false;
        while connection.then == Then::Stay && connection.output.len() < OUTPUT_MAX {
            let Some(mut flight) = self.world.leave(&mut connection.mailhost, now) else { break };
            connection.then = flight.then;
            if connection.output.is_empty() {
                connection.output = flight.octets;
            } else {
                connection.output.append(&mut flight.octets);
            }
            is_over |= connection.send() == On::Over;
            for mut taken in flight.taken {
                if is_over {
                    taken.how = How::Silent;
                }
                self.ledger.add(&taken);
                self.tally.add(&self.world, &taken);
            }
        }
        is_over |= !connection.output.is_empty() && connection.send() == On::Over;
        let has_said_all = connection.then != Then::Stay || connection.is_shut && connection.mailhost.wake().is_none();
        if is_over || has_said_all && connection.output.is_empty() {
            let then = connection.then;
            return self.close(place as usize, then, now);
        }
        let may_read = !connection.is_shut && connection.mailhost.backlog() + connection.output.len() < OUTPUT_MAX;
        let mut wanted = if may_read { EventFlags::IN } else { EventFlags::empty() };
        if !connection.output.is_empty() {
            wanted |= EventFlags::OUT;
        }
        if wanted != connection.watched {
            connection.watched = wanted;
            // It fails for no descriptor of ours; if it did, the client would wait, as for a host that hangs.
            epoll::modify(&self.epoll, &connection.stream, data(EventSource::Connection, place), wanted).unwrap_or(());
        }
        let wake = if connection.output.is_empty() { connection.mailhost.wake() } else { None };
        if let Some(wake) = wake
            && connection.timer.is_none_or(|timer| wake < timer)
        {
            connection.timer = Some(wake);
            self.timers.add(wake, place);
        }
    }

    fn close(&mut self, place: usize, then: Then, now: Duration) {
        let Some(connection) = self.connections.get_mut(place).and_then(Option::take) else { return };
        self.free.extend(u32::try_from(place));
        if then == Then::Reset {
            // If the option fails, the close is an ordinary one, which also ends the connection.
            set_socket_linger(&connection.stream, Some(Duration::ZERO)).unwrap_or(());
        }
        for taken in self.world.disconnect(connection.mailhost, now) {
            self.ledger.add(&taken);
            self.tally.add(&self.world, &taken);
        }
    }

    /// Closes everything; messages that were taken and not answered go into the ledger.
    fn end(&mut self) {
        let now = self.now();
        self.listeners.clear();
        for place in 0..self.connections.len() {
            self.close(place, Then::Close, now);
        }
        self.ledger.flush();
        self.tell();
    }
}

impl HostConnection {
    fn send(&mut self) -> On {
        if self.output.is_empty() {
            return On::Fine;
        }
        match send(&self.stream, &self.output, SendFlags::NOSIGNAL) {
            Ok(octets) if octets == self.output.len() => {
                self.output.clear();
                On::Fine
            }
            Ok(octets) => {
                self.output.drain(..octets);
                On::Fine
            }
            Err(Errno::AGAIN | Errno::INTR) => On::Fine,
            Err(_) => On::Over,
        }
    }
}

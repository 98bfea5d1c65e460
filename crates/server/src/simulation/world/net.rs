//! The hosts of a [`sim::World`] at the end of in-process wires, and the facts that they see of the server.
//!
//! The hosts decide; this gives them the time and the input, and puts their output on the wire when it is due. A host
//! that drops packets lets a connection attempt wait, and looks again in the kernel's rhythm (1 s, 2 s, 4 s, …).

use super::super::book::{Book, Counted};
use super::super::host::Host;
use super::super::talk;
use crate::transport::Transport;
use sim::character::Door;
use sim::ledger::{How, Taken};
use sim::mailhost::{Flight, Mailhost, Then};
use sim::world::World;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::sleep;

/// Octets that a wire holds in one direction.
const WIRE: usize = 64 << 10;
/// More than any run has messages for: a server that cannot stop is known by then, and the run shall come to its end.
const TAKEN_MAX: usize = 40_000;
/// A network that is set aside for tests.
const NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Returns the address of a host as the server knows it: loopback, where the world is, would be the server itself.
pub(super) const fn outer(host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK.to_bits() + host)
}

/// A connection as its host had it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) host: u32,
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// MAIL commands.
    pub(super) transactions: u32,
    /// Lines that came, commands if it never took content.
    pub(super) lines: usize,
    /// Octets that the host sent.
    pub(super) octets: usize,
}

/// Events that hosts saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// In the order of their times.
    pub(super) taken: Vec<Taken>,
    /// Each MAIL command: when, and at which host.
    pub(super) began: Vec<(Duration, u32)>,
    /// Each STARTTLS: when, and at which host.
    pub(super) handshakes: Vec<(Duration, u32)>,
    /// Connections that are over.
    pub(super) held: Vec<Held>,
    /// Connection attempts at each host.
    pub(super) dials: Vec<u32>,
}

/// The network.
#[derive(Debug)]
pub(super) struct Net {
    world: Mutex<World>,
    /// Where senders get their reports.
    home: Arc<Host>,
    book: Arc<Book>,
    seen: Mutex<Seen>,
}

impl Net {
    pub(super) fn new(world: World, home: Host, book: &Arc<Book>) -> Arc<Self> {
        let seen = Seen { dials: vec![0; world.hosts().len()], ..Seen::default() };
        Arc::new(Self {
            world: Mutex::new(world),
            home: Arc::new(home),
            book: Arc::clone(book),
            seen: Mutex::new(seen),
        })
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Answers a connection.
    pub(super) async fn connect(self: Arc<Self>, address: SocketAddr) -> io::Result<Transport> {
        let IpAddr::V4(ip) = address.ip() else { return Err(io::ErrorKind::NetworkUnreachable.into()) };
        if ip == self.home.address {
            return talk::connect(Arc::clone(&self.home)).await;
        }
        let (host, delay) = {
            let world = self.world();
            let host = ip.to_bits().checked_sub(NETWORK.to_bits()).filter(|host| *host < world.plan().hosts);
            let host = host.ok_or(io::ErrorKind::NetworkUnreachable)?;
            (host, world.plan().delay)
        };
        let counted = Counted::new(&self.book, host as usize);
        self.seen().dials[host as usize] += 1;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let mut again = Duration::from_secs(1);
        loop {
            let is_flooded = self.seen().taken.len() > TAKEN_MAX;
            let door = if is_flooded { Door::Drops } else { self.world().door(host, self.book.now()) };
            match door {
                Door::Open => break,
                Door::Refuses => return Err(io::ErrorKind::ConnectionRefused.into()),
                Door::Drops => sleep(again).await,
            }
            again *= 2;
        }
        let from = self.book.now();
        let Some(mailhost) = self.world().connect(host, from) else {
            return Err(io::ErrorKind::NetworkUnreachable.into());
        };
        let (ours, theirs) = duplex(WIRE);
        let held = Held { host, from, to: from, transactions: 0, lines: 0, octets: 0 };
        tokio::spawn(Line { net: self, mailhost, stream: ours, counted: Some(counted), held }.run());
        Ok(Transport::Memory(theirs))
    }
}

/// One connection.
struct Line {
    net: Arc<Net>,
    mailhost: Mailhost,
    stream: DuplexStream,
    /// Counts the connection until QUIT: after it the client needs nothing more of the host.
    counted: Option<Counted>,
    held: Held,
}

impl Line {
    async fn run(mut self) {
        let mut input = Vec::with_capacity(WIRE);
        while self.send_all().await {
            let pause = self.wakes_at().map_or(Duration::MAX, |at| at.saturating_sub(self.net.book.now()));
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut input) => match read {
                    Ok(1..) => self.read(&mut input),
                    _ => break,
                },
                () = sleep(pause) => {}
            }
        }
        let Self { net, mailhost, mut held, counted, .. } = self;
        (held.to, held.transactions) = (net.book.now(), mailhost.transactions());
        let silent = net.world().disconnect(mailhost, held.to);
        let mut seen = net.seen();
        seen.taken.extend(silent);
        seen.held.push(held);
        drop(seen);
        drop(counted);
    }

    /// Returns when something leaves, or the host becomes another one.
    fn wakes_at(&self) -> Option<Duration> {
        let world = self.net.world();
        let script = &world.hosts()[self.mailhost.host() as usize].script;
        [self.mailhost.wake(), script.next_change(self.net.book.now())].into_iter().flatten().min()
    }

    fn read(&mut self, input: &mut Vec<u8>) {
        let (now, host) = (self.net.book.now(), self.mailhost.host());
        self.net.book.note(|| format!("host {host}: < {}", shown(input)));
        self.held.lines += input.iter().filter(|octet| **octet == b'\n').count();
        let before = self.mailhost.transactions();
        self.net.world().input(&mut self.mailhost, input, now);
        let more = self.mailhost.transactions() - before;
        self.net.seen().began.extend((0..more).map(|_| (now, host)));
        if *input == b"STARTTLS\r\n" {
            self.net.seen().handshakes.push((now, host));
        }
        if input.ends_with(b"QUIT\r\n") {
            self.counted = None;
        }
        input.clear();
    }

    /// Sends due output; false at the end of the connection.
    async fn send_all(&mut self) -> bool {
        loop {
            let now = self.net.book.now();
            let Some(flight) = self.net.world().leave(&mut self.mailhost, now) else { return true };
            let Flight { octets, mut taken, then } = flight;
            let host = self.mailhost.host();
            self.net.book.note(|| format!("host {host}: > {} {then:?}", shown(&octets)));
            self.held.octets += octets.len();
            let is_sent = self.stream.write_all(&octets).await.is_ok();
            for one in taken.iter_mut().filter(|_| !is_sent) {
                one.how = How::Silent;
            }
            self.net.seen().taken.extend(taken);
            if !is_sent || then != Then::Stay {
                return false;
            }
        }
    }
}

/// Returns the beginning of some octets, for people.
fn shown(octets: &[u8]) -> String {
    octets[..octets.len().min(300)].escape_ascii().to_string()
}

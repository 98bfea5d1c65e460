//! The DNS server: `sim::zone` behind a UDP socket and a TCP listener of the same address.

use super::events::{EventSource, data};
use super::sockets;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags, accept_with, recv, send};
use sim::World;
use sim::zone::{Way, answer};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// Queries that are answered before the other sockets have their turn.
const TURN: usize = 64;
/// Connections at a time; more are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Room for queries that wait while the thread has something else to do.
const QUEUE: usize = 4 << 20;
/// The longest query over TCP.
const QUERY_MAX: usize = 4 << 10;
/// Tries to find a port that is free for UDP and TCP.
const TRIES: usize = 20;

#[derive(Debug)]
pub(super) struct NameServer {
    at: SocketAddr,
    udp: UdpSocket,
    listener: TcpListener,
    connections: Vec<Option<DnsConnection>>,
    reply: Vec<u8>,
    /// Queries that were answered.
    pub(super) queries: u64,
}

#[derive(Debug)]
struct DnsConnection {
    stream: OwnedFd,
    input: Vec<u8>,
}

impl NameServer {
    /// Listens; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be had.
    pub(super) fn open(at: SocketAddr) -> io::Result<Self> {
        let mut tries = TRIES;
        let (udp, listener) = loop {
            let udp = UdpSocket::bind(at)?;
            match TcpListener::bind(udp.local_addr()?) {
                Ok(listener) => break (udp, listener),
                Err(_) if at.port() == 0 && tries > 0 => tries -= 1,
                Err(error) => return Err(error),
            }
        };
        udp.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&udp, QUEUE)?;
        let at = udp.local_addr()?;
        Ok(Self { at, udp, listener, connections: Vec::new(), reply: Vec::new(), queries: 0 })
    }

    /// Where it listens.
    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Has the loop watch its sockets.
    pub(super) fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(epoll, &self.udp, data(EventSource::Udp, 0), EventFlags::IN)?;
        Ok(epoll::add(epoll, &self.listener, data(EventSource::DnsListener, 0), EventFlags::IN)?)
    }

    /// Answers the queries that have come by UDP.
    pub(super) fn answer(&mut self, world: &World, buffer: &mut [u8]) {
        for _ in 0..TURN {
            // A failure is about a client that is gone: the next call has the next query.
            let Ok((octets, from)) = self.udp.recv_from(buffer) else { return };
            let query = buffer.get(..octets).unwrap_or_default();
            if answer(world, query, Way::Udp, &mut self.reply) {
                self.queries += 1;
                // A client without an answer asks again.
                drop(self.udp.send_to(&self.reply, from));
            }
        }
    }

    /// Accepts a connection.
    pub(super) fn accept(&mut self, epoll: BorrowedFd<'_>) {
        let Ok(stream) = accept_with(&self.listener, sockets::FLAGS) else { return };
        let free = self.connections.iter().position(Option::is_none);
        let place = free.unwrap_or(self.connections.len());
        if place >= CONNECTIONS_MAX
            || epoll::add(epoll, &stream, data(EventSource::Dns, index(place)), EventFlags::IN).is_err()
        {
            return;
        }
        let connection = Some(DnsConnection { stream, input: Vec::new() });
        match self.connections.get_mut(place) {
            Some(free) => *free = connection,
            None => self.connections.push(connection),
        }
    }

    /// Reads a connection and answers the whole queries.
    pub(super) fn read(&mut self, place: u32, world: &World, buffer: &mut [u8]) {
        let Some(slot) = self.connections.get_mut(place as usize) else { return };
        let Some(connection) = slot else { return };
        let octets = match recv(connection.stream.as_fd(), &mut *buffer, RecvFlags::empty()) {
            Ok((octets, _)) if octets > 0 => octets,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            _ => {
                *slot = None;
                return;
            }
        };
        connection.input.extend_from_slice(buffer.get(..octets).unwrap_or_default());
        let mut is_well = true;
        while let Some((length, rest)) = connection.input.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(query) = rest.get(..length) else {
                is_well = length <= QUERY_MAX;
                break;
            };
            if answer(world, query, Way::Tcp, &mut self.reply) {
                self.queries += 1;
                // A reply is 64 KiB at most and small in truth; a client that does not read loses it and its
                // connection.
                let length = u16::try_from(self.reply.len()).unwrap_or(u16::MAX);
                self.reply.splice(..0, length.to_be_bytes());
                is_well &= send(connection.stream.as_fd(), &self.reply, SendFlags::NOSIGNAL) == Ok(self.reply.len());
            }
            connection.input.drain(..length + 2);
        }
        if !is_well {
            *slot = None;
        }
    }
}

/// A place in a list that is short.
fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

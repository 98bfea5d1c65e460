//! Listeners of the hosts: one for each address, so that an address without one refuses as the kernel does it.
//!
//! A host that drops packets has a listener with a socket filter that lets nothing through: a connection attempt meets
//! silence, without privileges and without a rule in the machine's packet filter. Only loopback addresses are bound.

use rustix::fd::OwnedFd;
use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sim::Door;
use socket2::{SockFilter, SockRef};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Connections of one host that may wait to be accepted.
const BACKLOG: i32 = 256;
/// `BPF_RET`: "let 0 octets through".
const DROP_ALL: SockFilter = SockFilter::new(0x06, 0, 0, 0);
/// The flags of a socket that never blocks and is not inherited.
pub(super) const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Makes the listener that this door needs; `None` for one that refuses.
///
/// # Errors
/// The address cannot be had, or files are used up.
pub(super) fn door(address: SocketAddrV4, door: Door) -> io::Result<Option<OwnedFd>> {
    if door == Door::Refuses {
        return Ok(None);
    }
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    set_socket_reuseaddr(&socket, true)?;
    // Accepted sockets inherit it (tcp(7)).
    set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    if door == Door::Drops {
        SockRef::from(&socket).attach_filter(&[DROP_ALL])?;
    }
    listen(&socket, BACKLOG)?;
    Ok(Some(socket))
}

/// A port that was free a moment ago.
///
/// # Errors
/// There is none.
pub(super) fn free_port(address: Ipv4Addr) -> io::Result<u16> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    port(&getsockname(&socket)?)
}

fn port(address: &SocketAddrAny) -> io::Result<u16> {
    let address = SocketAddrV4::try_from(address.clone())?;
    Ok(address.port())
}

/// Allows so many open files, as far as the system lets us.
///
/// # Errors
/// It lets us not; the text says what to do.
pub(super) fn allow_files(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if is_enough(limit.current) {
        return Ok(());
    }
    let wanted = if is_enough(limit.maximum) {
        Rlimit { current: Some(needed), maximum: limit.maximum }
    } else {
        // Only root may.
        Rlimit { current: Some(needed), maximum: Some(needed) }
    };
    setrlimit(Resource::Nofile, wanted).map_err(|error| {
        let most = limit.maximum.unwrap_or(needed);
        format!(
            "these hosts and connections need {needed} open files, and the limit is {most} ({error}); raise it with \
             `ulimit -Hn {needed}` as root, or take fewer --hosts or --connections-max"
        )
    })
}

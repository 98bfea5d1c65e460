//! The peer of a connection to the control socket, and its rights.
//!
//! A peer without all rights may be allowed to look at the queue (`control.mailq`): a guest.
//!
//! The kernel says who connected (SO_PEERCRED) and cannot be lied to. The mode of the socket keeps others out already;
//! this is asked besides, because the mode of a file is changed more easily than one thinks.

use os::accounts::Accounts;
use os::machine;
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::fd::AsFd;

/// A process that connected, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// Its number; may belong to another process by now.
    pub pid: u32,
}

impl Peer {
    /// Asks the kernel for the peer of a socket.
    ///
    /// # Errors
    /// The descriptor is no connected UNIX socket.
    pub fn of_socket(socket: impl AsFd) -> io::Result<Self> {
        let found = socket_peercred(socket)?;
        Ok(Self {
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
            pid: u32::try_from(found.pid.as_raw_nonzero().get()).unwrap_or(0),
        })
    }
}

/// The peers with all rights: root, the user of the server, and the members of the socket's group.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The user of the server.
    pub uid: u32,
    /// The group of the socket.
    pub gid: u32,
    /// All others are guests; or else they are turned away.
    pub has_guests: bool,
}

/// The rights of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    Operator,
    /// The requests that [`super::Request::is_for_guests`] allows, as far as `control.mailq` shows him the queue.
    Guest,
}

impl Gate {
    /// The gate of this process for a socket of the group. To be made after root was given up.
    #[must_use]
    pub fn new(gid: u32) -> Self {
        Self { uid: machine::uid(), gid, has_guests: false }
    }

    /// The same, with guests or without.
    #[must_use]
    pub fn with_guests(self, has_guests: bool) -> Self {
        Self { has_guests, ..self }
    }

    /// Returns whether the peer is root or the server's own user: some connections are kept for them.
    #[must_use]
    pub fn has_kept_place(&self, peer: &Peer) -> bool {
        peer.uid == 0 || peer.uid == self.uid
    }

    /// Whether the peer may ask, as far as its own group or, where they are given, the names in `accounts` tell.
    #[must_use]
    pub fn admits(&self, peer: &Peer, accounts: Option<&Accounts>) -> bool {
        self.has_kept_place(peer)
            || peer.gid == self.gid
            || accounts.is_some_and(|accounts| accounts.finds_member(peer.uid, self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn root_the_server_and_the_group_may_ask() {
        let gate = Gate { uid: 200, gid: 201, has_guests: false };
        let accounts = Accounts::from_text("ann:x:1000:1000::/:\nbob:x:1001:1001::/:\n", "mailrace:x:201:ann\n");
        let peer = |uid, gid| Peer { uid, gid, pid: 1 };
        for (peer, expected) in [
            (peer(0, 0), true),
            (peer(200, 5), true),
            (peer(1001, 201), true),
            (peer(1000, 1000), true),
            (peer(1001, 1001), false),
            (peer(201, 200), false),
            (peer(4711, 0), false),
        ] {
            assert_eq!(gate.admits(&peer, Some(&accounts)), expected, "{peer:?}");
        }
        assert!(!gate.admits(&peer(1000, 1000), None), "unknown is no");
        assert!(gate.has_kept_place(&peer(200, 5)) && !gate.has_kept_place(&peer(1000, 201)));
    }

    #[test]
    fn the_kernel_knows_us() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of_socket(&one).unwrap();
        assert_eq!((peer.uid, peer.pid), (machine::uid(), machine::pid()));
    }
}

//! Acknowledging received bytes at once.
//!
//! Many clients send the end of a message in a write of its own and keep Nagle's algorithm on: their last segment waits
//! for our acknowledgement, which the kernel delays by 40 ms because it hopes to send it along with data. The session
//! calls this after each read; the kernel forgets the option by itself (tcp(7)), so once is not enough.

use rustix::net::sockopt::set_tcp_quickack;
use std::os::fd::AsFd;

/// Makes the kernel acknowledge what has arrived on a TCP socket now.
///
/// Only speed depends on it: a socket that knows no such option, as a UNIX one, is left as it is.
pub fn acknowledge_now(socket: impl AsFd) {
    set_tcp_quickack(socket, true).unwrap_or(());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_option_is_set_and_other_sockets_are_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        acknowledge_now(&client);
        assert!(rustix::net::sockopt::tcp_quickack(&client).unwrap());
        let (one, _other) = UnixStream::pair().unwrap();
        acknowledge_now(&one);
    }
}

//! The service manager: the sockets and variables it hands over at start, and the reports to it.
//!
//! [`Handover::take`] runs first in the process, before any thread. It takes the listening sockets of a `.socket` unit
//! and the places to report to, and clears the variables, so that programs started later do not take themselves for the
//! service. From then on [`Manager`] reports, and [`Manager::watch`] keeps the watchdog quiet as long as the server is
//! alive.
//!
//! The protocol is that of sd_notify(3), sd_listen_fds(3) and sd_watchdog_enabled(3): lines of `KEY=value` in one
//! datagram. Without a manager every report is nothing. Not here: storing descriptors over a restart.

use super::privileges::{self, single_thread};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The first descriptor a manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;
/// More than any unit passes; a number above it is a mistake.
const PASSED_MAX: RawFd = 1024;
/// Every variable that is meant for one process alone.
const VARIABLES: [&str; 6] =
    ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// The variables and sockets that the service manager gave to this process.
#[derive(Debug)]
pub struct Handover {
    /// Listening sockets, in the order of the unit. The caller knows their purpose by their addresses.
    pub listeners: Vec<TcpListener>,
    /// Where to report to.
    pub manager: Manager,
}

impl Handover {
    /// Takes the sockets and variables, and clears the variables. A second call finds nothing.
    ///
    /// # Errors
    /// `Config`: a passed descriptor is no listening TCP socket. `System`: there is more than one thread.
    pub fn take() -> Result<Self, privileges::Error> {
        single_thread("reading what the service manager left")?;
        let passed = Passed::read(|name| std::env::var_os(name), std::process::id());
        for name in VARIABLES {
            clear(name);
        }
        let listeners = (FIRST..FIRST + passed.count).map(adopt).collect::<Result<_, _>>()?;
        Ok(Self { listeners, manager: passed.manager })
    }
}

#[expect(unsafe_code, reason = "the environment belongs to no thread")]
fn clear(name: &str) {
    // SAFETY: nothing else reads or writes the environment: `Handover::take`, the only caller, has counted one thread.
    unsafe { std::env::remove_var(name) }
}

/// Makes a listener of a descriptor that the manager passed.
#[expect(unsafe_code, reason = "a passed descriptor is a bare number")]
fn adopt(number: RawFd) -> Result<TcpListener, privileges::Error> {
    let unfit = |what: String| {
        privileges::Error::Config(format!(
            "descriptor {number} of the socket unit {what}; leave only ListenStream= with TCP addresses in mailrace.socket"
        ))
    };
    // SAFETY: the borrow ends before the descriptor is owned, and only questions are asked of it; the kernel answers
    // EBADF if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(borrowed).map_err(|error| unfit(format!("is not open ({error})")))?;
    if !is_tcp_listener(borrowed) {
        return Err(unfit("is no listening TCP socket".to_owned()));
    }
    // SAFETY: it is open, and no other code has it: LISTEN_PID says that it is passed to this process, and the variable
    // is cleared by now, so that no number is adopted twice.
    let owned = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&owned, FdFlags::CLOEXEC).map_err(|error| unfit(format!("cannot be kept from programs ({error})")))?;
    Ok(TcpListener::from(owned))
}

fn is_tcp_listener(socket: BorrowedFd<'_>) -> bool {
    let is_inet =
        socket_domain(socket).is_ok_and(|family| [AddressFamily::INET, AddressFamily::INET6].contains(&family));
    is_inet && socket_type(socket) == Ok(SocketType::STREAM) && socket_acceptconn(socket) == Ok(true)
}

/// The variables, read.
#[derive(Debug)]
struct Passed {
    count: RawFd,
    manager: Manager,
}

impl Passed {
    fn read(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Self {
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let pid = u64::from(pid);
        let is_for_us = number("LISTEN_PID") == Some(pid);
        let count = number("LISTEN_FDS").filter(|_| is_for_us).and_then(|count| RawFd::try_from(count).ok());
        let is_watched = number("WATCHDOG_PID").is_none_or(|watched| watched == pid);
        let period = number("WATCHDOG_USEC").filter(|us| is_watched && *us > 0).map(Duration::from_micros);
        let address = variable("NOTIFY_SOCKET").and_then(|name| address_of(&name));
        Self { count: count.unwrap_or(0).min(PASSED_MAX), manager: Manager { address, watchdog: period } }
    }
}

/// A path, or a name that exists in no directory (written with `@` in place of a zero octet).
fn address_of(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

/// The service manager as the receiver of reports. A report that does not arrive is not repeated and is no failure.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    address: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// Reports to this address, as if the manager had named it.
    #[must_use]
    pub fn at(address: SocketAddr, watchdog: Option<Duration>) -> Self {
        Self { address: Some(address), watchdog }
    }

    /// Mail is accepted.
    pub fn ready(&self, status: &str) {
        self.tell(&["READY=1", &status_line(status)]);
    }

    /// One line on what the server is doing, shown by `systemctl status`.
    pub fn status(&self, status: &str) {
        self.tell(&[&status_line(status)]);
    }

    /// The configuration is being read again; [`Manager::ready`] ends that, with success or without.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&["RELOADING=1", &format!("MONOTONIC_USEC={us}")]);
    }

    /// Open transactions are being finished.
    pub fn stopping(&self, status: &str) {
        self.tell(&["STOPPING=1", &status_line(status)]);
    }

    /// A stop takes longer than the manager allows: asks for this time from now on. It may be asked for again and
    /// again.
    pub fn extend(&self, time: Duration) {
        self.tell(&[&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros())]);
    }

    /// Tells the watchdog that all is well, at half of its period, as long as `is_alive` says so. Returns only if there
    /// is no watchdog.
    ///
    /// It runs as a task of the runtime, so a runtime that stands still stops it too. `is_alive` must not wait: it
    /// compares what the main loop and the committers have last done with the time.
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn watch(&self, mut is_alive: impl FnMut() -> bool) {
        let Some(period) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if is_alive() {
                self.tell(&["WATCHDOG=1"]);
            }
        }
    }

    fn tell(&self, lines: &[&str]) {
        let Some(address) = &self.address else { return };
        let mut text = String::new();
        for line in lines {
            writeln!(text, "{line}").expect("a String takes everything");
        }
        // A socket for each report: a manager that starts again has a new one under the old name.
        drop(send(address, text.as_bytes()));
    }
}

fn send(address: &SocketAddr, bytes: &[u8]) -> io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not stop the mail.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(bytes, address)
}

/// A status is one line; a line end in it would begin a new report.
fn status_line(status: &str) -> String {
    format!("STATUS={}", status.replace(char::is_control, " "))
}

#[cfg(test)]
mod tests;

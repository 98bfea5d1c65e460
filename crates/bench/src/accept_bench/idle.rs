//! Connections that say hello and then nothing: the resident memory of the server for each.

use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Connections opened at a time.
const AT_ONCE: usize = 100;
/// Files this process and the server have open besides the connections.
const OTHER_FILES: u64 = 200;
/// Source addresses the connections come from.
const SOURCES: usize = 200;

/// The figures that were measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleConnections {
    /// Connections that were open at once.
    pub(super) connections: usize,
    /// Resident bytes of the server for each, and in all.
    pub(super) bytes_each: u64,
    pub(super) bytes_all: u64,
}

/// Opens `wanted` connections, or as many as the limits of this process allow.
///
/// # Errors
/// The server did not start, or a connection failed.
pub(super) fn measure(site: &Site, wanted: usize) -> Result<IdleConnections, String> {
    // Before the server starts: it inherits the limit.
    let wanted = wanted.min(files().saturating_sub(OTHER_FILES).try_into().unwrap_or(usize::MAX));
    let server = RunningServer::start(site, &ServerKind::Serve, Task::Keep { tls: false })?;
    let pid = server.process().ok_or("the server is not one process")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let (first, open, before) = runtime.block_on(async {
        // One connection before the first reading: memory that is allocated once is no cost of a connection.
        let first = open(server.at, 0).await.map_err(|e| format!("connection 1: {e}"))?;
        let before = resident(pid);
        let mut all = Vec::with_capacity(wanted);
        while all.len() < wanted {
            let mut some = tokio::task::JoinSet::new();
            for number in all.len()..wanted.min(all.len() + AT_ONCE) {
                some.spawn(open(server.at, number));
            }
            while let Some(opened) = some.join_next().await {
                let opened = opened.map_err(|e| e.to_string())?;
                all.push(opened.map_err(|e| format!("connection {}: {e}", all.len() + 2))?);
            }
        }
        Ok::<_, String>((first, all, before))
    })?;
    let after = resident(pid);
    let connections = open.len();
    drop((first, open));
    Ok(IdleConnections {
        connections,
        bytes_each: after.saturating_sub(before) / connections.max(1) as u64,
        bytes_all: after,
    })
}

/// Connects, reads the greeting, says hello, reads the answer.
async fn open(to: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let last = u8::try_from(number % SOURCES).unwrap_or(0) + 1;
    let doing = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0)))?;
        let mut stream = socket.connect(to).await?;
        expect(&mut stream, b"220").await?;
        stream.write_all(b"EHLO idle.example\r\n").await?;
        expect(&mut stream, b"250").await?;
        Ok(stream)
    };
    match tokio::time::timeout(Duration::from_secs(60), doing).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads one reply of at most one segment, which these two always are on loopback.
async fn expect(stream: &mut TcpStream, code: &[u8]) -> io::Result<()> {
    let mut octets = [0; 2048];
    let count = stream.read(&mut octets).await?;
    let reply = octets.get(..count).unwrap_or_default();
    if reply.starts_with(code) {
        return Ok(());
    }
    Err(io::Error::other(format!("answered {:?}", String::from_utf8_lossy(reply).trim_end())))
}

/// Raises the number of open files as far as it goes, and says how far.
fn files() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // The limit that is read back counts, refused or not.
    let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Resident bytes of a process.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    kib.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

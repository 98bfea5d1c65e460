//! A DNS server on a loopback port that the system chose, for tests: it gives only the answers it was told to give,
//! as a recursive server does, over UDP and TCP; and names can have answers with faults.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, MX, NS, PTR, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::{MachineFiles, Resolver, now};
use crate::config::Dns;

/// Seconds that answers hold, unless [`Server::hold`] says otherwise.
const TTL: u32 = 300;

/// How long [`standing`] lets work wait for a packet.
const HANG: Duration = Duration::from_secs(60);

/// A name server for tests that counts the questions.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    zone: Arc<Zone>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// Kinds of answers for names with a certain end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Not at all.
    Silent,
    /// SERVFAIL.
    Broken,
    /// REFUSED.
    Refused,
    /// With name servers instead of an answer.
    Lame,
    /// Over UDP truncated.
    Truncated,
    /// With the number of another question.
    OtherId,
    /// With bytes that are no message.
    Garbage,
    /// With FORMERR where the question has EDNS.
    OldServer,
    /// With 2,000 addresses, 50 kB, over UDP truncated.
    Huge,
    /// An alias alone, without the records of its target.
    AliasOnly,
    /// Empty answers without a SOA record.
    Bare,
}

struct Zone {
    records: HashMap<String, Vec<RData>>,
    manners: Mutex<Vec<(String, Manner)>>,
    ttl: Mutex<u32>,
    asked: AtomicUsize,
    /// Names and types, in the order they came.
    questions: Mutex<Vec<String>>,
}

/// Returns a record for [`Server::start`].
pub(crate) fn a(name: &str, address: &str) -> (String, RData) {
    let data = match address.parse().unwrap() {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    (format!("{name}."), data)
}

/// Returns a record for [`Server::start`].
pub(crate) fn ptr(address: &str, name: &str) -> (String, RData) {
    let ip: IpAddr = address.parse().unwrap();
    (Name::from(ip).to_ascii(), RData::PTR(PTR(labels(name))))
}

/// Returns a record for [`Server::start`]. The name of the host may be anything.
pub(crate) fn mx(name: &str, preference: u16, host: &str) -> (String, RData) {
    (format!("{name}."), RData::MX(MX::new(preference, labels(host))))
}

/// Returns a record for [`Server::start`].
pub(crate) fn cname(name: &str, target: &str) -> (String, RData) {
    (format!("{name}."), RData::CNAME(CNAME(labels(target))))
}

/// Returns a record for [`Server::start`], its text in strings of at most 255 octets.
pub(crate) fn txt(name: &str, text: &str) -> (String, RData) {
    let strings = filter::dkim::key_record::strings(text).map(str::to_owned).collect();
    (format!("{name}."), RData::TXT(TXT::new(strings)))
}

fn labels(name: &str) -> Name {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut name = Name::from_labels(labels.map(str::as_bytes)).unwrap();
    name.set_fqdn(true);
    name
}

/// Settings to ask these servers, without stale answers and overrides.
pub(crate) fn settings(servers: &[SocketAddr], timeout: Duration) -> Dns {
    Dns {
        servers: servers.to_vec(),
        timeout,
        cache_entries_max: 1_000,
        stale_max: Duration::ZERO,
        ignored_addresses: Vec::new(),
        overrides: Vec::new(),
    }
}

/// Returns a resolver with these settings, on a machine without /etc/hosts.
pub(crate) fn resolver_of(settings: &Dns) -> Resolver {
    Resolver::with(settings, MachineFiles::of(settings, "")).unwrap()
}

/// Does work that waits only for packets, and returns the time that it took by a paused clock: zero, however busy the
/// machine. Work that waits for the clock gets it after a while all the same, and shows by its time.
pub(crate) async fn standing<F: Future>(work: F) -> (F::Output, Duration) {
    // A blocking task keeps a paused clock from advancing while all other tasks wait.
    tokio::time::pause();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let holds = tokio::task::spawn_blocking(move || ended.recv_timeout(HANG));
    let began = now();
    let output = work.await;
    let time = now() - began;
    drop(end);
    assert!(holds.await.unwrap().is_err(), "nothing was sent");
    tokio::time::resume();
    (output, time)
}

impl Resolver {
    /// Returns whether it is the other, with what that knows.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Server {
    /// Answers with these records; with an empty answer for names that have others or have names below them, and
    /// NXDOMAIN for the rest; with SERVFAIL for names that begin with `broken.` and have none.
    pub(crate) async fn start(records: Vec<(String, RData)>) -> Self {
        let mut by_name: HashMap<String, Vec<RData>> = HashMap::new();
        for (name, data) in records {
            by_name.entry(name.to_ascii_lowercase()).or_default().push(data);
        }
        let zone = Arc::new(Zone {
            records: by_name,
            manners: Mutex::default(),
            ttl: Mutex::new(TTL),
            asked: AtomicUsize::new(0),
            questions: Mutex::default(),
        });
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().unwrap();
        let tasks =
            vec![tokio::spawn(serve_udp(udp, Arc::clone(&zone))), tokio::spawn(serve_tcp(tcp, Arc::clone(&zone)))];
        Self { address, zone, tasks }
    }

    /// Returns a resolver that asks this server, on a machine without /etc/hosts.
    pub(crate) fn resolver(&self, timeout: Duration) -> Resolver {
        self.resolver_with_hosts(timeout, "")
    }

    /// Returns a resolver that asks this server, on a machine with this /etc/hosts.
    pub(crate) fn resolver_with_hosts(&self, timeout: Duration, text: &str) -> Resolver {
        let settings = settings(&[self.address], timeout);
        Resolver::with(&settings, MachineFiles::of(&settings, text)).unwrap()
    }

    /// Questions so far.
    pub(crate) fn asked(&self) -> usize {
        self.zone.asked.load(Ordering::Relaxed)
    }

    /// Names and types that were asked since the last call, sorted, each once.
    pub(crate) fn take_questions(&self) -> Vec<String> {
        let mut questions = std::mem::take(&mut *self.zone.questions.lock().unwrap());
        questions.sort();
        questions.dedup();
        questions
    }

    /// Answers names with this end, the last dot included, in this manner from now on; `.` is all of them.
    pub(crate) fn answer(&self, end: &str, manner: Manner) {
        self.zone.manners.lock().unwrap().push((end.to_owned(), manner));
    }

    /// No answers for names with this end from now on.
    pub(crate) fn silence(&self, end: &str) {
        self.answer(end, Manner::Silent);
    }

    /// Answers all names again, and without faults.
    pub(crate) fn speak(&self) {
        self.zone.manners.lock().unwrap().clear();
    }

    /// Answers hold this many seconds from now on.
    pub(crate) fn hold(&self, seconds: u32) {
        *self.zone.ttl.lock().unwrap() = seconds;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Both on one port: another port if the number is in use for TCP.
async fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) {
    let mut buffer = vec![0; 4_096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
        if let Some(reply) = zone.reply(&buffer[..length], true) {
            socket.send_to(&reply, peer).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let mut clients = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let zone = Arc::clone(&zone);
        // A client that goes away ends its task with an error, which is ignored.
        clients.spawn(async move { serve_client(stream, &zone).await });
    }
}

async fn serve_client(mut stream: TcpStream, zone: &Zone) -> std::io::Result<()> {
    loop {
        let mut question = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut question).await?;
        if let Some(reply) = zone.reply(&question, false) {
            stream.write_u16(u16::try_from(reply.len()).unwrap()).await?;
            stream.write_all(&reply).await?;
        }
    }
}

impl Zone {
    fn reply(&self, question: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).unwrap();
        let query = question.queries[0].clone();
        let name = query.name().to_ascii().to_ascii_lowercase();
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.questions.lock().unwrap().push(format!("{} {name}", query.query_type()));
        let has =
            |manner| self.manners.lock().unwrap().iter().any(|(end, own)| *own == manner && name.ends_with(&**end));
        if has(Manner::Silent) {
            return None;
        }
        let mut reply = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        reply.metadata.recursion_desired = true;
        reply.metadata.recursion_available = true;
        if has(Manner::Broken) {
            reply.metadata.response_code = ResponseCode::ServFail;
        } else if has(Manner::Refused) {
            reply.metadata.response_code = ResponseCode::Refused;
        } else if has(Manner::Lame) {
            reply.authorities = vec![self.record(&labels("example"), RData::NS(NS(labels("ns.example"))))];
        } else if is_udp && (has(Manner::Truncated) || has(Manner::Huge)) {
            reply.metadata.truncation = true;
        } else if has(Manner::OldServer) && question.edns.is_some() {
            reply.metadata.response_code = ResponseCode::FormErr;
        } else if has(Manner::Huge) {
            let addresses = (0..2_000_u16).map(|n| RData::A(A(Ipv4Addr::from(0x0A00_0000 + u32::from(n)))));
            reply.answers.extend(addresses.map(|data| self.record(query.name(), data)));
        } else {
            self.fill(&mut reply, query.name(), query.query_type(), has(Manner::AliasOnly), has(Manner::Bare));
        }
        if has(Manner::OtherId) {
            reply.metadata.id ^= 1;
        }
        reply.queries.push(query);
        let mut bytes = reply.to_vec().unwrap();
        if has(Manner::Garbage) {
            // The number of the question, and then counts of records that are not there.
            bytes.truncate(2);
            bytes.extend([0xFF; 60]);
        }
        Some(bytes)
    }

    fn fill(&self, reply: &mut Message, name: &Name, kind: RecordType, alias_only: bool, bare: bool) {
        let mut name = name.clone();
        loop {
            let text = name.to_ascii().to_ascii_lowercase();
            let own = self.records.get(&text).map(Vec::as_slice).unwrap_or_default();
            let right = own.iter().filter(|data| data.record_type() == kind);
            let before = reply.answers.len();
            reply.answers.extend(right.map(|data| self.record(&name, data.clone())));
            if reply.answers.len() > before {
                return;
            }
            let alias = own.iter().find_map(|data| if let RData::CNAME(alias) = data { Some(alias) } else { None });
            if let Some(alias) = alias {
                reply.answers.push(self.record(&name, RData::CNAME(alias.clone())));
                let seen = reply.answers.iter().any(|record| record.name == alias.0);
                if alias_only || seen {
                    return;
                }
                name = alias.0.clone();
                continue;
            }
            let below = format!(".{text}");
            if own.is_empty() && text.starts_with("broken.") {
                reply.metadata.response_code = ResponseCode::ServFail;
                return;
            }
            if own.is_empty() && !self.records.keys().any(|name| name.ends_with(&below)) {
                reply.metadata.response_code = ResponseCode::NXDomain;
            }
            if !bare {
                let ttl = i32::try_from(*self.ttl.lock().unwrap()).unwrap();
                let soa = SOA::new(labels("ns.example"), labels("root.example"), 1, ttl, ttl, ttl, ttl.unsigned_abs());
                reply.authorities.push(self.record(&Name::root(), RData::SOA(soa)));
            }
            return;
        }
    }

    fn record(&self, name: &Name, data: RData) -> Record {
        Record::from_rdata(name.clone(), *self.ttl.lock().unwrap(), data)
    }
}

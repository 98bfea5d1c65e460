//! A DNS server on a loopback port that the system chose, for tests: it answers what it was told and nothing else.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, PTR};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::Resolver;

/// Who answers, and what was asked.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
    silent: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

/// A record for [`Server::start`].
pub(crate) fn a(name: &str, address: &str) -> (String, RData) {
    let data = match address.parse().unwrap() {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    };
    (format!("{name}."), data)
}

/// A record for [`Server::start`].
pub(crate) fn ptr(address: &str, name: &str) -> (String, RData) {
    let ip: IpAddr = address.parse().unwrap();
    (
        Name::from(ip).to_ascii(),
        RData::PTR(PTR(Name::from_labels(name.trim_end_matches('.').split('.').map(str::as_bytes)).unwrap())),
    )
}

impl Server {
    /// Answers with these records, with NXDOMAIN for other names, SERVFAIL for names that begin with `broken.`, and
    /// nothing for those that were given to [`Server::silence`].
    pub(crate) async fn start(records: Vec<(String, RData)>) -> Self {
        let mut by_name: HashMap<String, Vec<RData>> = HashMap::new();
        for (name, data) in records {
            by_name.entry(name.to_ascii_lowercase()).or_default().push(data);
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let silent = Arc::new(Mutex::new(Vec::<String>::new()));
        let (counter, quiet) = (Arc::clone(&asked), Arc::clone(&silent));
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 4_096];
            loop {
                let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
                let question = Message::from_vec(&buffer[..length]).unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let name = question.queries[0].name().to_ascii().to_ascii_lowercase();
                if quiet.lock().unwrap().iter().any(|end| name.ends_with(end)) {
                    continue;
                }
                let reply = answer(&question, by_name.get(&name).map(Vec::as_slice), &name);
                socket.send_to(&reply.to_vec().unwrap(), peer).await.unwrap();
            }
        });
        Self { address, asked, silent, task }
    }

    /// A resolver that asks this server.
    pub(crate) fn resolver(&self, timeout: Duration) -> Resolver {
        let settings = crate::config::Dns { servers: vec![self.address], timeout, cache_entries_max: 100 };
        Resolver::new(&settings).unwrap()
    }

    /// Questions so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// No answers for names with this end from now on; `.` is all of them.
    pub(crate) fn silence(&self, end: &str) {
        self.silent.lock().unwrap().push(end.to_owned());
    }

    /// Answers for all names again.
    pub(crate) fn speak(&self) {
        self.silent.lock().unwrap().clear();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(question: &Message, records: Option<&[RData]>, name: &str) -> Message {
    let query = question.queries[0].clone();
    let mut reply = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    reply.metadata.recursion_desired = true;
    reply.metadata.recursion_available = true;
    let right_kind = |data: &&RData| match data {
        RData::A(_) => query.query_type() == RecordType::A,
        RData::AAAA(_) => query.query_type() == RecordType::AAAA,
        RData::PTR(_) => query.query_type() == RecordType::PTR,
        _ => false,
    };
    let records = records.unwrap_or_default().iter().filter(right_kind);
    reply.answers = records.map(|data| Record::from_rdata(query.name().clone(), 300, data.clone())).collect();
    if reply.answers.is_empty() {
        reply.metadata.response_code =
            if name.starts_with("broken.") { ResponseCode::ServFail } else { ResponseCode::NXDomain };
    }
    reply.queries.push(query);
    reply
}

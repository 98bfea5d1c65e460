//! Questions over UDP from sockets that many questions share: the usual answer of a server, at little cost.
//!
//! The library opens a socket for each question, and a list of a thousand domains asks thousands of them. Here a
//! socket serves [`QUESTIONS_PER_SOCKET`] questions within [`SOCKET_AGE_MAX`], then the next one gets another port: a
//! stranger who sends false answers has to guess the port as well as the number of a question (RFC 5452 §4). The
//! socket is connected, so the kernel takes answers of the server alone; the answer must repeat the question.
//!
//! One task a socket reads its answers and ends with the last question. Everything unusual is left to the library: no
//! answer within a while, truncated answers, errors, broken messages, aliases. It asks again by its own means.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{DnsResponse, Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::now;

/// Questions that are asked from one port.
const QUESTIONS_PER_SOCKET: u16 = 64;
/// Time for which a port is used for new questions.
const SOCKET_AGE_MAX: Duration = Duration::from_secs(10);
/// A size that passes every path without fragments (RFC 6891 §6.2.5); for answers too.
pub(super) const PAYLOAD: u16 = 1_232;
/// Octets of the header of a message. RFC 1035 §4.1.1
const HEADER: usize = 12;
/// Octets of random numbers that are drawn at a time.
const RANDOM_OCTETS: usize = 128;

/// The sockets to one server.
pub(super) struct QuestionExchange {
    server: SocketAddr,
    state: Mutex<ExchangeState>,
}

struct ExchangeState {
    socket: Option<(Arc<SharedSocket>, Instant, u16)>,
    random: [u8; RANDOM_OCTETS],
    random_left: usize,
}

/// A socket and the task that reads it. The task ends when this is dropped.
struct SharedSocket {
    port: Arc<Port>,
    reader: AbortHandle,
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

struct Port {
    socket: UdpSocket,
    /// By number, those whose answer is waited for.
    questions: Mutex<HashMap<u16, AwaitedQuestion>>,
}

struct AwaitedQuestion {
    /// The section that the answer has to repeat.
    question: Box<[u8]>,
    answer: oneshot::Sender<Vec<u8>>,
}

/// A question whose answer is waited for. Dropped, it is open no more.
struct SentQuestion {
    socket: Arc<SharedSocket>,
    id: u16,
    answer: oneshot::Receiver<Vec<u8>>,
}

impl Drop for SentQuestion {
    fn drop(&mut self) {
        self.socket.port.questions().remove(&self.id);
    }
}

impl QuestionExchange {
    /// Makes the sockets to a server; none is open yet.
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server, state: Mutex::new(ExchangeState { socket: None, random: [0; RANDOM_OCTETS], random_left: 0 }) }
    }

    /// Asks, and returns the answer that ends the matter: records, or that there are none. `None`: the library has to
    /// ask. Waits without a limit of its own.
    ///
    /// # Cancel safety
    /// Cancel safe; an answer that comes later is dropped.
    pub(super) async fn ask(&self, name: &Name, kind: RecordType) -> Option<Result<Lookup, NetError>> {
        let (mut sent, octets) = self.open(name, kind)?;
        sent.socket.port.socket.send(&octets).await.ok()?;
        let answer = (&mut sent.answer).await.ok()?;
        read(&answer, name, kind)
    }

    /// Enters a question, and returns it with its message. `None`: there is no socket, or its number is in use.
    fn open(&self, name: &Name, kind: RecordType) -> Option<(SentQuestion, Vec<u8>)> {
        let (socket, id) = self.socket_and_id()?;
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name.clone(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        message.set_edns(edns);
        let octets = message.to_vec().ok()?;
        let (sender, answer) = oneshot::channel();
        let question = question_of(&octets)?.into();
        {
            let mut questions = socket.port.questions();
            // The number of another question that is open on this port.
            if questions.contains_key(&id) {
                return None;
            }
            questions.insert(id, AwaitedQuestion { question, answer: sender });
        }
        Some((SentQuestion { socket, id, answer }, octets))
    }

    fn socket_and_id(&self) -> Option<(Arc<SharedSocket>, u16)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let id = state.random_id()?;
        match &mut state.socket {
            Some((socket, opened, asked))
                if *asked < QUESTIONS_PER_SOCKET
                    && now().saturating_duration_since(*opened) < SOCKET_AGE_MAX
                    && !socket.reader.is_finished() =>
            {
                *asked += 1;
                Some((Arc::clone(socket), id))
            }
            socket => {
                let opened = Arc::new(SharedSocket::open(self.server).ok()?);
                *socket = Some((Arc::clone(&opened), now(), 1));
                Some((opened, id))
            }
        }
    }
}

impl ExchangeState {
    fn random_id(&mut self) -> Option<u16> {
        if self.random_left < 2 {
            // The generator of the TLS library takes milliseconds when a thread uses it for the first time.
            self.random_left = getrandom(&mut self.random, GetRandomFlags::empty()).ok()?;
        }
        self.random_left = self.random_left.checked_sub(2)?;
        self.random.get(self.random_left..)?.first_chunk().map(|octets| u16::from_be_bytes(*octets))
    }
}

impl SharedSocket {
    fn open(server: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        let port = Arc::new(Port { socket: UdpSocket::from_std(socket)?, questions: Mutex::default() });
        let reader = tokio::spawn(Port::read(Arc::clone(&port))).abort_handle();
        Ok(Self { port, reader })
    }
}

impl Port {
    fn questions(&self) -> MutexGuard<'_, HashMap<u16, AwaitedQuestion>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives answers to their questions until an error of the socket, as a server's port that is closed gives; the
    /// open questions go to the library then.
    async fn read(self: Arc<Self>) {
        let mut buffer = [0; PAYLOAD as usize];
        // A port where nothing listens makes an error and nothing to read.
        while let Ok(ready) = self.socket.ready(Interest::READABLE | Interest::ERROR).await {
            match self.socket.try_recv(&mut buffer) {
                Ok(length) => self.take(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ready.is_error() => {}
                Err(_) => break,
            }
        }
        self.questions().clear();
    }

    fn take(&self, answer: &[u8]) {
        let Some(id) = answer.first_chunk().map(|octets| u16::from_be_bytes(*octets)) else { return };
        let mut questions = self.questions();
        let Some(waiting) = questions.get(&id) else { return };
        match question_of(answer) {
            Some(question) if is_same(question, &waiting.question) => {
                if let Some(waiting) = questions.remove(&id) {
                    drop(waiting.answer.send(answer.to_vec()));
                }
            }
            Some(_) => {}
            // The server sends broken messages: the library reports the failure, or asks it over TCP.
            None => drop(questions.remove(&id)),
        }
    }
}

/// Returns the question of a message that has one: name, type and class.
fn question_of(message: &[u8]) -> Option<&[u8]> {
    let after = message.get(HEADER..).filter(|_| message.get(4..6) == Some(&[0, 1]))?;
    let mut at = 0;
    loop {
        match *after.get(at)? {
            0 => return after.get(..at + 5),
            // A pointer has nothing to point to here.
            length if length < 64 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// Compares questions; letters of names may have another case. No octet of a length is a letter.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (one.split_last_chunk::<4>(), other.split_last_chunk::<4>()) {
        (Some((name, kind)), Some((its_name, its_kind))) => kind == its_kind && name.eq_ignore_ascii_case(its_name),
        _ => false,
    }
}

/// Reads an answer as the library does. `None` for all that it would not end with.
fn read(answer: &[u8], name: &Name, kind: RecordType) -> Option<Result<Lookup, NetError>> {
    let message = Message::from_vec(answer).ok()?;
    let metadata = &message.metadata;
    if metadata.message_type != MessageType::Response
        || metadata.op_code != OpCode::Query
        || metadata.truncation
        || !matches!(metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
    {
        return None;
    }
    if message.answers.is_empty() {
        // Without a SOA record it may be a referral or an alias, which the library follows.
        let none = DnsResponse::from_message(message).ok().map(DnsError::from_response)?.err()?;
        let has_soa = matches!(&none, DnsError::NoRecordsFound(none) if none.soa.is_some());
        return has_soa.then_some(Err(NetError::Dns(none)));
    }
    let is_plain = |record: &Record| record.name == *name && record.record_type() == kind;
    if metadata.response_code != ResponseCode::NoError || !message.answers.iter().all(is_plain) {
        return None;
    }
    let ttl = message.answers.iter().map(|record| record.ttl).min().unwrap_or(0);
    let until = now() + Duration::from_secs(ttl.into());
    Some(Ok(Lookup::new_with_deadline(Query::query(name.clone(), kind), message.answers, until)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::proto::rr::RData;

    fn question(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    #[test]
    fn an_answer_repeats_the_question() {
        let asked = question("mx.list.example.", RecordType::A);
        let asked = question_of(&asked).unwrap();
        for (name, kind, is_it) in [
            ("mx.list.example.", RecordType::A, true),
            ("MX.List.Example.", RecordType::A, true),
            ("mx.list.example.", RecordType::AAAA, false),
            ("my.list.example.", RecordType::A, false),
            ("list.example.", RecordType::A, false),
            (".", RecordType::A, false),
        ] {
            let other = question(name, kind);
            assert_eq!(is_same(question_of(&other).unwrap(), asked), is_it, "{name} {kind}");
        }
    }

    #[test]
    fn what_has_no_whole_question_has_none() {
        let whole = question("mx.list.example.", RecordType::A);
        for length in 0..whole.len() {
            assert_eq!(question_of(&whole[..length]), None, "{length}");
        }
        let mut two = whole.clone();
        two[5] = 2;
        assert_eq!(question_of(&two), None);
        let mut pointer = whole;
        pointer[HEADER] = 0xC0;
        assert_eq!(question_of(&pointer), None);
    }

    #[tokio::test]
    async fn false_answers_are_passed_over_and_ports_change() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let exchange = QuestionExchange::new(server.local_addr().unwrap());
        let name = Name::from_ascii("list.example.").unwrap();
        let mut ports = std::collections::BTreeSet::new();
        for _ in 0..=QUESTIONS_PER_SOCKET {
            let asking = exchange.ask(&name, RecordType::A);
            let answering = async {
                let mut buffer = [0; 512];
                let (length, peer) = server.recv_from(&mut buffer).await.unwrap();
                let asked = Message::from_vec(&buffer[..length]).unwrap();
                let reply = |id: u16, name: &str, kind, address: [u8; 4]| {
                    let name = Name::from_ascii(name).unwrap();
                    let mut reply = Message::new(id, MessageType::Response, OpCode::Query);
                    reply.add_query(Query::query(name.clone(), kind));
                    let data = RData::A(Ipv4Addr::from(address).into());
                    reply.add_answer(Record::from_rdata(name, 60, data));
                    reply.to_vec().unwrap()
                };
                let id = asked.metadata.id;
                for wrong in [
                    reply(id ^ 1, "list.example.", RecordType::A, [127, 0, 0, 1]),
                    reply(id, "other.example.", RecordType::A, [127, 0, 0, 2]),
                    reply(id, "list.example.", RecordType::MX, [127, 0, 0, 3]),
                    Vec::new(),
                ] {
                    server.send_to(&wrong, peer).await.unwrap();
                }
                let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                let forged = reply(id, "list.example.", RecordType::A, [127, 0, 0, 4]);
                stranger.send_to(&forged, peer).await.unwrap();
                server.send_to(&reply(id, "list.example.", RecordType::A, [192, 0, 2, 1]), peer).await.unwrap();
                peer.port()
            };
            let (answer, port) = tokio::join!(asking, answering);
            ports.insert(port);
            let answer = answer.unwrap().unwrap();
            assert_eq!(answer.answers()[0].data.to_string(), "192.0.2.1");
        }
        assert_eq!(ports.len(), 2);
    }

    #[tokio::test]
    async fn a_broken_answer_is_left_to_the_library() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let exchange = QuestionExchange::new(server.local_addr().unwrap());
        let name = Name::from_ascii("list.example.").unwrap();
        let breaking = async {
            let mut buffer = [0; 512];
            let (_, peer) = server.recv_from(&mut buffer).await.unwrap();
            server.send_to(&buffer[..2], peer).await.unwrap();
        };
        assert!(tokio::join!(exchange.ask(&name, RecordType::A), breaking).0.is_none());
    }

    #[tokio::test]
    async fn a_closed_port_is_left_to_the_library() {
        // At an address of its own: no server of another test gets the port meanwhile.
        let server = UdpSocket::bind("127.45.0.2:0").await.unwrap();
        let exchange = QuestionExchange::new(server.local_addr().unwrap());
        drop(server);
        let name = Name::from_ascii("list.example.").unwrap();
        assert!(exchange.ask(&name, RecordType::A).await.is_none());
        assert!(exchange.ask(&name, RecordType::A).await.is_none());
    }
}

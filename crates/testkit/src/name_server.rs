//! A DNS server for tests: it answers over UDP from a zone that is written as text.
//!
//! ```text
//! # name        type  value
//! list.example  MX    10 mail.list.example
//! mail.list.example  A  127.0.0.2
//! 192.0.2.1     PTR   mail.list.example
//! list.example  TXT   v=spf1 -all
//! slow.example  SERVFAIL
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// Type and value of the records of each name.
type Zone = BTreeMap<String, Vec<(String, Vec<String>)>>;

/// The most aliases that one answer follows.
const ALIASES_MAX: usize = 8;

/// A running server. Its thread ends with the process.
pub struct NameServer {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl NameServer {
    /// Starts a server with this zone on a free port of 127.0.0.1.
    pub fn start(zone: &str) -> Self {
        Self::on(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"), zone)
    }

    /// Starts a server with this zone on the port of the DNS, for programs that ask no other one. The address is the
    /// first one of 127.53.0.0/24 that is free; `None`: the user may not use the port.
    pub fn on_port_53(zone: &str) -> Option<Self> {
        let socket = (1..=254).find_map(|last| UdpSocket::bind((Ipv4Addr::new(127, 53, 0, last), 53)).ok())?;
        Some(Self::on(socket, zone))
    }

    fn on(socket: UdpSocket, zone: &str) -> Self {
        let address = socket.local_addr().expect("it has one");
        let zone = Arc::new(Mutex::new(read(zone)));
        let known = Arc::clone(&zone);
        std::thread::spawn(move || {
            let mut question = [0; 1_024];
            while let Ok((octets, peer)) = socket.recv_from(&mut question) {
                let answer = answer(&question[..octets], &known.lock().unwrap_or_else(PoisonError::into_inner));
                if let Some(answer) = answer {
                    drop(socket.send_to(&answer, peer));
                }
            }
        });
        Self { address, zone }
    }

    /// Replaces the zone.
    pub fn change(&self, zone: &str) {
        *self.zone.lock().unwrap_or_else(PoisonError::into_inner) = read(zone);
    }
}

fn read(text: &str) -> Zone {
    let mut zone = Zone::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_ascii_whitespace().collect();
        let [name, kind, value @ ..] = words.as_slice() else { continue };
        let name = match name.parse::<IpAddr>() {
            Ok(ip) if *kind == "PTR" => reversed(ip),
            _ => name.trim_end_matches('.').to_ascii_lowercase(),
        };
        let value = value.iter().map(|&word| word.to_owned()).collect();
        zone.entry(name).or_default().push((kind.to_ascii_uppercase(), value));
    }
    zone
}

fn reversed(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let digits: Vec<String> = ip
                .octets()
                .iter()
                .rev()
                .flat_map(|octet| [octet & 15, octet >> 4])
                .map(|digit| format!("{digit:x}"))
                .collect();
            format!("{}.ip6.arpa", digits.join("."))
        }
    }
}

/// Returns the answer to a question. RFC 1035 §4.1
fn answer(question: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*question.get(at)?);
        let label = question.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    let (code, records) = records(labels.join("."), kind, zone);
    let mut out = question.get(..2)?.to_vec();
    out.extend([0x85, 0x80 | code, 0, 1]);
    out.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
    out.extend([0; 4]);
    out.extend_from_slice(question.get(12..at + 4)?);
    for (owner, kind, data) in records {
        out.extend(packed(&owner));
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 1, 0]);
        out.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        out.extend(data);
    }
    Some(out)
}

/// Returns the code of the answer and its records, aliases first.
fn records(mut name: String, kind: u16, zone: &Zone) -> (u8, Vec<(String, u16, Vec<u8>)>) {
    let mut records = Vec::new();
    for _ in 0..ALIASES_MAX {
        let Some(lines) = zone.get(&name) else {
            let below = format!(".{name}");
            let has_names_below = zone.keys().any(|owner| owner.ends_with(&below));
            return (if has_names_below { 0 } else { 3 }, records);
        };
        if lines.iter().any(|(kind, _)| kind == "SERVFAIL") {
            return (2, records);
        }
        let here: Vec<Vec<u8>> = lines.iter().filter_map(|(type_, value)| data(type_, value, kind)).collect();
        let is_done = !here.is_empty();
        records.extend(here.into_iter().map(|data| (name.clone(), kind, data)));
        let alias = lines.iter().find(|(type_, _)| type_ == "CNAME").and_then(|(_, value)| value.first());
        match alias {
            Some(alias) if !is_done => {
                records.push((name, 5, packed(alias)));
                name = alias.trim_end_matches('.').to_ascii_lowercase();
            }
            _ => break,
        }
    }
    (0, records)
}

/// Returns the data of a record, if it is of the type that is asked for.
fn data(type_: &str, value: &[String], asked: u16) -> Option<Vec<u8>> {
    let first = value.first()?;
    match (type_, asked) {
        ("A", 1) | ("AAAA", 28) => Some(match first.parse::<IpAddr>().ok()? {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }),
        ("MX", 15) => Some([first.parse::<u16>().ok()?.to_be_bytes().to_vec(), packed(value.get(1)?)].concat()),
        ("PTR", 12) => Some(packed(first)),
        ("TXT", 16) => Some(strings(&value.join(" "))),
        _ => None,
    }
}

/// Returns a text as strings of at most 255 octets. RFC 1035 §3.3.14
fn strings(text: &str) -> Vec<u8> {
    let pieces = text.as_bytes().chunks(255);
    pieces.flat_map(|piece| [&[u8::try_from(piece.len()).expect("at most 255")], piece].concat()).collect()
}

fn packed(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).expect("a label"));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

//! A DNS server for tests: gives the set answers by UDP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// A record of a name.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Mx(u16, &'static str),
    Address(IpAddr),
    /// SERVFAIL.
    Broken,
}

type Zone = Arc<Mutex<Vec<(&'static str, Record)>>>;

/// The server. It goes away with the process.
pub(crate) struct Names {
    pub(crate) address: SocketAddr,
    zone: Zone,
}

const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;

impl Names {
    pub(crate) fn new(zone: Vec<(&'static str, Record)>) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = socket.local_addr().expect("it has one");
        let zone: Zone = Arc::new(Mutex::new(zone));
        let known = Arc::clone(&zone);
        std::thread::spawn(move || {
            let mut question = [0; 1_024];
            while let Ok((octets, peer)) = socket.recv_from(&mut question) {
                let zone = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(answer) = answer(&question[..octets], &zone) {
                    drop(socket.send_to(&answer, peer));
                }
            }
        });
        Self { address, zone }
    }

    /// Other records from now on.
    pub(crate) fn change(&self, zone: Vec<(&'static str, Record)>) {
        *self.zone.lock().unwrap_or_else(PoisonError::into_inner) = zone;
    }
}

/// RFC 1035 §4.1
fn answer(question: &[u8], zone: &[(&'static str, Record)]) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*question.get(at)?);
        let label = question.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let name = labels.join(".");
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    let end = at + 4;
    let of_name: Vec<&Record> = zone.iter().filter(|(known, _)| *known == name).map(|(_, record)| record).collect();
    let mut records: Vec<(u16, Vec<u8>)> = Vec::new();
    let mut code: u8 = if of_name.is_empty() { 3 } else { 0 };
    for record in of_name {
        match record {
            Record::Broken => code = 2,
            Record::Mx(preference, host) if kind == MX => {
                let mut data = preference.to_be_bytes().to_vec();
                for label in host.split('.').filter(|label| !label.is_empty()) {
                    data.push(u8::try_from(label.len()).ok()?);
                    data.extend_from_slice(label.as_bytes());
                }
                data.push(0);
                records.push((MX, data));
            }
            Record::Address(IpAddr::V4(ip)) if kind == A => records.push((A, ip.octets().to_vec())),
            Record::Address(IpAddr::V6(ip)) if kind == AAAA => records.push((AAAA, ip.octets().to_vec())),
            _ => {}
        }
    }
    let mut out = question.get(..2)?.to_vec();
    out.extend([0x85, 0x80 | code, 0, 1]);
    out.extend(u16::try_from(records.len()).ok()?.to_be_bytes());
    out.extend([0; 4]);
    out.extend_from_slice(question.get(12..end)?);
    for (kind, data) in records {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 1, 0]);
        out.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        out.extend(data);
    }
    Some(out)
}

//! DNS: a query becomes an answer.
//!
//! The whole DNS of this world is one zone and an arithmetic: `d{n}.sim.example` has the MX records of its site,
//! `mx{n}.sim.example` has the address of host n, addresses have names. Everything else does not exist. Only one
//! question with class IN is understood, as all resolvers send it; no record is kept anywhere, so a million domains
//! cost nothing. `hickory-proto` reads and writes the wire format; the content of answers is decided here.

use crate::world::{World, ZONE};
use hickory_proto::op::{
    DEFAULT_MAX_PAYLOAD_LEN, Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode,
};
use hickory_proto::rr::rdata::{A, MX, NS, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder, BinEncodable as _, BinEncoder};
use std::net::{IpAddr, Ipv4Addr};

/// Seconds for which an answer may be kept, and a denial too.
const TTL: u32 = 300;
/// The largest reply to a client that names no limit (RFC 1035 §4.2.1).
const PLAIN_MAX: u16 = 512;

/// How a reply travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Cut to the size that the client takes.
    Udp,
    /// Whole; without the two octets of length before it (RFC 1035 §4.2.2).
    Tcp,
}

/// The meaning of a name.
enum Meaning {
    /// The zone itself.
    Apex,
    Domain(u32),
    Host(u32),
    /// `d.c.b.a.in-addr.arpa`
    Reverse(Ipv4Addr),
    Localhost,
    Unknown,
}

/// Writes the answer to a query into `out`, which is cleared before. False: to this nothing is answered.
#[must_use]
pub fn answer(world: &World, query: &[u8], way: Way, out: &mut Vec<u8>) -> bool {
    out.clear();
    let Ok(header) = Header::read(&mut BinDecoder::new(query)) else { return false };
    // A reply is never answered, or two servers would talk for ever.
    if header.message_type == MessageType::Response {
        return false;
    }
    let mut reply = Message::response(header.id, header.op_code);
    reply.metadata = Metadata::response_from_request(&header.metadata);
    reply.metadata.authoritative = true;
    // All names are known here, so a client that wants recursion has it.
    reply.metadata.recursion_available = true;
    let mut bears = PLAIN_MAX;
    if header.op_code != OpCode::Query {
        reply.metadata.response_code = ResponseCode::NotImp;
    } else if let Some((question, edns)) = question(&header, query) {
        reply_to(world, &question, &mut reply);
        reply.add_query(question);
        if let Some(edns) = edns {
            // At least 512 (RFC 6891 §6.2.3); the reader sees to that.
            bears = edns.max_payload();
            // RFC 6891 §6.1.1: an OPT record is answered with one.
            let mut ours = Edns::new();
            ours.set_max_payload(DEFAULT_MAX_PAYLOAD_LEN);
            reply.set_edns(ours);
        }
    } else {
        reply.metadata.response_code = ResponseCode::FormErr;
    }
    let most = if way == Way::Udp { usize::from(bears) } else { usize::from(u16::MAX) };
    // RFC 2181 §9: of an answer that is too long no record, and TC.
    write(&reply, out) && (out.len() <= most || write(&reply.truncate(), out))
}

/// The only question, and the values of EDNS beside it.
fn question(header: &Header, query: &[u8]) -> Option<(Query, Option<Edns>)> {
    if header.counts.queries != 1 {
        return None;
    }
    let mut message = Message::from_vec(query).ok()?;
    let question = message.queries.pop()?;
    matches!(question.query_class, DNSClass::IN | DNSClass::ANY).then_some((question, message.edns))
}

/// Fills the sections of a reply.
fn reply_to(world: &World, question: &Query, reply: &mut Message) {
    let is = |kind| question.query_type == kind || question.query_type == RecordType::ANY;
    let mut add = |data| {
        reply.add_answer(Record::from_rdata(question.name.clone(), TTL, data));
    };
    match meaning(world, &question.name) {
        Meaning::Apex => {
            if is(RecordType::SOA) {
                add(soa());
            }
            if is(RecordType::NS) {
                add(RData::NS(NS(name(&format!("ns.{ZONE}")))));
            }
        }
        Meaning::Domain(domain) => {
            if is(RecordType::MX) {
                for (place, host) in (1_u16..).zip(world.hosts_of_domain(domain)) {
                    let preference = if world.plan().equal_mx { 10 } else { place.saturating_mul(10) };
                    add(RData::MX(MX::new(preference, name(&World::name(host)))));
                }
            }
        }
        Meaning::Host(host) => {
            if is(RecordType::A) {
                add(RData::A(A(world.address(host))));
            }
        }
        Meaning::Localhost => {
            if is(RecordType::A) {
                add(RData::A(A(Ipv4Addr::LOCALHOST)));
            }
        }
        Meaning::Reverse(address) => {
            if is(RecordType::PTR) {
                let of_host = world.host_at(address).map(World::name);
                add(RData::PTR(PTR(name(of_host.as_deref().unwrap_or("localhost")))));
            }
        }
        Meaning::Unknown => reply.metadata.response_code = ResponseCode::NXDomain,
    }
    if reply.answers.is_empty() {
        // RFC 2308 §3: a denial says for how long.
        reply.add_authority(Record::from_rdata(name(ZONE), TTL, soa()));
    }
}

fn soa() -> RData {
    RData::SOA(SOA::new(name(&format!("ns.{ZONE}")), name(&format!("postmaster.{ZONE}")), 1, 3600, 600, 86_400, TTL))
}

/// A name of this world.
fn name(text: &str) -> Name {
    text.split('.')
        .try_fold(Name::root(), |name, label| name.append_label(label.as_bytes()))
        .expect("labels of ours have 1 to 63 octets, and names at most 255")
}

/// Writes a message into `out`, which is cleared before. False: it cannot be written.
fn write(message: &Message, out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut encoder = BinEncoder::new(out);
    // Names in data stand there whole: so a site of many hosts is too much for a client without EDNS, which must use
    // TCP.
    encoder.set_canonical_form(true);
    message.emit(&mut encoder).is_ok()
}

fn meaning(world: &World, name: &Name) -> Meaning {
    let mut labels = name.iter().rev();
    let mut is_next = |text: &str| labels.next().is_some_and(|label| label.eq_ignore_ascii_case(text.as_bytes()));
    if ZONE.rsplit('.').all(&mut is_next) {
        return match (labels.next(), labels.next()) {
            (None, _) => Meaning::Apex,
            (Some(label), None) => inside(world, label),
            (Some(_), Some(_)) => Meaning::Unknown,
        };
    }
    if name.is_localhost() {
        return Meaning::Localhost;
    }
    match name.parse_arpa_name().map(|network| (network.addr(), network.prefix_len())) {
        Ok((IpAddr::V4(address), 32)) if address.is_loopback() => Meaning::Reverse(address),
        _ => Meaning::Unknown,
    }
}

/// Returns the meaning of a name of one label in front of the zone.
fn inside(world: &World, label: &[u8]) -> Meaning {
    let label = String::from_utf8(label.to_ascii_lowercase()).unwrap_or_default();
    if label == "ns" {
        return Meaning::Localhost;
    }
    let number = |begin: &str, below: u32| {
        let number = label.strip_prefix(begin)?;
        let is_plain = !number.starts_with('+') && (number == "0" || !number.starts_with('0'));
        number.parse::<u32>().ok().filter(|number| is_plain && *number < below)
    };
    if let Some(host) = number("mx", world.plan().hosts) {
        return Meaning::Host(host);
    }
    number("d", world.domains()).map_or(Meaning::Unknown, Meaning::Domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use proptest::prelude::*;

    /// RFC 1035 §4.1.1: length of a header.
    const HEADER: usize = 12;

    fn world() -> World {
        World::new(Plan { mx_per_domain: 3, domains_per_host: 2, ..Plan::new(40) }).unwrap()
    }

    /// With upper case and without labels, too.
    fn any_name(text: &str) -> Name {
        Name::from_labels(text.split('.').filter(|label| !label.is_empty()).map(str::as_bytes)).unwrap()
    }

    fn query(text: &str, kind: RecordType, bears: Option<u16>) -> Vec<u8> {
        let mut query = Message::new(0xabcd, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = true;
        query.add_query(Query::query(any_name(text), kind));
        if let Some(bears) = bears {
            let mut edns = Edns::new();
            edns.set_max_payload(bears);
            query.set_edns(edns);
        }
        query.to_vec().unwrap()
    }

    fn ask_with(world: &World, query: &[u8], way: Way) -> Message {
        let mut out = b"of the query before".to_vec();
        assert!(answer(world, query, way, &mut out));
        let reply = Message::from_vec(&out).unwrap();
        assert_eq!(reply.id.to_be_bytes(), query[..2]);
        assert_eq!(reply.message_type, MessageType::Response);
        assert!(reply.authoritative && reply.recursion_available);
        assert_eq!(reply.recursion_desired, query[2] & 1 != 0);
        reply
    }

    fn ask(name: &str, kind: RecordType) -> Message {
        ask_with(&world(), &query(name, kind, None), Way::Udp)
    }

    /// Records of the three sections, without EDNS.
    fn counts(reply: &Message) -> [usize; 3] {
        [reply.answers.len(), reply.authorities.len(), reply.additionals.len()]
    }

    fn data(reply: &Message) -> Vec<String> {
        reply.answers.iter().map(|record| record.data.to_string()).collect()
    }

    #[test]
    fn octets_are_those_of_the_standard() {
        let mut out = Vec::new();
        // RFC 1035 §4.1: id, RD, one question: mx39.Sim.example, A, IN.
        let question = b"\x04mx39\x03Sim\x07example\0\0\x01\0\x01";
        let query = [b"\xab\xcd\x01\0\0\x01\0\0\0\0\0\0", &question[..]].concat();
        assert!(answer(&world(), &query, Way::Udp, &mut out));
        // QR, AA, RD, RA; the question; a pointer to its name, A, IN, 300 s, four octets of address.
        let header = b"\xab\xcd\x85\x80\0\x01\0\x01\0\0\0\0";
        let record = b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\x7f\x10\0\x27";
        assert_eq!(out, [&header[..], question, record].concat());
    }

    #[test]
    fn a_domain_has_the_hosts_of_its_site() {
        let reply = ask("D7.Sim.Example", RecordType::MX);
        assert_eq!((reply.response_code, counts(&reply)), (ResponseCode::NoError, [3, 0, 0]));
        assert_eq!(data(&reply), ["10 mx3.sim.example.", "20 mx4.sim.example.", "30 mx5.sim.example."]);
        for (owner, ttl) in reply.answers.iter().map(|record| (&record.name, record.ttl)) {
            assert!(owner.eq_case(&any_name("D7.Sim.Example")) && ttl == TTL, "{owner}");
        }
        assert!(reply.queries[0].name.eq_case(&any_name("D7.Sim.Example")));
        let world = World::new(Plan { equal_mx: true, mx_per_domain: 2, ..Plan::new(2) }).unwrap();
        let reply = ask_with(&world, &query("d0.sim.example", RecordType::MX, None), Way::Udp);
        assert_eq!(data(&reply), ["10 mx0.sim.example.", "10 mx1.sim.example."]);
    }

    #[test]
    fn hosts_have_addresses_and_addresses_names() {
        for (name, kind, expected) in [
            ("mx39.sim.example", RecordType::A, "127.16.0.39"),
            ("39.0.16.127.in-addr.arpa", RecordType::PTR, "mx39.sim.example."),
            ("1.0.0.127.in-addr.arpa", RecordType::PTR, "localhost."),
            ("ns.sim.example", RecordType::A, "127.0.0.1"),
            ("localhost", RecordType::A, "127.0.0.1"),
            ("sim.example", RecordType::NS, "ns.sim.example."),
            ("sim.example", RecordType::SOA, "ns.sim.example. postmaster.sim.example. 1 3600 600 86400 300"),
        ] {
            let reply = ask(name, kind);
            assert_eq!((data(&reply), counts(&reply)), (vec![expected.to_owned()], [1, 0, 0]), "{name}");
        }
        assert_eq!(counts(&ask("sim.example", RecordType::ANY)), [2, 0, 0]);
    }

    #[test]
    fn what_does_not_exist_is_denied_and_what_has_no_such_record_too() {
        let is_denied = |reply: &Message| {
            counts(reply) == [0, 1, 0]
                && reply.authorities[0].record_type() == RecordType::SOA
                && reply.authorities[0].name == name(ZONE)
        };
        for none in [
            "d80.sim.example",
            "mx40.sim.example",
            "d01.sim.example",
            "d+1.sim.example",
            "d.sim.example",
            "com",
            "example",
            "dsim.example",
            "a.d0.sim.example",
            "1.0.0.10.in-addr.arpa",
            "1.127.in-addr.arpa",
            "1.1.0.0.127.in-addr.arpa",
            "arpa",
            ".",
        ] {
            let reply = ask(none, RecordType::A);
            assert!(reply.response_code == ResponseCode::NXDomain && is_denied(&reply), "{none}: {reply}");
        }
        for (name, kind) in [
            ("d0.sim.example", RecordType::A),
            ("mx0.sim.example", RecordType::AAAA),
            ("mx0.sim.example", RecordType::MX),
        ] {
            let reply = ask(name, kind);
            assert!(reply.response_code == ResponseCode::NoError && is_denied(&reply), "{name}: {reply}");
        }
    }

    #[test]
    fn what_the_asker_does_not_bear_is_cut() {
        let world = World::new(Plan { mx_per_domain: 16, ..Plan::new(1600) }).unwrap();
        let ask = |bears, way| ask_with(&world, &query("d1599.sim.example", RecordType::MX, bears), way);
        for bears in [None, Some(512), Some(513)] {
            let reply = ask(bears, Way::Udp);
            assert!(reply.truncation && counts(&reply) == [0, 0, 0], "{bears:?}: {reply}");
            assert_eq!((reply.queries.len(), reply.edns.is_some()), (1, bears.is_some()));
        }
        // RFC 6891 §6.2.3: less than 512 octets are 512; behind them stand four of flags and two of length.
        let mut modest = query("d1599.sim.example", RecordType::A, Some(512));
        let at = modest.len() - 8;
        modest[at..at + 2].copy_from_slice(&[0, 10]);
        assert!(!ask_with(&world, &modest, Way::Udp).truncation);
        for (bears, way) in [(Some(4096), Way::Udp), (None, Way::Tcp), (Some(512), Way::Tcp)] {
            let reply = ask(bears, way);
            assert!(!reply.truncation && counts(&reply) == [16, 0, 0], "{bears:?}: {reply}");
            assert_eq!(reply.edns.map(|edns| edns.max_payload()), bears.map(|_| 1232));
        }
    }

    #[test]
    fn what_is_no_question_is_answered_so_or_not_at_all() {
        let good = query("d0.sim.example", RecordType::MX, None);
        let changed = |at: usize, octet: u8| {
            let mut query = good.clone();
            query[at] = octet;
            query
        };
        let reply = |query: &[u8]| ask_with(&world(), query, Way::Udp);
        let notify = reply(&changed(2, 0x20));
        assert_eq!((notify.response_code, notify.op_code), (ResponseCode::NotImp, OpCode::Notify));
        for bad in [
            changed(5, 0),
            changed(5, 2),
            // A record is said to follow.
            changed(11, 1),
            changed(12, 0xc0),
            changed(12, 0x40),
            // The class: CHAOS.
            changed(good.len() - 1, 3),
            good[..good.len() - 1].to_vec(),
            // Two questions.
            [&changed(5, 2)[..], &good[HEADER..]].concat(),
        ] {
            let reply = reply(&bad);
            assert_eq!((reply.response_code, reply.queries.len()), (ResponseCode::FormErr, 0), "{bad:?}");
        }
        for none in [changed(2, 0x81), good[..11].to_vec(), Vec::new()] {
            let mut out = vec![1];
            assert!(!answer(&world(), &none, Way::Udp, &mut out) && out.is_empty());
        }
    }

    /// The time this thread has been on a processor, in microseconds.
    fn processor_time() -> f64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1_000.0
    }

    #[test]
    #[ignore = "a measurement; a release build tells more"]
    fn what_a_query_costs() {
        const QUERIES: u32 = 1_000_000;
        let world = World::new(Plan { mx_per_domain: 2, ..Plan::new(10_000) }).unwrap();
        let sites_of_16 = World::new(Plan { mx_per_domain: 16, ..Plan::new(10_000) }).unwrap();
        for (what, world, name, kind) in [
            ("MX, 2 hosts", &world, "d4711.sim.example", RecordType::MX),
            ("MX, 16 hosts", &sites_of_16, "d4711.sim.example", RecordType::MX),
            ("A", &world, "mx4711.sim.example", RecordType::A),
            ("no AAAA", &world, "mx4711.sim.example", RecordType::AAAA),
            ("no such name", &world, "nobody.sim.example", RecordType::A),
            ("PTR", &world, "1.1.16.127.in-addr.arpa", RecordType::PTR),
        ] {
            let (query, mut out) = (query(name, kind, Some(1232)), Vec::new());
            let before = processor_time();
            for _ in 0..QUERIES {
                assert!(answer(world, std::hint::black_box(&query), Way::Udp, &mut out));
            }
            let cost = (processor_time() - before) / f64::from(QUERIES);
            eprintln!("{what}: {cost:.2} µs a query, {} octets", out.len());
        }
    }

    /// Queries, queries with a changed octet, with something behind them, and anything.
    fn octets() -> impl Strategy<Value = Vec<u8>> {
        let names = "([a-zA-Z0-9]{1,20}\\.){0,8}|(d|mx)[0-9]{1,2}\\.[sS]im\\.example|[0-9]{1,2}\\.0\\.16\\.127\\.in-addr\\.arpa";
        let queries = (names, any::<u16>(), prop::option::of(any::<u16>()))
            .prop_map(|(name, kind, bears)| query(&name, RecordType::from(kind % 300), bears));
        let changes = (any::<prop::sample::Index>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..30));
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            queries.clone(),
            (queries, changes).prop_map(|(mut query, (at, octet, behind))| {
                let at = at.index(query.len());
                query[at] = octet;
                query.extend(behind);
                query
            }),
        ]
    }

    proptest! {
        #[test]
        fn any_octets_get_a_reply_that_can_be_read_and_is_not_too_long_or_none(query in octets()) {
            let mut out = Vec::new();
            if answer(&world(), &query, Way::Udp, &mut out) {
                let reply = Message::from_vec(&out).unwrap();
                prop_assert_eq!(out.get(..2), query.get(..2));
                prop_assert_eq!(reply.message_type, MessageType::Response);
                let asked = Message::from_vec(&query);
                let bears = asked.as_ref().map_or(512, Message::max_payload);
                prop_assert!(out.len() <= usize::from(bears), "{} octets: {reply}", out.len());
                if reply.queries.is_empty() {
                    prop_assert!(matches!(reply.response_code, ResponseCode::FormErr | ResponseCode::NotImp));
                    prop_assert_eq!(out.len(), HEADER);
                } else {
                    let asked = asked.unwrap();
                    prop_assert_eq!(&reply.queries, &asked.queries);
                    prop_assert!(reply.queries[0].name.eq_case(&asked.queries[0].name));
                    prop_assert_eq!(reply.edns.is_some(), asked.edns.is_some());
                }
            }
        }
    }
}

//! DNS: a query becomes an answer.
//!
//! The whole DNS of this world is one zone and an arithmetic: `d{n}.sim.example` has the MX records of its site,
//! `mx{n}.sim.example` has the address of host n, addresses have names. Everything else does not exist. Only one question with class IN
//! is understood, as everybody sends it; no record is kept anywhere, so a million domains cost nothing.

use crate::world::{World, ZONE};
use std::net::Ipv4Addr;

/// Seconds for which an answer may be kept, and a denial too.
const TTL: u32 = 300;
/// RFC 1035 §4.1.1: length of a header.
const HEADER: usize = 12;
/// Where the question's name stands, as a pointer (RFC 1035 §4.1.4).
const QUESTION_NAME: [u8; 2] = [0xc0, 0x0c];
/// The largest reply to somebody who does not say what he bears (RFC 1035 §4.2.1).
const PLAIN_MAX: usize = 512;

const TYPE_A: u16 = 1;
const TYPE_NS: u16 = 2;
const TYPE_SOA: u16 = 6;
const TYPE_PTR: u16 = 12;
const TYPE_MX: u16 = 15;
const TYPE_OPT: u16 = 41;
const TYPE_ANY: u16 = 255;

const FORMAT_ERROR: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// How a reply travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Cut to what the asker bears.
    Udp,
    /// Whole; without the two octets of length before it (RFC 1035 §4.2.2).
    Tcp,
}

/// What a name means.
enum Name {
    /// The zone itself.
    Apex,
    Domain(u32),
    Host(u32),
    /// `d.c.b.a.in-addr.arpa`
    Reverse(Ipv4Addr),
    Localhost,
    Unknown,
}

/// A question.
struct Question {
    /// Labels in lower case with dots between them.
    name: String,
    kind: u16,
    /// Where it ends in the query.
    end: usize,
    /// Octets that the asker bears over UDP; `None` without EDNS.
    bears: Option<usize>,
}

/// Writes the answer to a query into `out`, which is cleared before. False: to this nothing is answered.
#[must_use]
pub fn answer(world: &World, query: &[u8], way: Way, out: &mut Vec<u8>) -> bool {
    out.clear();
    let Some(header) = query.first_chunk::<HEADER>() else { return false };
    let [id_high, id_low, flags, _, questions_high, questions_low, ..] = *header;
    // A reply is never answered, or two servers would talk for ever.
    if flags & 0x80 != 0 {
        return false;
    }
    // RFC 1035 §4.1.1: QR, the opcode as it was, AA, RD as it was; then RA.
    let opcode = flags & 0x78;
    out.extend_from_slice(&[id_high, id_low, 0x84 | opcode | flags & 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0]);
    if opcode != 0 {
        set_code(out, NOT_IMPLEMENTED);
        return true;
    }
    let question = if [questions_high, questions_low] == [0, 1] { question(query) } else { None };
    let Some(question) = question else {
        set_code(out, FORMAT_ERROR);
        return true;
    };
    set_count(out, 4, 1);
    out.extend_from_slice(query.get(HEADER..question.end).unwrap_or_default());
    let end_of_question = out.len();
    reply(world, &question, out);
    let opt = if question.bears.is_some() { 11 } else { 0 };
    let most = match way {
        Way::Udp => question.bears.unwrap_or(PLAIN_MAX),
        Way::Tcp => usize::from(u16::MAX),
    };
    if out.len() + opt > most {
        // RFC 2181 §9: nothing of it, and TC.
        out.truncate(end_of_question);
        for at in [6, 8] {
            set_count(out, at, 0);
        }
        if let Some(flags) = out.get_mut(2) {
            *flags |= 2;
        }
    }
    if question.bears.is_some() {
        set_count(out, 10, 1);
        // RFC 6891 §6.1.2: the root, OPT, 1232 octets, no flags, no options.
        out.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    true
}

/// Appends the sections of a reply.
fn reply(world: &World, question: &Question, out: &mut Vec<u8>) {
    let is = |kind| question.kind == kind || question.kind == TYPE_ANY;
    let mut count = 0;
    let mut add = |out: &mut Vec<u8>, kind: u16, data: &dyn Fn(&mut Vec<u8>)| {
        record(out, &QUESTION_NAME, kind, data);
        count += 1;
    };
    let mut exists = true;
    match name(world, &question.name) {
        Name::Apex => {
            if is(TYPE_SOA) {
                add(out, TYPE_SOA, &soa);
            }
            if is(TYPE_NS) {
                add(out, TYPE_NS, &|out| write_name(out, &format!("ns.{ZONE}")));
            }
        }
        Name::Domain(domain) => {
            if is(TYPE_MX) {
                for (place, host) in (1_u16..).zip(world.hosts_of_domain(domain)) {
                    let preference = if world.plan().equal_mx { 10 } else { place.saturating_mul(10) };
                    add(out, TYPE_MX, &|out| {
                        out.extend_from_slice(&preference.to_be_bytes());
                        write_name(out, &World::name(host));
                    });
                }
            }
        }
        Name::Host(host) => {
            if is(TYPE_A) {
                add(out, TYPE_A, &|out| out.extend_from_slice(&world.address(host).octets()));
            }
        }
        Name::Localhost => {
            if is(TYPE_A) {
                add(out, TYPE_A, &|out| out.extend_from_slice(&Ipv4Addr::LOCALHOST.octets()));
            }
        }
        Name::Reverse(address) => {
            if is(TYPE_PTR) {
                let name = world.host_at(address).map_or_else(|| "localhost".to_owned(), World::name);
                add(out, TYPE_PTR, &|out| write_name(out, &name));
            }
        }
        Name::Unknown => exists = false,
    }
    if !exists {
        set_code(out, NO_SUCH_NAME);
    }
    set_count(out, 6, count);
    if count == 0 {
        // RFC 2308 §3: a denial says for how long.
        let mut owner = Vec::new();
        write_name(&mut owner, ZONE);
        record(out, &owner, TYPE_SOA, &soa);
        set_count(out, 8, 1);
    }
}

/// Appends a record.
fn record(out: &mut Vec<u8>, owner: &[u8], kind: u16, data: &dyn Fn(&mut Vec<u8>)) {
    out.extend_from_slice(owner);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&TTL.to_be_bytes());
    let at = out.len();
    out.extend_from_slice(&[0, 0]);
    data(out);
    let length = out.len() - at - 2;
    set_count(out, at, u16::try_from(length).unwrap_or(u16::MAX));
}

fn soa(out: &mut Vec<u8>) {
    write_name(out, &format!("ns.{ZONE}"));
    write_name(out, &format!("postmaster.{ZONE}"));
    for number in [1, 3600, 600, 86_400, TTL] {
        out.extend_from_slice(&u32::to_be_bytes(number));
    }
}

fn write_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        // Our own names, with labels of 63 octets at most.
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}

/// Writes a number of two octets at a place that is there.
fn set_count(out: &mut [u8], at: usize, count: u16) {
    if let Some(place) = out.get_mut(at..at + 2) {
        place.copy_from_slice(&count.to_be_bytes());
    }
}

fn set_code(out: &mut [u8], code: u8) {
    if let Some(place) = out.get_mut(3) {
        *place |= code;
    }
}

/// Reads the only question, and what EDNS says behind it.
fn question(query: &[u8]) -> Option<Question> {
    let mut at = HEADER;
    let mut name = String::new();
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // A pointer has nothing to point to; RFC 1035 §2.3.4 has the lengths.
        if length > 63 || name.len() + length > 255 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for octet in query.get(at..at + length)? {
            name.push(char::from(octet.to_ascii_lowercase()));
        }
        at += length;
    }
    let [kind_high, kind_low, class_high, class_low] = *query.get(at..)?.first_chunk()?;
    let end = at + 4;
    let is_internet = matches!([class_high, class_low], [0, 1 | 255]);
    let number = |at: usize| query.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two));
    // An OPT record is the first one behind the question, with the root for a name.
    let has_opt = query.get(end) == Some(&0) && number(end + 1) == Some(TYPE_OPT) && number(10)? > 0;
    let bears = if has_opt { Some(usize::from(number(end + 3)?).max(PLAIN_MAX)) } else { None };
    is_internet.then_some(Question { name, kind: u16::from_be_bytes([kind_high, kind_low]), end, bears })
}

fn name(world: &World, text: &str) -> Name {
    if let Some(reverse) = text.strip_suffix(".in-addr.arpa") {
        let mut parts = reverse.split('.').map(|part| part.parse::<u8>().ok());
        let mut part = || parts.next().flatten();
        let address = (|| Some([part()?, part()?, part()?, part()?]))();
        return match (address, parts.next()) {
            (Some([d, c, b, a @ 127]), None) => Name::Reverse(Ipv4Addr::new(a, b, c, d)),
            _ => Name::Unknown,
        };
    }
    if text == "localhost" {
        return Name::Localhost;
    }
    let Some(inner) = text.strip_suffix(ZONE) else { return Name::Unknown };
    if inner.is_empty() {
        return Name::Apex;
    }
    let Some(label) = inner.strip_suffix('.') else { return Name::Unknown };
    if label == "ns" {
        return Name::Localhost;
    }
    let number = |begin: &str, below: u32| {
        let number = label.strip_prefix(begin)?;
        let is_plain = !number.starts_with('+') && (number == "0" || !number.starts_with('0'));
        number.parse::<u32>().ok().filter(|number| is_plain && *number < below)
    };
    if let Some(host) = number("mx", world.plan().hosts) {
        return Name::Host(host);
    }
    number("d", world.domains()).map_or(Name::Unknown, Name::Domain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;
    use proptest::prelude::*;

    const EDNS: [u8; 11] = [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0];

    fn world() -> World {
        World::new(Plan { mx_per_domain: 3, domains_per_host: 2, ..Plan::new(40) }).unwrap()
    }

    fn query(name: &str, kind: u16, edns: &[u8]) -> Vec<u8> {
        let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!edns.is_empty())];
        write_name(&mut query, name);
        query.extend_from_slice(&kind.to_be_bytes());
        query.extend_from_slice(&[0, 1]);
        query.extend_from_slice(edns);
        query
    }

    /// Code, flag of truncation, records of the three sections; the records themselves.
    fn ask_with(world: &World, query: &[u8], way: Way) -> (u8, bool, [u16; 3], Vec<u8>) {
        let mut out = Vec::new();
        assert!(answer(world, query, way, &mut out));
        assert_eq!(out.get(..2), query.get(..2));
        let count = |at: usize| u16::from_be_bytes([out[at], out[at + 1]]);
        let question = if count(4) == 1 { query.len() - 11 * usize::from(query[11]) } else { HEADER };
        (out[3] & 15, out[2] & 2 != 0, [6, 8, 10].map(count), out.split_off(question))
    }

    fn ask(name: &str, kind: u16) -> (u8, [u16; 3], Vec<u8>) {
        let (code, _, counts, records) = ask_with(&world(), &query(name, kind, &[]), Way::Udp);
        (code, counts, records)
    }

    #[test]
    fn a_domain_has_the_hosts_of_its_site() {
        let (code, counts, records) = ask("D7.Sim.Example", TYPE_MX);
        assert_eq!((code, counts), (0, [3, 0, 0]));
        let mut expected = Vec::new();
        for (preference, host) in [(10_u8, 3), (20, 4), (30, 5)] {
            expected.extend_from_slice(&[
                0xc0,
                12,
                0,
                15,
                0,
                1,
                0,
                0,
                1,
                44,
                0,
                19,
                0,
                preference,
                3,
                b'm',
                b'x',
                b'0' + host,
            ]);
            expected.extend_from_slice(b"\x03sim\x07example\0");
        }
        assert_eq!(records, expected);
        let world = World::new(Plan { equal_mx: true, mx_per_domain: 2, ..Plan::new(2) }).unwrap();
        let (.., records) = ask_with(&world, &query("d0.sim.example", TYPE_MX, &[]), Way::Udp);
        assert_eq!(records.windows(4).filter(|four| *four == [0, 10, 3, b'm']).count(), 2);
    }

    #[test]
    fn hosts_have_addresses_and_addresses_names() {
        assert_eq!(
            ask("mx39.sim.example", TYPE_A),
            (0, [1, 0, 0], vec![0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 127, 16, 0, 39])
        );
        assert!(ask("39.0.16.127.in-addr.arpa", TYPE_PTR).2.ends_with(b"\x04mx39\x03sim\x07example\0"));
        assert!(ask("1.0.0.127.in-addr.arpa", TYPE_PTR).2.ends_with(b"\x09localhost\0"));
        assert!(ask("sim.example", TYPE_SOA).2.ends_with(&TTL.to_be_bytes()));
        for (name, kind) in [("ns.sim.example", TYPE_A), ("localhost", TYPE_A), ("sim.example", TYPE_NS)] {
            assert_eq!(ask(name, kind).1, [1, 0, 0], "{name}");
        }
    }

    #[test]
    fn what_does_not_exist_is_denied_and_what_has_no_such_record_too() {
        let none = [
            "d80.sim.example",
            "mx40.sim.example",
            "d01.sim.example",
            "d+1.sim.example",
            "d.sim.example",
            "com",
            "a.d0.sim.example",
            "1.0.0.10.in-addr.arpa",
            "1.127.in-addr.arpa",
            "",
        ];
        for name in none.iter().filter(|name| !name.is_empty()) {
            let (code, counts, _) = ask(name, TYPE_A);
            assert_eq!((code, counts), (NO_SUCH_NAME, [0, 1, 0]), "{name}");
        }
        for (name, kind) in [("d0.sim.example", TYPE_A), ("mx0.sim.example", 28), ("mx0.sim.example", TYPE_MX)] {
            let (code, counts, _) = ask(name, kind);
            assert_eq!((code, counts), (0, [0, 1, 0]), "{name}");
        }
    }

    #[test]
    fn what_the_asker_does_not_bear_is_cut() {
        let world = World::new(Plan { mx_per_domain: 16, ..Plan::new(1600) }).unwrap();
        let plain = query("d1599.sim.example", TYPE_MX, &[]);
        assert_eq!(ask_with(&world, &plain, Way::Udp), (0, true, [0, 0, 0], Vec::new()));
        let (_, is_cut, counts, _) = ask_with(&world, &plain, Way::Tcp);
        assert_eq!((is_cut, counts), (false, [16, 0, 0]));
        let (_, is_cut, counts, records) = ask_with(&world, &query("d1599.sim.example", TYPE_MX, &EDNS), Way::Udp);
        assert_eq!((is_cut, counts), (false, [16, 0, 1]));
        assert!(records.ends_with(&[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn what_is_no_question_is_answered_so_or_not_at_all() {
        let good = query("d0.sim.example", TYPE_MX, &[]);
        let changed = |at: usize, octet: u8| {
            let mut query = good.clone();
            query[at] = octet;
            query
        };
        let code = |query: &[u8]| ask_with(&world(), query, Way::Udp).0;
        assert_eq!(code(&changed(2, 0x28)), NOT_IMPLEMENTED);
        for bad in [
            changed(5, 2),
            changed(12, 0xc0),
            changed(12, 0x40),
            changed(good.len() - 1, 3),
            good[..good.len() - 1].to_vec(),
        ] {
            assert_eq!(code(&bad), FORMAT_ERROR, "{bad:?}");
        }
        for none in [changed(2, 0x81), good[..11].to_vec(), Vec::new()] {
            assert!(!answer(&world(), &none, Way::Udp, &mut Vec::new()));
        }
    }

    proptest! {
        #[test]
        fn any_octets_get_a_reply_of_bounded_size_or_none(
            query in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..600),
                ("[a-z0-9.]{0,80}", any::<u16>(), any::<[u8; 11]>()).prop_map(|(name, kind, edns)| query(&name, kind, &edns)),
            ],
        ) {
            let mut out = Vec::new();
            if answer(&world(), &query, Way::Udp, &mut out) {
                prop_assert!(out.len() >= HEADER && out.len() <= usize::from(u16::MAX));
                prop_assert_eq!(out.get(..2), query.get(..2));
                prop_assert!(out[2] & 0x80 != 0);
                if query[11] == 0 {
                    prop_assert!(out.len() <= PLAIN_MAX);
                }
            }
        }
    }
}

//! The time to load maps and to look up keys, and their memory.
//!
//! The command `mailrace-bench maps`: makes a mailertable of as many entries as asked for, as text, as cdb and as a
//! hash file of Berkeley DB, reads each from memory, and looks keys up at random. Nothing is written to a disk. Each
//! figure is the median of some rounds; the machine should be idle, for look-ups wait for memory, which other programs
//! use too.

use route::map::{MapFile, Table, berkeley, cdb};
use std::io::Write as _;
use std::process::ExitCode;

use crate::clock;

/// Measures maps.
#[derive(Clone, Debug, clap::Args)]
pub struct MapsBenchArguments {
    /// Entries of the map
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entries: u32,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// The times of one round of one format.
#[derive(Clone, Copy, Debug)]
struct Round {
    load_ms: f64,
    hit_ns: f64,
    miss_ns: f64,
    bytes_per_entry: f64,
}

/// Keys that are looked up in a round.
const LOOK_UPS: usize = 200_000;

/// Runs the measurements and prints a table.
#[must_use]
pub fn run(arguments: &MapsBenchArguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("maps: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &MapsBenchArguments) -> Result<(), Box<dyn std::error::Error>> {
    let entries: Vec<_> = (0..arguments.entries).map(entry).collect();
    let octets = || entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()));
    let text: Vec<u8> = entries.iter().flat_map(|(key, value)| format!("{key}\t{value}\n").into_bytes()).collect();
    let written = clock::now();
    let constant = cdb::write(octets())?;
    let cdb_ms = milliseconds(written);
    let written = clock::now();
    let hash = berkeley::write_hash(octets())?;
    let hash_ms = milliseconds(written);
    let content: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
    let each = content as f64 / entries.len() as f64;
    say(&format!("{} entries, {each:.1} octets of key and value each", entries.len()));
    say(&format!("written: cdb {cdb_ms:.0} ms, hash {hash_ms:.0} ms"));
    say("format      file MB   load ms   hit ns   miss ns   octets of memory per entry");
    for bytes in [text, constant, hash] {
        let mut rounds = Vec::new();
        let mut format = String::new();
        for number in 0..arguments.rounds {
            let (round, found) = one_round(&bytes, &entries, number)?;
            rounds.push(round);
            format = found;
        }
        let median = |of: fn(&Round) -> f64| {
            let mut figures: Vec<_> = rounds.iter().map(of).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or_default()
        };
        say(&format!(
            "{format:10} {:8.1} {:9.0} {:8.0} {:9.0} {:8.1}",
            bytes.len() as f64 / 1e6,
            median(|round| round.load_ms),
            median(|round| round.hit_ns),
            median(|round| round.miss_ns),
            median(|round| round.bytes_per_entry),
        ));
    }
    Ok(())
}

/// An entry as a large mailertable or virtusertable has it.
fn entry(number: u32) -> (String, String) {
    let scattered = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let key = format!("user{scattered:x}@host{}.example.com", number % 5_000);
    (key, format!("esmtp:[10.{}.{}.{}]", number % 200, number / 200 % 250, scattered % 250))
}

fn one_round(
    bytes: &[u8],
    entries: &[(String, String)],
    number: u32,
) -> Result<(Round, String), Box<dyn std::error::Error>> {
    let reading = MapFile { name: "maps", file: "maps", bytes: bytes.to_vec(), fold: true };
    let started = clock::now();
    let table = Table::read(reading)?.table;
    let load_ms = milliseconds(started);
    // Keys lie in a row, as those of mail that just came in do; their entries are anywhere.
    let mut seed = u64::from(number) + 1;
    let mut any = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(seed >> 33).unwrap_or_default() % entries.len();
        entries.get(at).map(|(key, _)| key.clone()).unwrap_or_default()
    };
    let there: Vec<String> = (0..LOOK_UPS).map(|_| any()).collect();
    let absent: Vec<String> = (0..LOOK_UPS).map(|_| format!("{}x", any())).collect();
    let time = |keys: &[String]| {
        let started = clock::now();
        let found = keys.iter().filter(|key| table.get(key).is_some()).count();
        (found, started.elapsed().as_nanos() as f64 / keys.len() as f64)
    };
    let (hits, hit_ns) = time(&there);
    let (none, miss_ns) = time(&absent);
    if (hits, none, table.len()) != (LOOK_UPS, 0, entries.len()) {
        return Err(format!("{} entries, {hits} hits, {none} hits of absent keys", table.len()).into());
    }
    let bytes_per_entry = table.memory_bytes() as f64 / entries.len() as f64;
    Ok((Round { load_ms, hit_ns, miss_ns, bytes_per_entry }, table.format().to_string()))
}

fn milliseconds(since: std::time::Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Prints a line; a closed pipe is no error of a measurement.
fn say(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}

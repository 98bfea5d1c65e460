//! The fuzz bodies as ordinary tests: every body on every structure of the sample, whole, cut and mutated.

use super::ground::{ground, seeds};
use super::sample::{ROOT, kinds, sample};
use super::*;
use crate::disk::sim::SimDisk;
use std::path::Path;

/// Numbers that follow from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

fn mutate(numbers: &mut Numbers, data: &mut Vec<u8>) {
    for _ in 0..1 + numbers.below(6) {
        let at = numbers.below(data.len());
        match numbers.below(6) {
            0 => data.truncate(at),
            1 if data.len() < 9_000 => data.insert(at, numbers.byte()),
            2 if !data.is_empty() => drop(data.remove(at)),
            3 => {
                // Lengths and counts at their ends do the most harm.
                let value = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)];
                data.iter_mut().skip(at).take(1 + numbers.below(8)).for_each(|byte| *byte = value);
            }
            _ if !data.is_empty() => data[at] ^= 1 << numbers.below(8),
            _ => data.push(numbers.byte()),
        }
    }
}

fn run((name, body): Body, data: &[u8]) {
    let result = std::panic::catch_unwind(|| body(data));
    assert!(result.is_ok(), "{name} on \"{}\"", data.escape_ascii());
}

fn mutated(body: fn(&[u8]), cases: usize) {
    let body = *BODIES.iter().find(|(_, one)| *one as usize == body as usize).expect("a body");
    let seeds = seeds();
    let mut numbers = Numbers(1);
    for _ in 0..cases {
        let mut data = seeds[numbers.below(seeds.len())].clone();
        mutate(&mut numbers, &mut data);
        run(body, &data);
    }
}

#[test]
fn every_structure_and_its_beginnings() {
    for seed in seeds() {
        for body in &BODIES[..12] {
            for cut in (0..seed.len().min(200)).chain([seed.len()]) {
                run(*body, &seed[..cut]);
            }
        }
    }
}

#[test]
fn mutated_structures() {
    for (name, body) in &BODIES[..12] {
        println!("{name}");
        mutated(*body, 8_000);
    }
}

#[test]
fn mutated_segments() {
    let mut numbers = Numbers(2);
    for _ in 0..6_000 {
        let data: Vec<u8> = (0..8 + numbers.below(60)).map(|_| numbers.byte()).collect();
        run(("segment_scan", segment_scan), &data);
    }
}

#[test]
fn mutated_spools() {
    run(("recovery", recovery), &[]);
    let mut numbers = Numbers(3);
    for _ in 0..2_000 {
        let data: Vec<u8> = (0..8 * (1 + numbers.below(4))).map(|_| numbers.byte()).collect();
        if std::env::var("SHOW").is_ok() {
            eprintln!("{}", data.escape_ascii());
        }
        run(("recovery", recovery), &data);
    }
}

#[test]
fn operations_on_a_spool() {
    // Without damage: messages whole and in chunks, results, one given up, a write and a sync that fail.
    run(
        ("recovery", recovery),
        &[0, 254, 0, 9, 1, 200, 2, 7, 3, 0, 5, 2, 1, 5, 4, 0, 6, 0, 0, 3, 6, 1, 1, 9, 3, 0, 0, 8],
    );
    let mut numbers = Numbers(4);
    for _ in 0..500 {
        let operations = (0..2 * (1 + numbers.below(30))).map(|_| numbers.byte());
        run(("recovery", recovery), &[0, 254].into_iter().chain(operations).collect::<Vec<u8>>());
    }
}

/// Opens the sample after `damage` to one of its files, and names the unfinished messages that are gone, or the
/// refusal.
fn after_damage(path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<QueueId>, crate::OpenError> {
    let sample = sample();
    let mut bytes = sample.disk.contents(path).unwrap();
    damage(&mut bytes);
    sample.disk.set_contents(path, &bytes).unwrap();
    let disk = std::sync::Arc::new(sample.disk);
    let (spool, _, _) = crate::Spool::open_stepped(sample.config, disk)?;
    let unfinished = sample.messages.iter().filter(|kept| !kept.is_finished()).map(|kept| kept.envelope.id);
    Ok(unfinished
        .filter(|id| crate::Store::envelope(&spool, *id).and_then(|_| crate::Store::body(&spool, *id)).is_err())
        .collect())
}

/// One bad bit, or a block of zeroes, in the first block of a segment: all that lies behind it is whole.
#[test]
fn a_damaged_first_block_loses_no_message() {
    let mut wrong = Vec::new();
    for (path, _) in sample().disk.files().into_iter().filter(|(path, _)| path.display().to_string().contains("/seg-"))
    {
        let name = path.display();
        for (what, result) in [
            ("magic", after_damage(&path, |bytes| bytes[0] ^= 1)),
            ("version", after_damage(&path, |bytes| bytes[8] ^= 2)),
            ("zeroes", after_damage(&path, |bytes| bytes[..BLOCK].fill(0))),
        ] {
            match result {
                Ok(lost) if lost.is_empty() => {}
                Ok(lost) => wrong.push(format!("{name}: {what}: lost {lost:?}")),
                Err(error) => wrong.push(format!("{name}: {what}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A header of another segment in the place of a header, as a write to the wrong place leaves it.
#[test]
fn a_header_in_the_wrong_file_loses_no_message_of_others() {
    let ours = sample();
    let files: Vec<_> =
        ours.disk.files().into_iter().filter(|(path, _)| path.display().to_string().contains("/seg-")).collect();
    let mut wrong = Vec::new();
    for (from, _) in &files {
        let header = ours.disk.contents(from).unwrap()[..BLOCK].to_vec();
        for (to, _) in files.iter().filter(|(to, _)| to != from) {
            let lost: Vec<_> = after_damage(to, |bytes| bytes[..BLOCK].copy_from_slice(&header)).unwrap();
            let lost: Vec<_> = lost.into_iter().filter(|id| !ground().lies_in[id].contains(to)).collect();
            if !lost.is_empty() {
                wrong.push(format!("{} into {}: lost {lost:?}", from.display(), to.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// After recovery from a power cut, nothing damaged, a tenth of the pool live: there must be room for one more message.
#[test]
fn the_sample_takes_one_more_message() {
    let (sample, recipients) = (sample(), [crate::NewRecipient { data: b"", destination: b"example.org" }]);
    let disk = std::sync::Arc::new(sample.disk.clone());
    let (spool, mut stepper, _) = crate::Spool::open_stepped(sample.config, disk).unwrap();
    let body = crate::NewBody::whole(&b"x"[..], 0);
    let message = crate::NewMessage { reserved: true, ..crate::NewMessage::new(QueueId::MAX, b"", &recipients, body) };
    let commit = crate::Store::append(&spool, message).unwrap();
    for _ in 0..1_000 {
        stepper.commit(0);
        stepper.tidy(0);
        sample.disk.advance(20_000);
    }
    let mut facts = String::new();
    let image = sample.disk.crash_image(0);
    crate::inspect::inspect(&image, Path::new(ROOT), false, &mut |fact| facts.push_str(&format!("{fact}\n"))).unwrap();
    let statistics = crate::Store::statistics(&spool);
    assert_eq!(commit.poll_now(), Some(Ok(())), "{statistics:?}\n{facts}");
}

#[test]
fn the_sample_has_everything_in_it() {
    let sample = sample();
    let kinds = kinds(&sample.disk, Path::new(ROOT)).unwrap();
    assert_eq!(kinds, ["CHUNK", "DONE", "LIVEMAP", "MOVED", "MSG", "MSG-REF", "STATE"]);
    let names: Vec<String> = sample.disk.files().iter().map(|(path, _)| path.display().to_string()).collect();
    assert!(names.iter().any(|name| name.contains("bad-")), "{names:?}");
    assert!(names.len() < 20, "{names:?}");
    assert!(ground().segments().count() > 3);
    // The same on every run.
    let again = sample::sample();
    let contents =
        |disk: &SimDisk| disk.files().iter().map(|(path, _)| disk.contents(path).unwrap()).collect::<Vec<_>>();
    assert!(contents(&again.disk) == contents(&sample.disk));
}

/// The header of one segment is lost, and a block of another one lies behind it.
#[test]
fn a_block_at_the_wrong_place_takes_no_generation_from_its_segment() {
    recovery(b"ecksegment_scanenvelope_sectionewhost2.etimp\0\n");
}

//! Tests that the simulated disk keeps durable bytes, may lose others, and does so by seed.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::medium::SECTOR;
use super::rng::Rng;
use super::*;
use crate::buffer::AlignedBuf;
use crate::disk::{BLOCK, TMP_SUFFIX};

const FILE: &str = "/spool/segment";
const CHOICES: u64 = 200;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn blocks(n: usize) -> u64 {
    (n * BLOCK) as u64
}

fn filled_with(byte: u8, bytes: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(bytes);
    buf.as_mut_slice().fill(byte);
    buf
}

/// A disk with one file, all zeroes.
fn disk_with_file(seed: u64, file_blocks: usize) -> (SimDisk, Box<dyn DiskFile>) {
    let disk = SimDisk::new(seed);
    disk.create_dir(path("/spool")).unwrap();
    disk.create_filled(path(FILE), blocks(file_blocks)).unwrap();
    let file = disk.open(path(FILE), true).unwrap();
    (disk, file)
}

fn write(file: &dyn DiskFile, byte: u8, block: usize, n: usize) -> io::Result<()> {
    file.write_at(&[filled_with(byte, n * BLOCK).as_slice()], blocks(block))
}

/// The first byte of each sector, after a look that the sector is of one piece.
fn sectors(contents: &[u8]) -> Vec<u8> {
    let one = |sector: &[u8]| {
        assert!(sector.iter().all(|b| *b == sector[0]), "a sector is kept wholly or not at all");
        sector[0]
    };
    contents.chunks(SECTOR).map(one).collect()
}

/// Sectors of the file after each of many power cuts.
fn crashes(disk: &SimDisk) -> Vec<Vec<u8>> {
    (0..CHOICES).map(|choice| sectors(&disk.crash_image(choice).contents(path(FILE)).unwrap())).collect()
}

/// Per sector, the versions that a power cut may leave: the last durable one, then all since.
struct Model(Vec<Vec<u8>>);

impl Model {
    fn write(&mut self, byte: u8, block: usize, n: usize) {
        let per_block = BLOCK / SECTOR;
        for versions in &mut self.0[block * per_block..(block + n) * per_block] {
            versions.push(byte);
        }
    }

    fn sync(&mut self) {
        for versions in &mut self.0 {
            versions.drain(..versions.len() - 1);
        }
    }

    fn check(&self, got: &[u8], seed: u64) {
        for (n, (versions, got)) in self.0.iter().zip(got).enumerate() {
            assert!(versions.contains(got), "seed {seed}, sector {n}: {got} is none of {versions:?}");
        }
    }

    fn check_view(&self, got: &[u8], seed: u64) {
        for (n, (versions, got)) in self.0.iter().zip(got).enumerate() {
            assert_eq!(versions.last(), Some(got), "seed {seed}, sector {n}");
        }
    }
}

/// Random writes, syncs and power cuts, also in the middle of an operation, against the model.
#[test]
fn synced_data_survives_every_crash() {
    const BLOCKS: usize = 16;
    for seed in 0..300 {
        let mut rng = Rng::new(seed, 99);
        let (mut disk, mut file) = disk_with_file(seed, BLOCKS);
        let mut model = Model(vec![vec![0]; BLOCKS * BLOCK / SECTOR]);
        for round in 1..=60 {
            match rng.below(12) {
                0..=6 => {
                    let block = rng.index(BLOCKS);
                    let n = 1 + rng.index(BLOCKS - block);
                    write(&*file, round, block, n).unwrap();
                    model.write(round, block, n);
                }
                7..=9 => {
                    file.sync_data().unwrap();
                    model.sync();
                }
                last => {
                    if last == 10 {
                        disk.cut_power_after(0);
                        write(&*file, round, 0, BLOCKS).unwrap_err();
                        model.write(round, 0, BLOCKS);
                    }
                    disk = disk.crash(rng.next());
                    file = disk.open(path(FILE), true).unwrap();
                    let found = sectors(&disk.contents(path(FILE)).unwrap());
                    model.check(&found, seed);
                    model = Model(found.into_iter().map(|byte| vec![byte]).collect());
                }
            }
            model.check_view(&sectors(&disk.contents(path(FILE)).unwrap()), seed);
        }
    }
}

/// The negative control of all the others: without a sync, everything that can be lost is lost for some choice.
#[test]
fn unsynced_data_is_lost_in_every_way() {
    let (disk, file) = disk_with_file(1, 2);
    write(&*file, 1, 0, 2).unwrap();
    file.sync_data().unwrap();
    write(&*file, 2, 0, 1).unwrap();
    write(&*file, 3, 0, 2).unwrap();
    let seen = crashes(&disk);
    let has = |what: &str, found: &dyn Fn(&[u8]) -> bool| assert!(seen.iter().any(|s| found(s)), "{what}");
    has("all lost", &|s| s.iter().all(|b| *b == 1));
    has("all kept", &|s| s.iter().all(|b| *b == 3));
    has("only the first write", &|s| s[..8].iter().all(|b| *b == 2) && s[8..].iter().all(|b| *b == 1));
    has("three versions in one block", &|s| s[..8].iter().collect::<BTreeSet<_>>().len() == 3);
    has("the end without the beginning", &|s| s[..8].iter().all(|b| *b != 3) && s[8..].iter().all(|b| *b == 3));
    has("a write torn within a block", &|s| s[8..].contains(&1) && s[8..].contains(&3));
    has("one sector missing", &|s| s.iter().filter(|b| **b != 3).count() == 1);
}

/// Coin tosses alone would hardly ever lose a long row of writes and keep all others.
#[test]
fn the_usual_patterns_are_frequent() {
    let (disk, file) = disk_with_file(1, 16);
    for block in 0..16 {
        write(&*file, 1, block, 1).unwrap();
    }
    let seen = crashes(&disk);
    let (whole, lost) = ([1; 32].as_slice(), [0; 32].as_slice());
    let often = |what: &str, found: &dyn Fn(&[u8]) -> bool| {
        let count = seen.iter().filter(|s| found(s)).count();
        assert!(count >= 3, "{what}: {count} of {CHOICES}");
    };
    often("a beginning", &|s| s.starts_with(whole) && s.ends_with(lost));
    often("an end", &|s| s.starts_with(lost) && s.ends_with(whole));
    often("all but one block", &|s| s.chunks(8).filter(|block| block.contains(&0)).count() == 1);
    often("one block", &|s| s.chunks(8).filter(|block| block.contains(&1)).count() == 1);
    often("nothing", &|s| !s.contains(&1));
    often("everything", &|s| !s.contains(&0));
}

#[test]
fn sectors_tear_only_if_told() {
    let (disk, file) = disk_with_file(1, 4);
    write(&*file, 1, 0, 4).unwrap();
    crashes(&disk);
    disk.configure(|config| config.torn_sectors = true);
    let torn = (0..CHOICES).any(|choice| {
        let contents = disk.crash_image(choice).contents(path(FILE)).unwrap();
        contents.chunks(SECTOR).any(|sector| sector.contains(&0) && sector.contains(&1))
    });
    assert!(torn);
}

#[test]
fn a_failed_sync_loses_writes_for_good() {
    for direct in [true, false] {
        let (mut lost_later, mut seen_at_once) = (0, 0);
        for seed in 0..100 {
            let (disk, file) = disk_with_file(seed, 4);
            disk.configure(|config| config.direct = direct);
            disk.fail(Op::Sync, 0);
            write(&*file, 1, 0, 4).unwrap();
            assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
            let view = disk.contents(path(FILE)).unwrap();
            file.sync_data().expect("the second sync finds nothing to do");
            let after = disk.crash_image(seed).contents(path(FILE)).unwrap();
            lost_later += u32::from(after.contains(&0));
            seen_at_once += u32::from(view.contains(&0));
            disk.drop_caches();
            assert_eq!(disk.contents(path(FILE)).unwrap(), after, "without a cache, all see the medium");
        }
        assert!(lost_later > 50, "{lost_later} of 100");
        assert_eq!(seen_at_once, if direct { lost_later } else { 0 });
    }
}

#[test]
fn a_failed_write_is_done_in_part() {
    let mut results = BTreeSet::new();
    for seed in 0..100 {
        let (disk, file) = disk_with_file(seed, 4);
        disk.fail(Op::Write, 1);
        write(&*file, 1, 0, 4).unwrap();
        assert_eq!(write(&*file, 2, 0, 4).unwrap_err().raw_os_error(), Some(5));
        let view = sectors(&disk.contents(path(FILE)).unwrap());
        results.insert(view.iter().filter(|b| **b == 2).count());
        write(&*file, 3, 0, 4).unwrap();
        file.sync_data().unwrap();
        assert!(disk.crash(seed).contents(path(FILE)).unwrap().iter().all(|b| *b == 3));
    }
    assert!(results.contains(&0) && results.contains(&32) && results.len() > 5, "{results:?}");
}

#[test]
fn the_same_seeds_give_the_same_disk() {
    let run = |seed, choice| {
        let (disk, file) = disk_with_file(seed, 8);
        disk.configure(|config| config.rates = Rates { read: 0, write: 200_000, sync: 200_000, name: 200_000 });
        let mut results = Vec::new();
        for n in 0..40 {
            results.push(write(&*file, n, usize::from(n % 8), 1).is_ok());
            if n % 5 == 0 {
                results.push(file.sync_data().is_ok());
                results.push(disk.replace_small(path("/spool/head"), &[n; 5000]).is_ok());
            }
        }
        assert!(results.contains(&false) && results.contains(&true));
        let after = disk.crash(choice);
        let contents: Vec<_> = after.files().iter().map(|(path, _)| after.contents(path).unwrap()).collect();
        (results, after.files(), contents, after.now_us())
    };
    assert!(run(1, 1) == run(1, 1));
    assert!(run(1, 1) != run(1, 2));
    assert!(run(1, 1).0 != run(2, 1).0);
}

#[test]
fn damage_is_seen_and_stays() {
    let (disk, file) = disk_with_file(1, 2);
    write(&*file, 7, 0, 2).unwrap();
    file.sync_data().unwrap();
    disk.flip_bit(path(FILE), 5000, 3).unwrap();
    disk.rot(path(FILE), 100..200, 1).unwrap();
    disk.flip_bit(path(FILE), 1 << 40, 0).unwrap();
    let expect = |contents: &[u8]| {
        for (n, byte) in contents.iter().enumerate() {
            match n {
                5000 => assert_eq!(*byte, 7 ^ 8),
                100..200 => assert_ne!(*byte, 7),
                _ => assert_eq!(*byte, 7),
            }
        }
    };
    let mut buf = AlignedBuf::new(2 * BLOCK);
    file.read_at(buf.as_mut_slice(), 0).unwrap();
    expect(buf.as_slice());
    let after = disk.crash(1);
    expect(&after.contents(path(FILE)).unwrap());
    after.lose_file(path(FILE)).unwrap();
    assert_eq!(after.files(), []);
    assert_eq!(after.flip_bit(path(FILE), 0, 0).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn unreadable_ranges_stay_unreadable() {
    let (disk, file) = disk_with_file(1, 3);
    disk.fail_reads_of(path(FILE), blocks(1) + 5..blocks(1) + 6).unwrap();
    let mut buf = AlignedBuf::new(BLOCK);
    let mut read = |file: &dyn DiskFile, block| file.read_at(buf.as_mut_slice(), blocks(block));
    read(&*file, 0).unwrap();
    assert_eq!(read(&*file, 1).unwrap_err().raw_os_error(), Some(5));
    read(&*file, 2).unwrap();
    assert_eq!(read(&*file, 3).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let after = disk.crash(1);
    let file = after.open(path(FILE), false).unwrap();
    assert_eq!(read(&*file, 1).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(write(&*file, 1, 0, 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
    after.clear_faults();
    read(&*file, 1).unwrap();
    after.fail(Op::Read, 0);
    read(&*file, 1).unwrap_err();
    read(&*file, 1).unwrap();
}

#[test]
fn a_full_disk_refuses_new_files() {
    let (disk, file) = disk_with_file(1, 1);
    disk.set_free(blocks(8));
    let full = |result: io::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    full(disk.create_filled(path("/spool/big"), blocks(9)));
    disk.remove(path("/spool/big")).ok();
    disk.create_filled(path("/spool/fits"), blocks(8)).unwrap();
    assert_eq!(disk.space(path("/spool")).unwrap().free, 0);
    full(disk.replace_small(path("/spool/head"), b"x"));
    write(&*file, 1, 0, 1).expect("what was filled can be overwritten");
    disk.remove(path("/spool/fits")).unwrap();
    assert_eq!(disk.space(path("/spool")).unwrap().free, blocks(8));
    disk.replace_small(path("/spool/head"), b"x").unwrap();
}

#[test]
fn a_thin_volume_fills_up_under_writes() {
    let (disk, file) = disk_with_file(1, 8);
    disk.configure(|config| config.thin = true);
    disk.set_free(blocks(4));
    write(&*file, 1, 0, 3).unwrap();
    assert_eq!(disk.space(path("/spool")).unwrap().free, blocks(1));
    write(&*file, 2, 2, 2).unwrap();
    assert_eq!(write(&*file, 3, 4, 2).unwrap_err().kind(), ErrorKind::StorageFull);
    write(&*file, 4, 0, 4).expect("blocks that are there can be overwritten");
}

#[test]
fn power_cut_in_the_middle_of_a_fill() {
    let mut found = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        disk.cut_power_after(0);
        assert_eq!(disk.create_filled(path("/segment"), blocks(64)).unwrap_err().kind(), ErrorKind::Other);
        disk.list(path("/")).unwrap_err();
        let after = disk.crash(seed);
        found.insert(match after.files().first() {
            None => "absent",
            Some((_, 0)) => "empty",
            Some((_, len)) if *len == blocks(64) => "whole",
            Some((_, len)) if len.is_multiple_of(BLOCK as u64) => "partial",
            Some(_) => "partial, within a block",
        });
    }
    assert_eq!(found.len(), 5, "{found:?}");
}

/// Runs `change` on a disk made by `prepare`, cut in its middle, and returns all file lists that crashes leave.
fn outcomes(prepare: impl Fn(&SimDisk), change: impl Fn(&SimDisk) -> io::Result<()>) -> BTreeSet<Vec<(String, u64)>> {
    (0..300)
        .map(|seed| {
            let disk = SimDisk::new(seed);
            prepare(&disk);
            disk.cut_power_after(0);
            change(&disk).unwrap_err();
            let files = disk.crash(seed).files();
            files.into_iter().map(|(path, len)| (path.to_str().unwrap().to_owned(), len)).collect()
        })
        .collect()
}

#[test]
fn power_cut_in_the_middle_of_a_replacement() {
    let head = path("/head");
    let found =
        outcomes(|disk| disk.replace_small(head, &[1; 10_000]).unwrap(), |disk| disk.replace_small(head, &[2; 700]));
    let tmp = format!("/head{TMP_SUFFIX}");
    let mut heads = BTreeSet::new();
    for files in &found {
        for (name, len) in files {
            match name.as_str() {
                "/head" => {
                    heads.insert(*len);
                }
                other => assert_eq!(other, tmp),
            }
        }
        assert!(files.iter().any(|(name, _)| name == "/head"), "never without the file");
    }
    assert_eq!(heads, BTreeSet::from([700, 10_000]), "the old or the new contents");
    assert!(found.iter().any(|files| files.len() == 2), "the prepared file is left over at times");
}

#[test]
fn power_cut_in_the_middle_of_a_rename_and_a_remove() {
    let prepare = |disk: &SimDisk| disk.create_filled(path("/a"), blocks(1)).unwrap();
    let only = |name: &str| vec![(name.to_owned(), blocks(1))];
    let renamed = outcomes(prepare, |disk| disk.rename(path("/a"), path("/b")));
    assert_eq!(renamed, BTreeSet::from([only("/a"), only("/b")]));
    let removed = outcomes(prepare, |disk| disk.remove(path("/a")));
    assert_eq!(removed, BTreeSet::from([only("/a"), vec![]]));
}

#[test]
fn a_failed_change_of_names_is_made_durable_by_the_next() {
    let mut undone = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        disk.create_filled(path("/a"), blocks(1)).unwrap();
        disk.fail(Op::Name, 0);
        disk.rename(path("/a"), path("/b")).unwrap_err();
        let live = disk.files();
        undone += u32::from(disk.crash_image(seed).files() != live);
        disk.create_filled(path("/c"), blocks(1)).unwrap();
        let after = disk.crash(seed).files();
        assert_eq!(after.first(), live.first());
        assert_eq!(after.len(), 2);
    }
    assert!(undone > 5, "{undone}");
}

#[test]
fn directories_and_what_is_in_them() {
    let disk = SimDisk::new(1);
    assert_eq!(disk.create_filled(path("/x/y/f"), 0).unwrap_err().kind(), ErrorKind::NotFound);
    disk.create_dir(path("/x/y")).unwrap();
    disk.create_dir(path("/x/y")).unwrap();
    disk.create_filled(path("/x/y/f"), 0).unwrap();
    assert_eq!(disk.create_filled(path("/x/y/f"), 0).unwrap_err().kind(), ErrorKind::AlreadyExists);
    disk.create_dir(path("/x/y/f/z")).unwrap_err();
    disk.create_filled(path("/x/e"), 0).unwrap();
    let after = disk.crash(1);
    assert_eq!(after.list(path("/x")).unwrap(), ["e", "y"]);
    assert_eq!(after.list(path("/x/y")).unwrap(), ["f"]);
    assert_eq!(after.list(path("/z")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(after.rename(path("/x/e"), path("/x/y")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(after.rename(path("/x/e"), path("/x/y/e")).unwrap_err().kind(), ErrorKind::InvalidInput);
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        disk.fail(Op::Name, 0);
        disk.create_dir(path("/x/y")).unwrap_err();
        disk.create_filled(path("/x/y/f"), 0).ok();
        let after = disk.crash(seed);
        assert_eq!(after.files().is_empty(), after.list(path("/x/y")).map_or(true, |names| names.is_empty()));
    }
}

/// The negative control for everything that uses syncs.
#[test]
fn a_lying_disk_loses_synced_data() {
    let (disk, file) = disk_with_file(1, 4);
    disk.configure(|config| config.lying_sync = true);
    write(&*file, 1, 0, 4).unwrap();
    file.sync_data().unwrap();
    assert!(crashes(&disk).iter().any(|s| s.contains(&0)));
}

#[test]
fn handles_of_before_a_crash_are_dead() {
    let (disk, file) = disk_with_file(1, 1);
    let lock = disk.lock(path("/spool/lock")).unwrap();
    assert_eq!(disk.lock(path("/spool/lock")).err().unwrap().kind(), ErrorKind::WouldBlock);
    let after = disk.crash(1);
    write(&*file, 1, 0, 1).unwrap_err();
    file.sync_data().unwrap_err();
    file.len().unwrap_err();
    disk.set_contents(path(FILE), b"x").unwrap_err();
    disk.open(path(FILE), true).unwrap_err();
    disk.create_dir(path("/other")).unwrap_err();
    let lock_after = after.lock(path("/spool/lock")).unwrap();
    drop((lock, file));
    after.lock(path("/spool/lock")).err().unwrap();
    drop(lock_after);
    after.lock(path("/spool/lock")).unwrap();
    assert!(after.contents(path(FILE)).unwrap().iter().all(|b| *b == 0));
    assert_eq!(disk.crash(1).files(), after.files(), "the dead disk can be asked again");
}

#[test]
fn a_killed_process_loses_nothing_that_was_written() {
    let (disk, file) = disk_with_file(1, 2);
    let lock = disk.lock(path("/spool/lock")).unwrap();
    write(&*file, 1, 0, 2).unwrap();
    let next = disk.kill();
    write(&*file, 2, 0, 2).unwrap_err();
    let file = next.open(path(FILE), true).unwrap();
    assert!(next.contents(path(FILE)).unwrap().iter().all(|b| *b == 1));
    assert!(crashes(&next).iter().any(|s| s.contains(&0)), "but it is not durable");
    file.sync_data().unwrap();
    assert!(crashes(&next).iter().all(|s| !s.contains(&0)));
    next.lock(path("/spool/lock")).unwrap();
    drop(lock);
}

#[test]
fn every_crash_point_can_be_enumerated() {
    let work = |disk: &SimDisk| -> io::Result<()> {
        disk.create_dir(path("/spool"))?;
        disk.create_filled(path(FILE), blocks(2))?;
        let file = disk.open(path(FILE), true)?;
        write(&*file, 1, 0, 2)?;
        file.sync_data()?;
        disk.rename(path(FILE), path("/spool/other"))
    };
    let disk = SimDisk::new(1);
    work(&disk).unwrap();
    assert_eq!(disk.ops(), 5);
    let expected = Counters { writes: 1, bytes_written: blocks(2), syncs: 1, names: 3, ..Counters::default() };
    assert_eq!(disk.counters(), expected);
    for n in 0..5 {
        let disk = SimDisk::new(1);
        disk.cut_power_after(n);
        work(&disk).unwrap_err();
        assert_eq!(disk.ops(), n + 1);
        assert_eq!(disk.crash(1).ops(), 0);
    }
    let disk = SimDisk::new(1);
    disk.cut_power_after(5);
    work(&disk).unwrap();
}

#[test]
fn a_removed_file_lives_as_long_as_its_handle() {
    let (disk, file) = disk_with_file(1, 1);
    disk.remove(path(FILE)).unwrap();
    write(&*file, 1, 0, 1).unwrap();
    file.sync_data().unwrap();
    let mut buf = AlignedBuf::new(BLOCK);
    file.read_at(buf.as_mut_slice(), 0).unwrap();
    assert_eq!(buf.as_slice(), [1; BLOCK]);
    assert_eq!(disk.files(), []);
    assert_eq!(write(&*file, 1, 1, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn contents_can_be_put_and_taken() {
    let disk = SimDisk::new(1);
    let fixture: Vec<u8> = (0..3 * BLOCK + 17).map(|n| u8::try_from(n % 251).unwrap()).collect();
    disk.set_contents(path("/a/b/old"), &fixture).unwrap();
    assert_eq!(disk.list(path("/a/b")).unwrap(), ["old"]);
    let file = disk.open(path("/a/b/old"), false).unwrap();
    assert_eq!(file.len().unwrap(), fixture.len() as u64);
    let mut buf = AlignedBuf::new(BLOCK);
    file.read_at(buf.as_mut_slice(), blocks(2)).unwrap();
    assert_eq!(buf.as_slice(), &fixture[2 * BLOCK..3 * BLOCK]);
    assert_eq!(file.read_at(buf.as_mut_slice(), blocks(3)).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    disk.set_contents(path("/a/b/old"), &fixture[..BLOCK + 1]).unwrap();
    assert_eq!(file.len().unwrap(), blocks(1) + 1);
    let after = disk.crash(1);
    assert_eq!(after.contents(path("/a/b/old")).unwrap(), fixture[..BLOCK + 1]);
    assert_eq!(after.read_small(path("/a/b/old")).unwrap(), fixture[..BLOCK + 1]);
}

#[test]
fn time_is_what_operations_cost() {
    let (disk, file) = disk_with_file(1, 256);
    disk.configure(|config| config.costs = Costs::NONE);
    let start = disk.now_us();
    write(&*file, 1, 0, 256).unwrap();
    file.sync_data().unwrap();
    disk.advance(5);
    assert_eq!(disk.now_us(), start + 5);
    disk.configure(|config| config.costs = Costs::default());
    write(&*file, 1, 0, 256).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.now_us(), start + 5 + 20 + 1000 + 100);
    assert!(disk.crash(1).now_us() >= start + 1125);
}

/// Keeps the simulator fit for its use: property tests that look at thousands of crash points.
#[test]
fn crash_images_are_cheap() {
    let (disk, file) = disk_with_file(1, 256);
    for n in 0..32 {
        write(&*file, n, usize::from(n) * 8, 8).unwrap();
    }
    let clock = crate::disk::real::RealDisk::new();
    let mut buf = AlignedBuf::new(BLOCK);
    for choice in 0..2000 {
        let after = disk.crash_image(choice);
        after.open(path(FILE), false).unwrap().read_at(buf.as_mut_slice(), 0).unwrap();
    }
    println!("2000 crash images of 1 MiB unsynced in {} µs", clock.now_us());
}

//! The real disk, on the file system of the machine's temporary directory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of its own for one test, removed at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("mailrace-disk-{}-{n}", std::process::id()));
        RealDisk::new().create_dir(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn filled_with(byte: u8, bytes: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(bytes);
    buf.as_mut_slice().fill(byte);
    buf
}

#[test]
fn written_blocks_read_back() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let path = dir.file("segment");
    disk.create_filled(&path, 16 * BLOCK as u64).unwrap();
    let file = disk.open(&path, true).unwrap();
    assert_eq!(file.len().unwrap(), 16 * BLOCK as u64);

    let (a, b) = (filled_with(1, BLOCK), filled_with(2, 2 * BLOCK));
    file.write_at(&[a.as_slice(), b.as_slice()], 3 * BLOCK as u64).unwrap();
    file.sync_data().unwrap();

    let mut got = AlignedBuf::new(16 * BLOCK);
    disk.open(&path, false).unwrap().read_at(got.as_mut_slice(), 0).unwrap();
    for (n, block) in got.as_slice().chunks(BLOCK).enumerate() {
        let expected = match n {
            3 => 1,
            4 | 5 => 2,
            _ => 0,
        };
        assert!(block.iter().all(|&b| b == expected), "block {n}");
    }
}

#[test]
fn more_slices_than_one_call_takes() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let path = dir.file("segment");
    let blocks = 2 * SLICES_MAX + 3;
    disk.create_filled(&path, (blocks * BLOCK) as u64).unwrap();
    let file = disk.open(&path, true).unwrap();
    let patterns: Vec<AlignedBuf> = (0..7).map(|n| filled_with(n, BLOCK)).collect();
    let bufs: Vec<&[u8]> = (0..blocks).map(|n| patterns[n % 7].as_slice()).collect();
    file.write_at(&bufs, 0).unwrap();
    let mut got = AlignedBuf::new(blocks * BLOCK);
    file.read_at(got.as_mut_slice(), 0).unwrap();
    assert!(got.as_slice().chunks(BLOCK).zip(&bufs).all(|(got, wrote)| got == *wrote));
}

#[test]
fn direct_where_the_file_system_is() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let space = disk.space(&dir.0).unwrap();
    assert!(space.free <= space.total);
    assert_eq!(disk.list(&dir.0).unwrap(), Vec::<String>::new(), "the probe leaves nothing");
    if !space.direct {
        println!("skipped: no O_DIRECT on {}", space.file_system);
        return;
    }
    let path = dir.file("segment");
    disk.create_filled(&path, BLOCK as u64).unwrap();
    let file = File::open(&path).unwrap();
    assert!(make_direct(&file));
    assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(OFlags::DIRECT));
    let unaligned = &mut AlignedBuf::new(2 * BLOCK);
    let odd = unaligned.as_mut_slice().get_mut(1..=BLOCK).unwrap();
    let answer = file.read_at(odd, 0);
    println!("{}: unaligned direct read answers {answer:?}", space.file_system);
}

/// Blocks that are only reserved show as a hole; each first write into one would cost a journal commit.
#[test]
fn a_filled_file_has_no_unwritten_blocks() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let bytes = 3 * FILL_BYTES as u64 + BLOCK as u64;
    let hole = |path: &Path| rustix::fs::seek(File::open(path).unwrap(), rustix::fs::SeekFrom::Hole(0)).unwrap();

    let reserved = dir.file("reserved");
    let file = File::create(&reserved).unwrap();
    let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
    if allocated.is_err() || hole(&reserved) != 0 {
        println!("skipped: this file system does not show unwritten blocks");
        return;
    }
    let filled = dir.file("filled");
    disk.create_filled(&filled, bytes).unwrap();
    assert_eq!(hole(&filled), bytes);
    assert_eq!(std::fs::metadata(&filled).unwrap().len(), bytes);
}

#[test]
fn create_filled_refuses_an_existing_name_and_cleans_up() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let path = dir.file("segment");
    disk.create_filled(&path, BLOCK as u64).unwrap();
    assert_eq!(disk.create_filled(&path, BLOCK as u64).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let huge = dir.file("huge");
    let e = disk.create_filled(&huge, 1 << 60).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::FileTooLarge), "{e}");
    assert_eq!(disk.list(&dir.0).unwrap(), ["segment"]);
}

#[test]
fn the_end_of_a_file_is_its_end() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let path = dir.file("segment");
    disk.create_filled(&path, 2 * BLOCK as u64).unwrap();
    let file = disk.open(&path, true).unwrap();
    let mut buf = filled_with(9, 2 * BLOCK);
    assert_eq!(file.write_at(&[buf.as_slice()], BLOCK as u64).unwrap_err().kind(), ErrorKind::InvalidInput);
    for offset in [BLOCK as u64, 1 << 40, u64::MAX - BLOCK as u64 + 1] {
        assert_eq!(file.read_at(buf.as_mut_slice(), offset).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
    file.read_at(buf.as_mut_slice(), 0).unwrap();
    assert!(buf.as_slice().iter().all(|&b| b == 0));
}

#[test]
fn small_files_are_replaced_whole() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let path = dir.file("head");
    assert_eq!(disk.read_small(&path).unwrap_err().kind(), ErrorKind::NotFound);
    disk.replace_small(&path, b"a longer first text").unwrap();
    std::fs::write(tmp_of(&path), "left over by a crash, and longer than what comes").unwrap();
    disk.replace_small(&path, b"second").unwrap();
    assert_eq!(disk.read_small(&path).unwrap(), b"second");
    assert_eq!(disk.list(&dir.0).unwrap(), ["head"]);
}

#[test]
fn renames_never_replace() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    disk.replace_small(&dir.file("a"), b"a").unwrap();
    disk.replace_small(&dir.file("b"), b"b").unwrap();
    assert_eq!(disk.rename(&dir.file("a"), &dir.file("b")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(disk.rename(&dir.file("x"), &dir.file("y")).unwrap_err().kind(), ErrorKind::NotFound);
    disk.rename(&dir.file("a"), &dir.file("c")).unwrap();
    assert_eq!(disk.list(&dir.0).unwrap(), ["b", "c"]);
    let elsewhere = dir.file("sub").join("c");
    assert_eq!(disk.rename(&dir.file("c"), &elsewhere).unwrap_err().kind(), ErrorKind::InvalidInput);
    disk.remove(&dir.file("b")).unwrap();
    assert_eq!(disk.list(&dir.0).unwrap(), ["c"]);
    assert_eq!(disk.remove(&dir.file("b")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn directories_are_made_with_their_parents() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    let deep = dir.file("a").join("b").join("c");
    disk.create_dir(&deep).unwrap();
    disk.create_dir(&deep).unwrap();
    assert!(deep.is_dir());
    disk.replace_small(&dir.file("file"), b"").unwrap();
    disk.create_dir(&dir.file("file").join("x")).unwrap_err();
}

#[test]
fn a_file_in_the_place_of_a_directory_is_named() {
    let dir = TempDir::new();
    let file = dir.file("spool");
    std::fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below")] {
        let said = RealDisk::new().create_dir(&path).unwrap_err().to_string();
        assert_eq!(said, format!("{} is no directory; move it away, or name another path", file.display()));
    }
}

#[test]
fn one_holder_of_the_lock() {
    let dir = TempDir::new();
    let path = dir.file("lock");
    let held = RealDisk::new().lock(&path).unwrap();
    let e = RealDisk::new().lock(&path).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::WouldBlock);
    let pid = std::process::id().to_string();
    assert_eq!(e.to_string(), format!("process {pid}"));
    let said = crate::spool::take_lock(&dir.0, &RealDisk::new()).err().unwrap().to_string();
    assert_eq!(said, format!("{}: the spool is in use by process {pid}; stop that process first", path.display()));
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), pid);
    drop(held);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    RealDisk::new().lock(&path).unwrap();
}

#[test]
fn memory_is_volatile() {
    let shm = Path::new("/dev/shm");
    let disk = RealDisk::new();
    match disk.space(shm) {
        Ok(space) if space.file_system == "tmpfs" => {
            assert!(space.volatile);
            assert!(!space.direct);
            let dir = TempDir::within(shm);
            disk.create_filled(&dir.file("segment"), 2 * BLOCK as u64).unwrap();
            let file = disk.open(&dir.file("segment"), true).unwrap();
            let mut buf = filled_with(3, BLOCK);
            file.write_at(&[buf.as_slice()], BLOCK as u64).unwrap();
            file.sync_data().unwrap();
            file.read_at(buf.as_mut_slice(), BLOCK as u64).unwrap();
            assert!(buf.as_slice().iter().all(|&b| b == 3));
        }
        other => println!("skipped: /dev/shm is not a tmpfs here: {other:?}"),
    }
    let space = disk.space(&std::env::temp_dir()).unwrap();
    if ["ext4", "xfs"].contains(&space.file_system.as_str()) {
        assert!(!space.copy_on_write);
    }
}

#[test]
fn short_slices_are_asked_for_without_harm() {
    std::thread::spawn(|| match shorten_slice() {
        Ok(()) => {}
        Err(e) => println!("the system refused: {e}"),
    })
    .join()
    .expect("the thread lives on with whatever slice it has");
}

#[test]
fn time_does_not_go_back() {
    let disk = RealDisk::new();
    let before = disk.now_us();
    assert!(disk.now_us() >= before);
}

/// A device that takes at most `step` bytes a call.
struct Slow {
    bytes: Vec<u8>,
    step: usize,
    calls: u32,
}

impl Slow {
    fn write(&mut self, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.calls += 1;
        assert!(slices.len() <= SLICES_MAX);
        if self.calls.is_multiple_of(3) {
            return Err(ErrorKind::Interrupted.into());
        }
        let at = usize::try_from(at).unwrap();
        assert_eq!(at % BLOCK, 0, "direct writes go on at a block");
        let mut n = 0;
        for byte in slices.iter().flat_map(|s| s.iter()).take(self.step) {
            self.bytes[at + n] = *byte;
            n += 1;
        }
        Ok(n)
    }
}

#[test]
fn short_writes_go_on_at_a_block() {
    let patterns: Vec<AlignedBuf> = (1..8).map(|n| filled_with(n, BLOCK * usize::from(n % 3 + 1))).collect();
    let bufs: Vec<&[u8]> = patterns.iter().map(AlignedBuf::as_slice).collect();
    let all: Vec<u8> = bufs.concat();
    for step in [BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 3 * BLOCK + 512, usize::MAX] {
        let mut slow = Slow { bytes: vec![0; BLOCK + all.len()], step, calls: 0 };
        write_all(&bufs, BLOCK as u64, |slices, at| slow.write(slices, at)).unwrap();
        assert!(slow.bytes[BLOCK..] == all, "step {step}");
    }
    for step in [0, 512] {
        let mut slow = Slow { bytes: vec![0; BLOCK + all.len()], step, calls: 0 };
        let e = write_all(&bufs, 0, |slices, at| slow.write(slices, at)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::WriteZero);
    }
}

#[test]
fn short_reads_go_on_at_a_block() {
    let medium: Vec<u8> = (0..8 * BLOCK).map(|n| u8::try_from(n / 512).unwrap()).collect();
    for step in [BLOCK, BLOCK + 1, 3 * BLOCK - 512] {
        let mut buf = vec![0; 6 * BLOCK];
        read_all(&mut buf, BLOCK as u64, |part, at| {
            let at = usize::try_from(at).unwrap();
            assert_eq!(at % BLOCK, 0);
            let n = part.len().min(step);
            part[..n].copy_from_slice(&medium[at..at + n]);
            Ok(n)
        })
        .unwrap();
        assert!(buf == medium[BLOCK..7 * BLOCK], "step {step}");
    }
    let mut buf = vec![0; 2 * BLOCK];
    let e =
        read_all(&mut buf, 0, |part, at| Ok((BLOCK + 512 - usize::try_from(at).unwrap()).min(part.len()))).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
}

#[test]
#[should_panic(expected = "not a multiple")]
fn odd_offsets_are_a_bug() {
    let dir = TempDir::new();
    let disk = RealDisk::new();
    disk.create_filled(&dir.file("segment"), BLOCK as u64).unwrap();
    disk.open(&dir.file("segment"), false).unwrap().read_at(AlignedBuf::new(BLOCK).as_mut_slice(), 512).unwrap();
}

//! A simulated disk that asks the test before each call that counts.
//!
//! The hook may count, refuse the call, or use the spool meanwhile: calls made from inside it reach it again. It runs
//! on the thread that makes the call, on several at once if there are several.

use spool::disk::sim::SimDisk;
use spool::disk::{Disk, DiskFile, Space};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A call that the hook is asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Read,
    Write,
    Sync,
    Open,
    Create,
    Rename,
}

type Hook = Arc<dyn Fn(Call, &Path) -> io::Result<()> + Send + Sync>;

#[derive(Clone)]
pub struct HookedDisk {
    disk: SimDisk,
    hook: Arc<Mutex<Option<Hook>>>,
}

struct HookedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    disk: HookedDisk,
}

impl HookedDisk {
    pub fn new(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), hook: Arc::default() }
    }

    /// From now on the hook decides whether a call is made.
    pub fn set(&self, hook: impl Fn(Call, &Path) -> io::Result<()> + Send + Sync + 'static) {
        *self.hook.lock().expect("sound") = Some(Arc::new(hook));
    }

    /// From now on every call of this kind below a path that contains `part` fails.
    pub fn fail(&self, kind: Call, part: &'static str) {
        self.set(move |call, path| if call == kind && below(path, part) { Err(failure()) } else { Ok(()) });
    }

    pub fn clear(&self) {
        *self.hook.lock().expect("sound") = None;
    }

    fn ask(&self, call: Call, path: &Path) -> io::Result<()> {
        let hook = self.hook.lock().expect("sound").clone();
        hook.map_or(Ok(()), |hook| hook(call, path))
    }
}

pub fn failure() -> io::Error {
    io::Error::other("refused by the test")
}

pub fn below(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

impl fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookedDisk")
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedFile").field(&self.path).finish()
    }
}

impl DiskFile for HookedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.ask(Call::Read, &self.path)?;
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.disk.ask(Call::Write, &self.path)?;
        self.file.write_at(bufs, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.disk.ask(Call::Sync, &self.path)?;
        self.file.sync_data()
    }
}

impl Disk for HookedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn open(&self, path: &Path, write: bool) -> io::Result<Box<dyn DiskFile>> {
        self.ask(Call::Open, path)?;
        let file = self.disk.open(path, write)?;
        Ok(Box::new(HookedFile { file, path: path.to_owned(), disk: self.clone() }))
    }
    fn create_filled(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.ask(Call::Create, path)?;
        self.disk.create_filled(path, bytes)
    }
    fn read_small(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read_small(path)
    }
    fn replace_small(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.disk.replace_small(path, contents)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(Call::Rename, from)?;
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(path)
    }
    fn now_us(&self) -> u64 {
        self.disk.now_us()
    }
}

//! The operations that change names, step by step.
//!
//! Each does its steps in the order of `real`, because recovery must handle a power cut between two of them.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

use super::{DiskState, Fate};
use crate::disk::sim::Op;
use crate::disk::sim::medium::{Image, Inode};
use crate::disk::sim::tree::NameChange;
use crate::disk::{BLOCK, dir_of, tmp_of};

impl DiskState {
    pub(in crate::disk::sim) fn create_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.alive()?;
        let mut missing: Vec<&Path> = Vec::new();
        for dir in dir.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            if self.tree.live.files.contains_key(dir) {
                return Err(io::Error::new(ErrorKind::NotADirectory, format!("{} is a file", dir.display())));
            }
            if !self.tree.live.has_dir(dir) {
                missing.push(dir);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let fate = self.begin(Op::Name, 0)?;
        let steps = self.steps(fate, 2 * missing.len() as u64);
        for (n, dir) in (0..).zip(missing.into_iter().rev()) {
            if steps > 2 * n {
                self.tree.change(NameChange::MakeDir(dir.to_owned()));
            }
            if steps > 2 * n + 1 {
                self.commit(dir_of(dir));
            }
        }
        fate.result()
    }

    pub(in crate::disk::sim) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.alive()?;
        self.dir_must_exist(dir)?;
        let names = &self.tree.live;
        let here = names.files.keys().chain(&names.dirs).filter(|path| dir_of(path) == dir);
        let mut list: Vec<String> =
            here.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
        list.sort_unstable();
        Ok(list)
    }

    pub(in crate::disk::sim) fn create_filled(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        self.alive()?;
        self.name_must_be_new(path)?;
        let fate = self.begin(Op::Name, 0)?;
        let free = self.free();
        let full = !self.config.thin && bytes > free;
        let steps = if full { self.rng.below(3) } else { self.steps(fate, 5) };
        if steps >= 1 {
            let id = self.add_inode(Inode::default());
            self.tree.change(NameChange::Link(path.to_owned(), id));
            let partly = self.rng.below(bytes.min(free) / BLOCK as u64 + 1) * BLOCK as u64;
            match steps {
                1 => {}
                2 => self.inode(id).view.len = partly,
                _ => self.inode(id).view.len = bytes,
            }
            if steps >= 4 {
                self.settle(id);
            }
        }
        if steps >= 5 {
            self.commit(dir_of(path));
        }
        if full && fate == Fate::Whole { Err(Errno::NOSPC.into()) } else { fate.result() }
    }

    pub(in crate::disk::sim) fn replace_small(&mut self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.alive()?;
        self.dir_must_exist(dir_of(path))?;
        let fate = self.begin(Op::Name, 0)?;
        let full = (contents.len() as u64).next_multiple_of(BLOCK as u64) > self.free();
        let steps = if full { self.rng.below(3) } else { self.steps(fate, 6) };
        let tmp = tmp_of(path);
        if steps >= 1 {
            let id = self.add_inode(Inode::default());
            self.tree.change(NameChange::Link(tmp.clone(), id));
            let inode = self.inodes.get_mut(&id).expect("just added");
            match steps {
                1 => {}
                2 => inode.write_small(contents, Some(&mut self.rng)),
                _ => inode.write_small(contents, None),
            }
            if steps >= 4 {
                self.settle(id);
            }
        }
        if steps >= 5 {
            self.tree.change(NameChange::Rename(tmp, path.to_owned()));
        }
        if steps >= 6 {
            self.commit(dir_of(path));
        }
        if full && fate == Fate::Whole { Err(Errno::NOSPC.into()) } else { fate.result() }
    }

    pub(in crate::disk::sim) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?;
        if dir_of(from) != dir_of(to) {
            let text = format!("{} and {} are in different directories", from.display(), to.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        self.id(from)?;
        self.name_must_be_new(to)?;
        self.one_change(NameChange::Rename(from.to_owned(), to.to_owned()), dir_of(to))
    }

    pub(in crate::disk::sim) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.id(path)?;
        self.one_change(NameChange::Unlink(path.to_owned()), dir_of(path))
    }

    fn one_change(&mut self, change: NameChange, dir: &Path) -> io::Result<()> {
        let fate = self.begin(Op::Name, 0)?;
        let steps = self.steps(fate, 2);
        if steps >= 1 {
            self.tree.change(change);
        }
        if steps >= 2 {
            self.commit(dir);
        }
        fate.result()
    }

    pub(in crate::disk::sim) fn read_small(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.alive()?;
        let id = self.id(path)?;
        self.begin(Op::Read, 0)?.result()?;
        let inode = self.inode(id);
        if inode.bad.is_empty() { Ok(inode.view.bytes()) } else { Err(Errno::IO.into()) }
    }

    pub(in crate::disk::sim) fn lock(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.dir_must_exist(dir_of(path))?;
        if !self.locks.insert(path.to_owned()) {
            return Err(io::Error::new(ErrorKind::WouldBlock, "another process of the simulation"));
        }
        if self.id(path).is_err() {
            let id = self.add_inode(Inode::of(Image::of(b"1\n")));
            self.tree.change_for_good(&NameChange::Link(path.to_owned(), id));
        }
        Ok(())
    }

    pub(in crate::disk::sim) fn unlock(&mut self, path: &Path) {
        self.locks.remove(path);
    }
}

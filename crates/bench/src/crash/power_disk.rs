//! `mailrace-bench power-disk`: the disk of the rigs for programs that this crate does not start, as cluster nodes.
//!
//! Each directory gets an ext4 on a disk in memory. The command takes lines on standard input and gives one answer for
//! each, `ok …` or `error …`; the first answer comes when all is mounted, or cannot be:
//!
//! - `cut SEED [DIRECTORY…]` cuts the power of these disks, or of all. Their requests fail from then on; a caller kills
//!   the programs on them. The answer has for each the mode (`cut`), the unflushed sectors that survive, and all
//!   unflushed ones.
//! - `mount [DIRECTORY…]` mounts what survived, as after a reboot, in place of what has no power.
//!
//! The end of the input, or of the process, unmounts and forgets them. The directories stay.

use crate::crash::cut::Survivors;
use crate::crash::device::Delays;
use crate::crash::disk::{Drive, FuseDisk, Mounted};
use crate::crash::host::{Stop, Workplace};
use crate::crash::random::Random;
use clap::Args;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The disks, and how they behave.
#[derive(Args, Clone, Debug)]
pub struct PowerDiskArguments {
    /// Existing directories without blanks in their names; each gets a disk
    #[arg(required = true, value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    /// Size of each disk in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    size: u64,
    /// Milliseconds that a flush takes. A slow one has more writes pending when the power is cut
    #[arg(long, value_name = "MS", default_value_t = 5)]
    flush: u64,
    /// Unflushed sectors that survive each cut: none, all, half, newest, oldest; without it the seed of the cut chooses
    #[arg(long, value_parser = parse_survivors)]
    survivors: Option<Survivors>,
    /// Answers flushes and makes nothing durable by them. A control of the caller: it must notice lost data then
    #[arg(long)]
    ignore_flushes: bool,
}

fn parse_survivors(name: &str) -> Result<Survivors, String> {
    Survivors::from_name(name).ok_or_else(|| "none, all, half, newest or oldest".to_owned())
}

/// Mounts the disks and carries out commands until the input ends.
///
/// # Errors
/// The disks cannot be had here (the first answer says why), or the input or output breaks.
pub(crate) fn run(arguments: PowerDiskArguments, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut disks = match PowerDisks::mount(arguments) {
        Ok(disks) => disks,
        Err(stop) => {
            answer(&mut output, Err(stop))?;
            return Err(io::Error::other("there are no disks"));
        }
    };
    answer(&mut output, Ok("ready".to_owned()))?;
    for line in input.lines() {
        let result = disks.obey(&line?);
        answer(&mut output, result)?;
    }
    Ok(())
}

fn answer(output: &mut impl Write, result: Result<String, Stop>) -> io::Result<()> {
    let text = match result {
        Ok(text) => format!("ok {text}"),
        Err(stop) => format!("error {stop}"),
    };
    // Programs complain in several lines.
    writeln!(output, "{}", text.trim_end().replace('\n', "; "))?;
    output.flush()
}

/// All disks. The process behind them lives as long as one of them.
struct PowerDisks {
    disks: Vec<PowerDisk>,
    server: Arc<FuseDisk>,
    arguments: PowerDiskArguments,
}

/// A disk; `surviving` is there while it has no power, `mounted` unless mounting failed.
struct PowerDisk {
    directory: PathBuf,
    mounted: Option<Mounted>,
    surviving: Option<Drive>,
}

impl PowerDisks {
    fn mount(arguments: PowerDiskArguments) -> Result<Self, Stop> {
        let server = FuseDisk::start(&Arc::new(Workplace::new()?))?;
        let mut all = Self { disks: Vec::new(), server, arguments };
        for directory in all.arguments.directories.clone() {
            if directory.to_string_lossy().contains(char::is_whitespace) {
                return Err(Stop::Broken(format!("{} has a blank, which ends a word", directory.display())));
            }
            let mounted = all.server.create_at(&directory, all.arguments.size << 20)?;
            all.set_behaviour(&mounted)?;
            all.disks.push(PowerDisk { directory, mounted: Some(mounted), surviving: None });
        }
        Ok(all)
    }

    /// The disk behaves as asked for. Not before it is mounted: making and replaying a journal are not under test.
    fn set_behaviour(&self, mounted: &Mounted) -> Result<(), Stop> {
        let flush = Duration::from_millis(self.arguments.flush);
        mounted.drive().set_delays(Delays { flush, ..Delays::default() })?;
        if self.arguments.ignore_flushes { mounted.drive().ignore_flushes() } else { Ok(()) }
    }

    fn obey(&mut self, line: &str) -> Result<String, Stop> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["cut", seed, ref directories @ ..] => {
                let seed = seed.parse().map_err(|_| Stop::Broken(format!("the seed {seed:?} is not a number")))?;
                self.cut(seed, &self.chosen(directories)?)
            }
            ["mount", ref directories @ ..] => {
                for index in self.chosen(directories)? {
                    self.mount_surviving(index)?;
                }
                Ok(String::new())
            }
            _ => Err(Stop::Broken(format!("{line:?} is not cut SEED [DIRECTORY...] or mount [DIRECTORY...]"))),
        }
    }

    /// The positions of the disks at these directories, or of all.
    fn chosen(&self, directories: &[&str]) -> Result<Vec<usize>, Stop> {
        if directories.is_empty() {
            return Ok((0..self.disks.len()).collect());
        }
        let find = |directory: &&str| {
            let found = self.disks.iter().position(|disk| disk.directory == Path::new(directory));
            found.ok_or_else(|| Stop::Broken(format!("no disk is at {directory:?}")))
        };
        directories.iter().map(find).collect()
    }

    fn cut(&mut self, seed: u64, chosen: &[usize]) -> Result<String, Stop> {
        let is_chosen = |(index, disk)| chosen.contains(&index).then_some(disk);
        let mut disks: Vec<&mut PowerDisk> = self.disks.iter_mut().enumerate().filter_map(is_chosen).collect();
        if let Some(off) = disks.iter().find(|disk| disk.surviving.is_some() || disk.mounted.is_none()) {
            return Err(Stop::Broken(format!("the disk at {} has no power", off.directory.display())));
        }
        // All at once; what survives can be computed later, because these disks change no more.
        self.server.cut_power(disks.iter().filter_map(|disk| disk.mounted.as_ref()).map(Mounted::drive))?;
        let mut random = Random::new(seed);
        let mut said = Vec::new();
        for disk in &mut disks {
            let survivors = Survivors::pick(&mut random);
            let survivors = self.arguments.survivors.unwrap_or(survivors);
            let Some(mounted) = &disk.mounted else { continue };
            let (drive, image) = mounted.drive().image(survivors, random.next())?;
            disk.surviving = Some(drive);
            said.push(format!("{} {} {}/{}", disk.directory.display(), survivors.name(), image.kept, image.pending));
        }
        Ok(said.join(", "))
    }

    fn mount_surviving(&mut self, index: usize) -> Result<(), Stop> {
        let Some(disk) = self.disks.get_mut(index) else { return Ok(()) };
        let Some(drive) = disk.surviving.take() else {
            return Err(Stop::Broken(format!("the disk at {} was not cut", disk.directory.display())));
        };
        // The dead file system goes first; its disk is forgotten with it.
        drop(disk.mounted.take());
        let mounted = drive.mount_at(&disk.directory)?;
        self.set_behaviour(&mounted)?;
        if let Some(disk) = self.disks.get_mut(index) {
            disk.mounted = Some(mounted);
        }
        Ok(())
    }
}

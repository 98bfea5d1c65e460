//! The process that holds the devices: FUSE on one side, lines of commands on the other.
//!
//! A process of its own for a reason: the one that answers FUSE requests must never wait for the file systems on top of
//! them. If it did and were killed, its threads would wait in the kernel for answers that only it could give, and
//! neither would end. So the rig that mounts, writes and checks is another process; when it dies, by any signal, this
//! one reads the end of its input and ends.
//!
//! One command a line, one answer a line, `ok …` or `error …`:
//! `new BYTES` → number; `image NUMBER SURVIVORS SEED` → number, sectors pending, sectors kept; `drop NUMBER`;
//! `off NUMBER…` cuts the power of all of them; `ignore-flushes NUMBER`;
//! `delay NUMBER FLUSH_US WRITE_US`; `fault NUMBER read|write|flush SKIP TIMES FROM-TO…`; `clear NUMBER`;
//! `counts NUMBER` → reads, writes, bytes written, flushes, failed.

use crate::crash::cut::Survivors;
use crate::crash::device::{Delays, Device, Fault, Operation};
use crate::crash::fuse::{Devices, Images};
use fuser::{Config, MountOption};
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Requests answered at the same time; a slow flush takes one of them, and six devices may have two each.
const THREADS: usize = 16;
/// The most memory one device may take.
const DEVICE_BYTES_MAX: u64 = 8 << 30;

/// Serves devices below `mount_point` until the input ends.
///
/// # Errors
/// The file system cannot be mounted, or the input or output breaks.
pub(crate) fn serve(mount_point: &Path, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let devices = Devices::default();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("mailrace-crash".to_owned())];
    config.n_threads = Some(THREADS);
    let session = fuser::spawn_mount(Images::new(devices.clone()), mount_point, &config)?;
    writeln!(output, "ok ready")?;
    output.flush()?;
    let mut server = DeviceServer { devices, next: 0 };
    for line in input.lines() {
        match server.answer(&line?) {
            Ok(answer) => writeln!(output, "ok {answer}")?,
            Err(reason) => writeln!(output, "error {reason}")?,
        }
        output.flush()?;
    }
    drop(session);
    Ok(())
}

struct DeviceServer {
    devices: Devices,
    next: u64,
}

impl DeviceServer {
    fn answer(&mut self, line: &str) -> Result<String, &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["new", bytes] => {
                let bytes = number(bytes)?;
                if bytes > DEVICE_BYTES_MAX {
                    return Err("device too large");
                }
                Ok(self.add(Device::new(bytes)).to_string())
            }
            ["image", device, survivors, seed] => {
                let survivors =
                    Survivors::from_name(survivors).ok_or("survivors are none, all, half, newest, oldest")?;
                let (image, cut) = self.device(device)?.image(survivors, number(seed)?);
                Ok(format!("{} {} {}", self.add(image), cut.pending, cut.kept))
            }
            ["drop", device] => {
                if self.devices.remove(number(device)?) {
                    Ok(String::new())
                } else {
                    Err("no such device")
                }
            }
            ["off", ref devices @ ..] => {
                let devices: Vec<Arc<Device>> =
                    devices.iter().map(|word| self.device(word)).collect::<Result<_, _>>()?;
                for device in devices {
                    device.cut_power();
                }
                Ok(String::new())
            }
            ["ignore-flushes", device] => {
                self.device(device)?.ignore_flushes();
                Ok(String::new())
            }
            ["delay", device, flush, write] => {
                let delays = Delays {
                    flush: Duration::from_micros(number(flush)?),
                    write: Duration::from_micros(number(write)?),
                };
                self.device(device)?.set_delays(delays);
                Ok(String::new())
            }
            ["fault", device, operation, skip, times, ref ranges @ ..] => {
                let operation = match operation {
                    "read" => Operation::Read,
                    "write" => Operation::Write,
                    "flush" => Operation::Flush,
                    _ => return Err("operations are read, write, flush"),
                };
                let ranges = ranges.iter().map(|word| range(word)).collect::<Result<_, _>>()?;
                self.device(device)?.add_fault(Fault { operation, skip: number(skip)?, times: number(times)?, ranges });
                Ok(String::new())
            }
            ["clear", device] => {
                self.device(device)?.clear_faults();
                Ok(String::new())
            }
            ["counts", device] => {
                let counts = self.device(device)?.counts();
                Ok(format!(
                    "{} {} {} {} {}",
                    counts.reads, counts.writes, counts.bytes_written, counts.flushes, counts.failed
                ))
            }
            _ => Err("no such command"),
        }
    }

    fn add(&mut self, device: Device) -> u64 {
        let number = self.next;
        self.next += 1;
        self.devices.add(number, device);
        number
    }

    fn device(&self, word: &str) -> Result<Arc<Device>, &'static str> {
        self.devices.get(number(word)?).ok_or("no such device")
    }
}

fn range(word: &str) -> Result<Range<u64>, &'static str> {
    let (from, to) = word.split_once('-').ok_or("not a range")?;
    Ok(number(from)?..number(to)?)
}

fn number(word: &str) -> Result<u64, &'static str> {
    word.parse().map_err(|_| "not a number")
}

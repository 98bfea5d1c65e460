//! The simulated internet at work: `mailrace sim` as a child on ports 25 and 53, and its files.
//!
//! Dropping it ends it and removes its files. Its ledger is read while it is written; lines come within a second, but
//! their times are its own, so nothing is measured by when they are read.

use super::ledger::{LineSplitter, delivery, start};
use super::world::{People, World};
use crate::side_by_side::servers::{Site, end, ready};
use serde_json::Value;
use sim::Taken;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;

/// A simulated internet.
#[derive(Debug)]
pub(super) struct InternetProcess {
    child: Child,
    said: Receiver<String>,
    dir: PathBuf,
    pub(super) people: People,
    /// When it began, in microseconds since 1970.
    pub(super) start_us: u64,
    read: u64,
    lines: LineSplitter,
}

/// The figures that it prints at its end.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessSummary {
    pub(super) connections: u64,
    /// The most connections that a host accepted, and had open at one time.
    pub(super) host_connections_max: u64,
    pub(super) host_open_max: u64,
    pub(super) dns_queries: u64,
    pub(super) cpu_s: f64,
}

impl InternetProcess {
    /// Starts it and reads who lives there.
    ///
    /// # Errors
    /// It does not run, or writes what docs/sim.md does not say.
    pub(super) fn start(site: &Site, world: &World) -> Result<Self, String> {
        let dir = site.memory.join(format!("mailrace-internet-{}", std::process::id()));
        drop(fs::remove_dir_all(&dir));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut command = Command::new(&site.mailrace);
        command.args(world.words(&dir));
        let made = ready(command, &dir, |line| {
            let value: Value = serde_json::from_str(line).ok()?;
            (value.get("event")? == "ready").then_some(Ok(()))
        });
        let (child, (), said) = match made {
            Ok(made) => made,
            Err(why) => {
                drop(fs::remove_dir_all(&dir));
                return Err(why);
            }
        };
        let mut internet =
            Self { child, said, dir, people: People::default(), start_us: 0, read: 0, lines: LineSplitter::default() };
        let text = |name| {
            let path = internet.dir.join(name);
            fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let people = People::read(&text("list")?, &text("map")?, world.domains_per_host)?;
        let head = text("ledger")?;
        let head = head.lines().next().unwrap_or("");
        internet.start_us = start(head).ok_or_else(|| format!("ledger of the simulated internet begins {head:?}"))?;
        internet.people = people;
        Ok(internet)
    }

    /// Gives every delivery that was written since the last time to `take`.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(super) fn deliveries(&mut self, mut take: impl FnMut(&Taken)) -> Result<(), String> {
        let path = self.dir.join("ledger");
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut file = File::open(&path).map_err(told)?;
        file.seek(SeekFrom::Start(self.read)).map_err(told)?;
        let mut octets = Vec::new();
        file.read_to_end(&mut octets).map_err(told)?;
        self.read += octets.len() as u64;
        for line in self.lines.add(&octets).lines() {
            if let Some(taken) = delivery(line)? {
                take(&taken);
            }
        }
        Ok(())
    }

    /// Ends it and returns its last words.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn finish(&mut self) -> Result<ProcessSummary, String> {
        end(&mut self.child);
        let words = self.said.iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let summary = words.filter(|value| value.get("event").is_some_and(|event| event == "summary")).last();
        let summary = summary.ok_or("the simulated internet ended without a summary")?;
        let number = |key| summary.get(key).and_then(Value::as_u64).unwrap_or(0);
        Ok(ProcessSummary {
            connections: number("connections"),
            host_connections_max: number("host_connections_max"),
            host_open_max: number("host_open_max"),
            dns_queries: number("dns_queries"),
            cpu_s: summary.get("cpu_seconds").and_then(Value::as_f64).unwrap_or(0.0),
        })
    }
}

impl Drop for InternetProcess {
    fn drop(&mut self) {
        end(&mut self.child);
        drop(fs::remove_dir_all(&self.dir));
    }
}

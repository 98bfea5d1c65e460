//! From an event to the octets that the target takes: a line, or a datagram.
//!
//! A thread keeps date, host and tag, which change at most once a second. Rendering takes no lock.

use super::{Format, LogSettings, Target};
use jiff::{Timestamp, tz::Offset};
use observe::{Event, json, sendmail};
use os::{clock, error};
use std::fmt::Write as _;
use std::sync::Arc;

/// How lines look; a new one for each configuration.
#[derive(Debug)]
pub(super) struct Style {
    format: Format,
    framing: Framing,
    tag: String,
    hostname: String,
    facility: u8,
    pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// A line with its end.
    Line,
    /// `<22>Nov 20 13:00:00 tag[pid]: …`
    Syslog,
    /// `MESSAGE=…\nPRIORITY=6\n…`
    Journald,
}

impl Style {
    pub(super) fn new(settings: &LogSettings) -> Self {
        let framing = match settings.target {
            Target::Stdout | Target::File(_) => Framing::Line,
            Target::Syslog(_) => Framing::Syslog,
            Target::Journald(_) => Framing::Journald,
        };
        Self {
            format: settings.format,
            framing,
            tag: settings.tag.clone(),
            hostname: settings.hostname.clone(),
            facility: settings.facility,
            pid: std::process::id(),
        }
    }
}

/// State that a thread keeps between lines.
#[derive(Default)]
pub(super) struct Local {
    line: String,
    /// `prefix` and `date` are of this second and this style.
    of: Option<(u64, Arc<Style>)>,
    /// `Nov 20 13:00:00 host tag[pid]: `
    prefix: String,
    /// `2026-11-20T13:00:00.`
    date: String,
    /// `2026-11-20T13:00:00.000000Z`
    ts: String,
}

impl Local {
    /// Returns the line made last.
    pub(super) fn line(&self) -> &str {
        &self.line
    }

    /// Makes the line of an event; returns the part of the event that needs another line.
    pub(super) fn render<'a>(&mut self, style: &Arc<Style>, event: &Event<'a>, now_us: u64) -> Option<Event<'a>> {
        self.keep_up(style, now_us);
        self.line.clear();
        let rest = self.frame(style, event, now_us);
        if self.line.contains(error::NUMBER) {
            self.line = error::without_numbers(&self.line);
        }
        rest
    }

    fn frame<'a>(&mut self, style: &Arc<Style>, event: &Event<'a>, now_us: u64) -> Option<Event<'a>> {
        match style.framing {
            Framing::Line => {
                if style.format == Format::Sendmail {
                    self.line.push_str(&self.prefix);
                }
                let rest = self.write(style, event, now_us);
                self.line.push('\n');
                rest
            }
            Framing::Syslog => {
                // RFC 3164 §4.1.1; to the local socket without a host, as syslog(3) sends it
                let priority = style.facility * 8 + event.severity() as u8;
                put(&mut self.line, format_args!("<{priority}>"));
                self.line.push_str(&self.prefix);
                self.write(style, event, now_us)
            }
            Framing::Journald => {
                self.line.push_str("MESSAGE=");
                // No value has a line end in it: `observe` removes them.
                let rest = self.write(style, event, now_us);
                let class = event.class();
                let (priority, facility) = (class.severity as u8, style.facility);
                put(&mut self.line, format_args!("\nPRIORITY={priority}\nSYSLOG_FACILITY={facility}"));
                put(&mut self.line, format_args!("\nSYSLOG_IDENTIFIER={}\nEVENT={}\n", style.tag, class.name));
                if let Some(id) = event.id() {
                    put(&mut self.line, format_args!("QUEUE_ID={id}\n"));
                }
                rest
            }
        }
    }

    fn write<'a>(&mut self, style: &Style, event: &Event<'a>, now_us: u64) -> Option<Event<'a>> {
        match style.format {
            Format::Sendmail => sendmail::write(event, &mut self.line),
            Format::Json => {
                self.ts.clear();
                self.ts.push_str(&self.date);
                put(&mut self.ts, format_args!("{:06}Z", now_us % 1_000_000));
                json::write(event, &self.ts, &mut self.line)
            }
        }
    }

    /// Makes the parts anew that are of another second or style.
    fn keep_up(&mut self, style: &Arc<Style>, now_us: u64) {
        let second = now_us / 1_000_000;
        if self.of.as_ref().is_some_and(|(of, with)| *of == second && Arc::ptr_eq(with, style)) {
            return;
        }
        let utc = civil(second, 0);
        let local = civil(second, clock::local_offset_seconds(now_us));
        let small = |number: i8| u8::try_from(number).unwrap_or(0);
        let time = sendmail::Civil {
            month: small(local.month()),
            day: small(local.day()),
            hour: small(local.hour()),
            minute: small(local.minute()),
            second: small(local.second()),
        };
        self.prefix.clear();
        let host = (style.framing == Framing::Line).then_some(style.hostname.as_str());
        sendmail::prefix(time, host, &style.tag, style.pid, &mut self.prefix);
        self.date.clear();
        put(&mut self.date, format_args!("{utc:.0}."));
        self.of = Some((second, Arc::clone(style)));
    }
}

/// Returns a time in microseconds since 1970 as RFC 3339 has it, in UTC: `2026-11-20T13:00:00.000001Z`.
pub(crate) fn utc_text(unix_us: u64) -> String {
    format!("{:.0}.{:06}Z", civil(unix_us / 1_000_000, 0), unix_us % 1_000_000)
}

fn civil(second: u64, offset: i32) -> jiff::civil::DateTime {
    let second = i64::try_from(second).unwrap_or(0).saturating_add(i64::from(offset));
    Offset::UTC.to_datetime(Timestamp::from_second(second).unwrap_or_default())
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes everything");
}

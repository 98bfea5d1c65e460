//! The commands that mail software calls: `sendmail`, `mailq`, `newaliases` and their like, in one program with many
//! names.
//!
//! By the name it is called by (a symbolic link), or as `mailrace sendmail …`. Arguments, texts, layouts and exit
//! statuses are sendmail's, because programs depend on them; `docs/commands.md` has the differences. Nothing here needs
//! rights of its own: mail goes into the pickup directory (`server::submit`), everything else is asked of the running
//! server.

mod aliases;
mod answer;
mod arguments;
mod compose;
mod daemon;
mod debug;
mod deliver;
mod exit;
mod makemap;
mod options;
mod queue_list;
mod queue_run;
mod site;
mod statistics;
mod stdin_smtp;
mod test_mode;
mod traffic;
mod verify;

pub(crate) use queue_list::request_list;

use crate::exit::Failure;
use arguments::{Mode, SendmailArguments};
use os::clock;
use site::Site;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

/// The text for a wrong command line.
const USAGE: &str = "usage: sendmail [-t] [-i] [-f SENDER] [-F NAME] [-o…] [RECIPIENT…] < MESSAGE; sendmail -b{s,v,t,i,p,d,D,h,H}; docs/commands.md has all";

/// Says something to the caller. A reader that has gone away is no failure.
fn say(text: impl std::fmt::Display) {
    let mut out = io::stdout();
    drop(write!(out, "{text}").and_then(|()| out.flush()));
}

/// A command by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Personality {
    Sendmail,
    Mailq,
    Newaliases,
    Makemap,
    Praliases,
    Hoststat,
    Purgestat,
    Mailstats,
    Smtpd,
}

impl Personality {
    const ALL: [(&'static str, Self); 9] = [
        ("sendmail", Self::Sendmail),
        ("mailq", Self::Mailq),
        ("newaliases", Self::Newaliases),
        ("makemap", Self::Makemap),
        ("praliases", Self::Praliases),
        ("hoststat", Self::Hoststat),
        ("purgestat", Self::Purgestat),
        ("mailstats", Self::Mailstats),
        ("smtpd", Self::Smtpd),
    ];

    /// The one of this name, with or without a path before it.
    pub(crate) fn of(name: &Path) -> Option<Self> {
        let name = name.file_name()?.to_str()?;
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, personality)| personality)
    }

    /// Runs it with the words behind its name; the exit status.
    pub(crate) fn run(self, words: Vec<OsString>) -> u8 {
        let texts = || words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>();
        match self {
            Self::Makemap => makemap::run(&texts()),
            Self::Praliases | Self::Mailstats => {
                let words = texts();
                with_site(config_of(&words).map(Path::new), |site| match self {
                    Self::Praliases => aliases::run_praliases(&words, site),
                    _ => statistics::run_mailstats(site, &words),
                })
            }
            _ => match arguments::parse(words) {
                Ok(arguments) => self.act(&arguments),
                Err(wrong) => {
                    eprintln!("{}", wrong.text);
                    wrong.status
                }
            },
        }
    }

    fn act(self, arguments: &SendmailArguments) -> u8 {
        // The name says what to do, and -b… may say something else only where the name is sendmail's own.
        let mode = match self {
            Self::Mailq if arguments.mode == Mode::Deliver => Mode::Queue,
            Self::Newaliases => Mode::Aliases,
            Self::Hoststat => Mode::Hosts,
            Self::Purgestat => Mode::ForgetHosts,
            Self::Smtpd => Mode::Daemon,
            _ => arguments.mode,
        };
        with_site(arguments.config.as_deref(), |site| {
            debug::print_values(arguments.debug, site);
            let is_run = arguments.is_queue_run || arguments.quarantine.is_some();
            match mode {
                Mode::Deliver if is_run && !arguments.takes_recipients && arguments.words.is_empty() => {
                    match arguments.has_interval {
                        // sendmail -q15m is a daemon that only runs the queue: the server does both.
                        true => daemon::run(arguments, site, false),
                        false => queue_run::run(arguments, site),
                    }
                }
                Mode::Deliver => deliver::run(arguments, site),
                Mode::Smtp => stdin_smtp::run(arguments, site),
                Mode::Verify => verify::run(arguments, site),
                Mode::Test => test_mode::run(site),
                Mode::Aliases => aliases::run_newaliases(site),
                Mode::Queue => queue_list::run(arguments, site),
                Mode::QueueTotals => queue_list::print_totals(site),
                Mode::Daemon => daemon::run(arguments, site, false),
                Mode::Foreground => daemon::run(arguments, site, true),
                Mode::Hosts => statistics::run_hoststat(site, arguments.is_verbose),
                Mode::ForgetHosts => statistics::forget_hosts(site),
                // The configuration was read to get here.
                Mode::Check => exit::OK,
            }
        })
    }
}

fn with_site(config: Option<&Path>, act: impl FnOnce(&Site) -> u8) -> u8 {
    match Site::open(config) {
        Ok(site) => act(&site),
        Err((status, text)) => {
            eprintln!("{}", text.trim_end());
            status
        }
    }
}

/// `-C FILE` of commands whose other options are their own.
fn config_of(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word.starts_with("-C"))?;
    match words.get(at)?.strip_prefix("-C")? {
        "" => words.get(at + 1).map(String::as_str),
        attached => Some(attached),
    }
}

/// Prints; the exit status. A reader that goes away is no failure.
fn print(text: &str) -> u8 {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => exit::IO,
        _ => exit::OK,
    }
}

/// Says why the server could not be asked; the exit status.
fn said(name: &str, failure: &Failure) -> u8 {
    eprintln!("{name}: {failure}");
    failure.exit as u8
}

/// `Sun Nov 22 11:09:56 2026`, in local time.
fn ctime(unix_us: u64) -> String {
    let date = mail::submission::date(unix_us, clock::local_offset_seconds(unix_us));
    let words: Vec<&str> = date.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        [name, day, month, year, time, ..] => format!("{name} {month} {day:>2} {time} {year}"),
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_behind_paths() {
        assert_eq!(Personality::of(Path::new("/usr/sbin/sendmail")), Some(Personality::Sendmail));
        assert_eq!(Personality::of(Path::new("mailq")), Some(Personality::Mailq));
        for other in ["mailrace", "/usr/sbin/", "", "sendmail.old"] {
            assert_eq!(Personality::of(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn times_look_as_ctime_writes_them() {
        let text = ctime(1_795_345_796_000_000);
        assert!(text.len() == 24 && text.ends_with(" 2026"), "{text}");
        assert_eq!(ctime(0).len(), 24);
    }
}

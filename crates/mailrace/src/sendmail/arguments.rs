//! sendmail's command line: the same letters, in the same order, with the same complaints.
//!
//! Options end at the first word that is none, or at `--`. Options for a daemon of sendmail's that mean nothing here
//! are accepted without effect; `docs/commands.md` lists them. Those of `-O` are in `options`.

use super::exit;
use super::options::Limits;
use mail::{Body, EnvId, MailParams, Notify, RecipientParams, Ret};
use server::submit::Terms;
use std::ffi::OsString;
use std::path::PathBuf;

/// Letters with an argument have a colon behind them.
const LETTERS: &str = "A:B:b:C:cD:d:e:E:F:f:Gh:IiL:M:mN:nO:o:p:Q:q:R:r:sTtUV:vX:xz";

/// The task that the options name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// `-bm`: hand in a message.
    #[default]
    Deliver,
    /// `-bs`: SMTP on standard input and output.
    Smtp,
    /// `-bv`
    Verify,
    /// `-bt`
    Test,
    /// `-bi`
    Aliases,
    /// `-bp`
    Queue,
    /// `-bP`
    QueueTotals,
    /// `-bd`
    Daemon,
    /// `-bD`
    Foreground,
    /// `-bh`
    Hosts,
    /// `-bH`
    ForgetHosts,
    /// `-bC`
    Check,
}

/// The reader of error messages: `-oe` and `-e`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Errors {
    /// The reader of standard output.
    #[default]
    Print,
    /// The sender, by mail.
    Mail,
    /// No reader; only the exit status says it.
    Quiet,
}

/// `-od`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It is handed in and taken.
    #[default]
    Background,
    /// It is delivered, or has failed, or it takes too long.
    Interactive,
    /// It is handed in.
    Queue,
}

/// The way on which a message came to the program that hands it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Came {
    /// `UUCP`; empty: nothing is known.
    pub(super) protocol: String,
    pub(super) host: String,
}

/// Levels of `-d` that say something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Debug {
    /// `-d0.1`: the version and the names of this host.
    pub(super) identity: bool,
    /// `-d0.4`: its addresses too.
    pub(super) addresses: bool,
}

/// The condition of a queue run or a list: `-qI…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) is_not: bool,
    pub(super) what: FilterKind,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterKind {
    Id,
    Recipient,
    Sender,
    Quarantine,
}

/// A command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SendmailArguments {
    pub(super) mode: Mode,
    pub(super) config: Option<PathBuf>,
    /// `-Ac`: the queue of the command itself, which is the pickup directory.
    pub(super) is_client: bool,
    /// As written.
    pub(super) sender: Option<String>,
    pub(super) full_name: Option<String>,
    pub(super) hops: usize,
    pub(super) ignores_dots: bool,
    pub(super) takes_recipients: bool,
    pub(super) errors: Errors,
    pub(super) delivery: Delivery,
    pub(super) params: MailParams,
    pub(super) recipient_params: RecipientParams,
    pub(super) is_verbose: bool,
    /// `-q`: of a queue run, or of a list.
    pub(super) is_queue_run: bool,
    /// `-q15m`
    pub(super) has_interval: bool,
    /// `-qQ`: held messages. `-qL`: lost messages.
    pub(super) wants_held: bool,
    pub(super) wants_lost: bool,
    pub(super) filters: Vec<Filter>,
    /// `-Q`: hold for this reason, or release if it is empty.
    pub(super) quarantine: Option<String>,
    /// `-X`: where the dialogue is written to.
    pub(super) traffic: Option<PathBuf>,
    /// `-L`: its name in the log.
    pub(super) tag: String,
    /// `-G`: the message was complete before, and nothing is added to it.
    pub(super) is_gateway: bool,
    /// `-n`: no aliases, for `-bv`.
    pub(super) ignores_aliases: bool,
    /// `-p`, and the macros r and s: how the message came here, and from which host.
    pub(super) came: Came,
    /// `-d`: the output for finding faults.
    pub(super) debug: Debug,
    /// `-O`
    pub(super) limits: Limits,
    pub(super) words: Vec<String>,
}

/// Why a command line is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) status: u8,
    pub(super) text: String,
}

fn usage(text: impl Into<String>) -> Wrong {
    Wrong { status: exit::USAGE, text: text.into() }
}

/// Reads a command line without its first word.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<SendmailArguments, Wrong> {
    let mut arguments = SendmailArguments::default();
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned()).peekable();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            arguments.words.push(word);
            break;
        };
        if letters == "-" {
            break;
        }
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            if !takes_argument(letter)? {
                arguments.plain(letter);
                continue;
            }
            let attached = rest.as_str();
            let value = match (attached.is_empty(), letter) {
                // sendmail's own rewriting of old command lines: these stand alone.
                (true, 'q' | 'Q' | 'd' | 'o' | 'E') => String::new(),
                (true, _) => {
                    words.next().ok_or_else(|| usage(format!("sendmail: option requires an argument -- {letter}")))?
                }
                (false, _) => attached.to_owned(),
            };
            arguments.valued(letter, &value)?;
            break;
        }
    }
    arguments.words.extend(words);
    Ok(arguments)
}

fn takes_argument(letter: char) -> Result<bool, Wrong> {
    let at = LETTERS.find(letter).filter(|_| letter != ':');
    let at = at.ok_or_else(|| usage(format!("sendmail: illegal option -- {letter}\n{}", super::USAGE)))?;
    Ok(LETTERS.get(at + 1..at + 2) == Some(":"))
}

impl SendmailArguments {
    fn plain(&mut self, letter: char) {
        match letter {
            'i' => self.ignores_dots = true,
            't' => self.takes_recipients = true,
            'v' => self.is_verbose = true,
            'U' => self.params.smtputf8 = true,
            'G' => self.is_gateway = true,
            'n' => self.ignores_aliases = true,
            // -s, -c, -m, -I, -T, -x, -z: nothing here.
            _ => {}
        }
    }

    fn valued(&mut self, letter: char, value: &str) -> Result<(), Wrong> {
        match letter {
            'A' => self.is_client = value.starts_with('c'),
            'B' => {
                self.params.body = match value.to_ascii_lowercase().as_str() {
                    "7bit" => Some(Body::SevenBit),
                    "8bitmime" => Some(Body::EightBitMime),
                    _ => return Err(usage(format!("Illegal body type {value}"))),
                }
            }
            'b' => self.mode = mode(value)?,
            'C' => self.config = Some(value.into()),
            'e' => self.errors = errors(value),
            'F' => self.full_name = Some(value.to_owned()),
            'f' | 'r' if self.sender.is_some() => return Err(usage("More than one \"from\" person")),
            'f' | 'r' => self.sender = Some(value.to_owned()),
            'h' => self.hops = value.parse().map_err(|_| usage(format!("Bad hop count ({value})")))?,
            'N' => {
                let text = format!("NOTIFY={value}");
                let read = RecipientParams::parse(text.as_bytes()).map_err(|_| usage("Invalid -N argument"))?;
                self.recipient_params.notify = read.notify.or(Some(Notify::NEVER));
            }
            'O' => return self.option(value),
            'o' => self.short_option(value),
            'Q' => self.quarantine = Some(value.to_owned()),
            'q' => return self.queue(value),
            'R' => {
                self.params.ret = match value.to_ascii_lowercase().as_str() {
                    "hdrs" => Some(Ret::Headers),
                    "full" => Some(Ret::Full),
                    _ => return Err(usage("Invalid -R value")),
                }
            }
            'V' if value.is_empty() => {}
            'V' => self.params.envid = Some(envelope_id(value)?),
            'X' => self.traffic = Some(value.into()),
            'L' => self.tag = Terms::tag_of(value),
            'M' => self.macro_value(value),
            'p' => {
                let (protocol, host) = value.split_once(':').unwrap_or((value, ""));
                self.came = Came { protocol: trace_word(protocol), host: trace_word(host) };
            }
            'd' => self.debug.set(value),
            // -D (where debugging goes), -E: nothing here.
            _ => {}
        }
        Ok(())
    }

    /// `rUUCP`, `{client_name}x`: of all macros r and s mean something here.
    fn macro_value(&mut self, text: &str) {
        let (name, value) = match text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some(long) => long,
            None => text.split_at(text.chars().next().map_or(0, char::len_utf8)),
        };
        match name {
            "r" => self.came.protocol = trace_word(value),
            "s" => self.came.host = trace_word(value),
            _ => {}
        }
    }

    fn short_option(&mut self, value: &str) {
        let mut rest = value.chars();
        let (letter, value) = (rest.next(), rest.as_str());
        match letter {
            Some('i') => self.ignores_dots = value != "0" && !value.starts_with(['f', 'F', 'n', 'N']),
            Some('e') => self.errors = errors(value),
            Some('d') => self.delivery = delivery(value),
            Some('v') => self.is_verbose = true,
            _ => {}
        }
    }

    fn option(&mut self, text: &str) -> Result<(), Wrong> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        match name.to_ascii_lowercase().as_str() {
            "deliverymode" => self.delivery = delivery(value),
            "errormode" => self.errors = errors(value),
            "ignoredots" => self.short_option(&format!("i{value}")),
            "verbose" => self.is_verbose = true,
            "maxmessagesize" | "maxhopcount" | "maxrecipientspermessage" | "maxheaderslength" => {
                self.limits.set(name, value).map_err(usage)?;
            }
            other if super::options::is_known(other) => {}
            _ => {
                let text = format!("readcf: unknown option name {name}");
                return Err(Wrong { status: exit::SOFTWARE, text });
            }
        }
        Ok(())
    }

    fn queue(&mut self, value: &str) -> Result<(), Wrong> {
        self.is_queue_run = true;
        let (is_not, rest) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest));
        let mut letters = rest.chars();
        let what = match letters.next() {
            Some('I') => FilterKind::Id,
            Some('R') => FilterKind::Recipient,
            Some('S') => FilterKind::Sender,
            Some('Q') if letters.as_str().is_empty() => {
                self.wants_held = !is_not;
                return Ok(());
            }
            Some('Q') => FilterKind::Quarantine,
            Some('L') => {
                self.wants_lost = !is_not;
                return Ok(());
            }
            // -qG: queue groups; -qf: in the foreground; -qp: persistent.
            Some('G' | 'f') | None => return Ok(()),
            Some('p') => return self.interval(letters.as_str()),
            Some(_) => return self.interval(rest),
        };
        if what == FilterKind::Quarantine {
            self.wants_held = true;
        }
        self.filters.push(Filter { is_not, what, text: letters.as_str().to_owned() });
        Ok(())
    }

    /// `15m`, `1h30m`, `30`: minutes.
    fn interval(&mut self, text: &str) -> Result<(), Wrong> {
        let bad: Vec<String> = text
            .chars()
            .filter(|c| !c.is_ascii_digit() && !"wdhms".contains(*c))
            .map(|c| format!("Invalid time unit `{c}'"))
            .collect();
        if !bad.is_empty() {
            return Err(usage(bad.join("\n")));
        }
        self.has_interval = text.chars().any(|c| matches!(c, '1'..='9'));
        Ok(())
    }
}

fn mode(value: &str) -> Result<Mode, Wrong> {
    let mut letters = value.chars();
    let mode = match letters.next() {
        Some('m' | 'a') => Mode::Deliver,
        Some('s') => Mode::Smtp,
        Some('v') => Mode::Verify,
        Some('t') => Mode::Test,
        Some('i') => Mode::Aliases,
        Some('p') => Mode::Queue,
        Some('P') => Mode::QueueTotals,
        Some('d') => Mode::Daemon,
        Some('D') => Mode::Foreground,
        Some('h') => Mode::Hosts,
        Some('H') => Mode::ForgetHosts,
        Some('C') => Mode::Check,
        other => return Err(usage(format!("Invalid operation mode {}", other.unwrap_or(' ')))),
    };
    Ok(mode)
}

/// A word as a trace field may have it.
// RFC 5322 §3.2.3: atoms with dots
fn trace_word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || "-._/+[]:".contains(*c)).take(255).collect()
}

impl Debug {
    /// `0.4`, `0-10.4,21.12`; alone it means `0-99.1`.
    fn set(&mut self, value: &str) {
        for one in value.split(',') {
            let (flags, level) = one.split_once('.').unwrap_or((one, "1"));
            let first = flags.split('-').next().unwrap_or_default();
            let level: u32 = level.parse().unwrap_or(1);
            if first.is_empty() || first == "0" {
                self.identity |= level >= 1;
                self.addresses |= level >= 4;
            }
        }
    }
}

fn errors(value: &str) -> Errors {
    match value.chars().next() {
        Some('m' | 'w' | 'e') => Errors::Mail,
        Some('q') => Errors::Quiet,
        _ => Errors::Print,
    }
}

fn delivery(value: &str) -> Delivery {
    match value.chars().next() {
        Some('i') => Delivery::Interactive,
        Some('q' | 'd') => Delivery::Queue,
        _ => Delivery::Background,
    }
}

/// In the form of ENVID, as sendmail wants it.
fn envelope_id(value: &str) -> Result<EnvId, Wrong> {
    let parsed = MailParams::parse(format!("ENVID={value}").as_bytes());
    parsed.ok().and_then(|params| params.envid).ok_or_else(|| usage("Invalid syntax in -V flag"))
}

#[cfg(test)]
mod tests;

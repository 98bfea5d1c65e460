//! A delivery request, its result, and the settings both depend on: values, and their form between processes.
//!
//! All three are JSON there, since who reads them is another process of the same program and never of another version.

use config::{self, Config, Mailbox, Template};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The time that a delivery may take besides the time that it waits.
const SPARE: Duration = Duration::from_secs(120);
/// Letters of a verdict that are told.
const TEXT_MAX: usize = 1_000;

/// One recipient of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRequest {
    /// The kind of delivery.
    pub what: What,
    /// The queue id and the place of the recipient in the message: the same for the same delivery, tried again.
    pub unique: String,
    /// When the message came, in seconds since 1970.
    pub received: u64,
    /// Our name, for names of files.
    pub host: String,
    /// The envelope sender; empty for none.
    pub sender: String,
    /// The whole recipient, as written in a header.
    pub recipient: String,
    /// The local part of the recipient: `joe+lists`.
    pub local: String,
    /// His domain.
    pub domain: String,
    /// The recipient as the sender wrote it, if that is known.
    pub original: String,
    /// The time as a `From ` line has it: `Sat Jan  3 01:05:34 1996`.
    pub date: String,
    /// The character between a user and a detail.
    pub delimiter: Option<char>,
    /// Octets of a header that are looked at.
    pub header_max: u64,
    /// Octets of the message, as it came.
    pub bytes: u64,
    /// It was, or may have been, tried before.
    pub is_again: bool,
}

/// The kind of delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It goes into the mailbox of the user that the local part names.
    Mailbox,
    /// A program gets it.
    Program {
        /// The user that runs it; empty: `local.default_user`.
        user: String,
        /// Its command line.
        command: String,
    },
    /// It goes to the end of a file.
    File {
        /// The user that writes it; empty: `local.default_user`.
        user: String,
        /// Its full name.
        path: String,
    },
}

impl What {
    /// Its mailer, as sendmail's log names it.
    pub const fn mailer(&self) -> &'static str {
        match self {
            Self::Mailbox => "local",
            Self::Program { .. } => "prog",
            Self::File { .. } => "*file*",
        }
    }

    /// By whose rights a program runs or a file is written; empty: the user of aliases.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::Mailbox => None,
            Self::Program { user, .. } | Self::File { user, .. } => Some(user),
        }
    }

    /// As sendmail's log names the recipient, where that is not his address; empty for programs and files that the file
    /// of a user names: these are reported by the address alone.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Mailbox => None,
            Self::Program { user, .. } | Self::File { user, .. } if !user.is_empty() => Some(String::new()),
            Self::Program { command, .. } => Some(format!("\"|{command}\"")),
            Self::File { path, .. } => Some(path.clone()),
        }
    }
}

/// The result of a delivery request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Which of the three it is.
    pub end: DeliveryEnd,
    /// Subject and detail of the enhanced code.
    pub status: (u16, u16),
    /// In sendmail's words where it has some; empty for a delivery.
    pub text: String,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// It is done, and durable where that is our affair.
    Delivered,
    /// Not now.
    Deferred,
    /// Never.
    Failed,
}

impl Verdict {
    /// Removes from the text the name of a file that the file of a user names.
    pub fn without_file_name(mut self, what: &What) -> Self {
        if let What::File { user, path } = what
            && !user.is_empty()
            && !path.is_empty()
        {
            self.text = self.text.replace(path, &format!("a file of {user}"));
        }
        self
    }

    /// It is done.
    pub const fn delivered() -> Self {
        Self { end: DeliveryEnd::Delivered, status: (0, 0), text: String::new() }
    }

    /// Not now.
    pub fn deferred(status: (u16, u16), text: impl Into<String>) -> Self {
        Self { end: DeliveryEnd::Deferred, status, text: text.into() }
    }

    /// Never.
    pub fn failed(status: (u16, u16), text: impl Into<String>) -> Self {
        Self { end: DeliveryEnd::Failed, status, text: text.into() }
    }

    /// For another process.
    pub fn to_json(&self) -> String {
        let end = match self.end {
            DeliveryEnd::Delivered => "delivered",
            DeliveryEnd::Deferred => "deferred",
            DeliveryEnd::Failed => "failed",
        };
        json!({"end": end, "subject": self.status.0, "detail": self.status.1, "text": self.text}).to_string()
    }

    /// From another process; `None` if it is none. A user may have made it up: its text is a short line of plain
    /// letters.
    pub fn from_json(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let end = match value.get("end")?.as_str()? {
            "delivered" => DeliveryEnd::Delivered,
            "deferred" => DeliveryEnd::Deferred,
            "failed" => DeliveryEnd::Failed,
            _ => return None,
        };
        // RFC 3463 §2: subject and detail have one to three digits.
        let number = |key: &str| {
            value.get(key)?.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number < 1_000)
        };
        let text = text_of(&value, "text")?;
        let plain = |letter: char| if letter.is_control() { '?' } else { letter };
        let text = text.chars().map(plain).take(TEXT_MAX).collect();
        Some(Self { end, status: (number("subject")?, number("detail")?), text })
    }
}

fn text_of(value: &Value, key: &str) -> Option<String> {
    Some(value.get(key)?.as_str()?.to_owned())
}

impl DeliveryRequest {
    /// A request of tests: a message of ann for the mailbox of joe.
    #[doc(hidden)]
    #[must_use]
    pub fn trial() -> Self {
        Self {
            what: What::Mailbox,
            unique: "6AK84ct0028759R0".into(),
            received: 1_800_000_000,
            host: "mx.example".into(),
            sender: "ann@a.example".into(),
            recipient: "joe@x.example".into(),
            local: "joe".into(),
            domain: "x.example".into(),
            original: String::new(),
            delimiter: Some('+'),
            header_max: 1 << 20,
            bytes: 1 << 20,
            is_again: false,
            date: "Fri Jan 15 08:00:00 2027".into(),
        }
    }

    /// The queue id.
    pub fn id(&self) -> &str {
        self.unique.rsplit_once('R').map_or("", |(id, _)| id)
    }

    /// For another process.
    pub fn to_json(&self) -> String {
        let (kind, user, target) = match &self.what {
            What::Mailbox => ("mailbox", "", ""),
            What::Program { user, command } => ("program", user.as_str(), command.as_str()),
            What::File { user, path } => ("file", user.as_str(), path.as_str()),
        };
        json!({
            "kind": kind, "user": user, "target": target, "unique": self.unique, "received": self.received,
            "host": self.host, "sender": self.sender, "recipient": self.recipient, "local": self.local,
            "domain": self.domain, "original": self.original, "date": self.date, "is_again": self.is_again,
            "delimiter": self.delimiter.map(String::from).unwrap_or_default(), "header_max": self.header_max,
            "bytes": self.bytes,
        })
        .to_string()
    }

    /// From another process; `None` if it is none.
    pub fn from_json(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let text = |key: &str| text_of(&value, key);
        let what = match text("kind")?.as_str() {
            "mailbox" => What::Mailbox,
            "program" => What::Program { user: text("user")?, command: text("target")? },
            "file" => What::File { user: text("user")?, path: text("target")? },
            _ => return None,
        };
        Some(Self {
            what,
            unique: text("unique")?,
            received: value.get("received")?.as_u64()?,
            host: text("host")?,
            sender: text("sender")?,
            recipient: text("recipient")?,
            local: text("local")?,
            domain: text("domain")?,
            original: text("original")?,
            date: text("date")?,
            delimiter: text("delimiter")?.chars().next(),
            header_max: value.get("header_max")?.as_u64()?,
            bytes: value.get("bytes")?.as_u64()?,
            is_again: value.get("is_again")?.as_bool()?,
        })
    }
}

/// The settings of local delivery. They are fixed at the start of the server: a process that delivers with the rights
/// of users takes no new settings from a server without these rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) mailbox: Mailbox,
    pub(crate) mailbox_user: String,
    pub(crate) mailbox_group: String,
    pub(crate) mailbox_size_max: u64,
    pub(crate) dotlock: bool,
    pub(crate) fcntl: bool,
    pub(crate) lock_time: Duration,
    pub(crate) subfolders: bool,
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) program_time: Duration,
    pub(crate) processes_max: u32,
    pub(crate) files: Vec<String>,
    /// `local.default_user`
    pub default_user: String,
    /// `local.uid_min`
    pub uid_min: u32,
    /// Without root, programs run with the rights of the server.
    pub programs_as_server: bool,
    /// Octets of an `:include:` file of an alias.
    pub list_size_max: u64,
    /// The file of users.
    pub accounts: PathBuf,
    /// The C library is asked for those who are not in it.
    pub has_nss: bool,
    /// Those that write mailboxes have few system calls.
    pub has_seccomp: bool,
}

impl Settings {
    /// As they are configured.
    pub fn new(config: &Config) -> Self {
        let local = &config.local;
        let locks = |word: &str| local.locks.iter().any(|lock| lock == word);
        Self {
            mailbox: local.mailbox.clone(),
            mailbox_user: local.mailbox_user.clone(),
            mailbox_group: local.mailbox_group.clone(),
            mailbox_size_max: local.mailbox_size_max,
            dotlock: locks("dotlock"),
            fcntl: locks("fcntl"),
            lock_time: local.lock_time_max,
            subfolders: local.subfolders,
            programs: local.programs.clone(),
            program_time: local.program_time_max,
            processes_max: local.program_processes_max,
            programs_as_server: local.programs_as_server,
            files: local.files.clone(),
            default_user: local.default_user.clone(),
            uid_min: local.uid_min,
            list_size_max: local.list_size_max,
            accounts: local.accounts.clone(),
            has_nss: local.allows_nss() && os::nss::is_there(),
            has_seccomp: config.server.seccomp,
        }
    }

    /// The longest that a delivery may take, with some to spare.
    pub fn time_max(&self, what: &What) -> Duration {
        let time = match what {
            What::Program { .. } => self.program_time,
            What::Mailbox | What::File { .. } => self.lock_time.saturating_mul(2),
        };
        time + SPARE
    }

    /// The longest that any delivery may take.
    pub fn any_time_max(&self) -> Duration {
        self.program_time.max(self.lock_time.saturating_mul(2)) + SPARE
    }

    /// For another process.
    pub fn to_json(&self) -> String {
        json!({
            "mailbox": self.mailbox.to_string(), "mailbox_user": self.mailbox_user, "mailbox_group": self.mailbox_group,
            "mailbox_size_max": self.mailbox_size_max, "dotlock": self.dotlock, "fcntl": self.fcntl,
            "lock_ms": millis(self.lock_time), "subfolders": self.subfolders,
            "programs": self.programs.iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>(),
            "program_ms": millis(self.program_time), "processes_max": self.processes_max,
            "programs_as_server": self.programs_as_server, "files": self.files,
            "default_user": self.default_user, "uid_min": self.uid_min, "list_size_max": self.list_size_max,
            "accounts": self.accounts.to_string_lossy(), "nss": self.has_nss, "seccomp": self.has_seccomp,
        })
        .to_string()
    }

    /// From another process; `None` if it is none.
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |key: &str| text_of(&value, key);
        let number = |key: &str| value.get(key)?.as_u64();
        let small = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
        let flag = |key: &str| value.get(key)?.as_bool();
        let list = |key: &str| -> Option<Vec<String>> {
            value.get(key)?.as_array()?.iter().map(|item| Some(item.as_str()?.to_owned())).collect()
        };
        Some(Self {
            mailbox: text("mailbox")?.parse().ok()?,
            mailbox_user: text("mailbox_user")?,
            mailbox_group: text("mailbox_group")?,
            mailbox_size_max: number("mailbox_size_max")?,
            dotlock: flag("dotlock")?,
            fcntl: flag("fcntl")?,
            lock_time: Duration::from_millis(number("lock_ms")?),
            subfolders: flag("subfolders")?,
            programs: list("programs")?.into_iter().map(PathBuf::from).collect(),
            program_time: Duration::from_millis(number("program_ms")?),
            processes_max: small("processes_max")?,
            programs_as_server: value.get("programs_as_server")?.as_bool()?,
            files: list("files")?,
            default_user: text("default_user")?,
            uid_min: small("uid_min")?,
            list_size_max: number("list_size_max")?,
            accounts: text("accounts")?.into(),
            has_nss: flag("nss")?,
            has_seccomp: flag("seccomp")?,
        })
    }

    /// The template of mailboxes that we write.
    pub const fn template(&self) -> Option<&Template> {
        match &self.mailbox {
            Mailbox::Mbox(template) | Mailbox::Maildir(template) => Some(template),
            Mailbox::LmtpSocket(_) | Mailbox::LmtpHost(_) | Mailbox::None => None,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cross_the_border_between_processes_unchanged() {
        let settings = Settings::new(&Config::default());
        assert_eq!(Settings::from_json(&settings.to_json()), Some(settings));
        let order = |what| DeliveryRequest {
            what,
            unique: "x.1".into(),
            received: 7,
            host: "h".into(),
            sender: String::new(),
            recipient: "\"a b\"@x.example".into(),
            local: "a b".into(),
            domain: "x.example".into(),
            original: "rfc822;ö".into(),
            date: "d".into(),
            delimiter: Some('-'),
            header_max: 7,
            bytes: 9,
            is_again: true,
        };
        let (user, command, path) = ("joe".to_owned(), "/bin/cat \"x\ny\"".to_owned(), "/x/y".to_owned());
        for what in
            [What::Mailbox, What::Program { user: user.clone(), command }, What::File { user: String::new(), path }]
        {
            let order = order(what);
            assert_eq!(DeliveryRequest::from_json(order.to_json().as_bytes()), Some(order));
        }
        for verdict in
            [Verdict::delivered(), Verdict::deferred((2, 2), "full \"x\""), Verdict::failed((1, 1), "User unknown")]
        {
            assert_eq!(Verdict::from_json(verdict.to_json().as_bytes()), Some(verdict));
        }
        let invented = Verdict::failed((1, 1), format!("a\nNov 22 forged: line{}", "x".repeat(2_000)));
        let told = Verdict::from_json(invented.to_json().as_bytes()).unwrap();
        assert!(told.text.starts_with("a?Nov 22 forged: linexx") && told.text.len() == TEXT_MAX, "{}", told.text.len());
        let odd = Verdict::failed((1, 1_000), "x").to_json();
        assert_eq!(Verdict::from_json(odd.as_bytes()), None);
        assert_eq!(
            (DeliveryRequest::from_json(b"{}"), Verdict::from_json(b"x"), Settings::from_json("[]")),
            (None, None, None)
        );
    }

    #[test]
    fn a_reload_changes_nothing_that_was_told_at_the_start() {
        let usual = Config::default();
        let changes = [
            "mailbox = 'maildir:%h/Maildir'",
            "mailbox_user = 'mail'",
            "mailbox_group = 'staff'",
            "mailbox_size_max = 1",
            "locks = []",
            "lock_time_max = '7s'",
            "subfolders = true",
            "programs = ['/x']",
            "program_time_max = '7s'",
            "program_processes_max = 7",
            "programs_as_server = true",
            "files = ['/x']",
            "default_user = 'x'",
            "uid_min = 7",
            "list_size_max = 7",
            "accounts = '/x'",
            "nss = false",
        ];
        for change in changes {
            let text = format!("local.{change}\n");
            let text =
                if change.starts_with("mailbox_user") { format!("{text}local.mailbox = 'mbox:/x/%u'\n") } else { text };
            let loaded = config::load(&text, None, &[], &config::Machine::default());
            let config = loaded.unwrap_or_else(|problems| panic!("{text}: {problems:?}")).config;
            // A new field needs its key above.
            let Settings {
                mailbox: _,
                mailbox_user: _,
                mailbox_group: _,
                mailbox_size_max: _,
                dotlock: _,
                fcntl: _,
                lock_time: _,
                subfolders: _,
                programs: _,
                program_time: _,
                processes_max: _,
                programs_as_server: _,
                files: _,
                default_user: _,
                uid_min: _,
                list_size_max: _,
                accounts: _,
                has_nss: _,
                // Of another table, and for a restart as well.
                has_seccomp: _,
            } = Settings::new(&config);
            assert_ne!(Settings::new(&config), Settings::new(&usual), "{text}");
            let refused = config::refuses_reload(&config::differences(&usual, &config)).unwrap_or_default();
            let key = format!("local.{}", change.split(' ').next().unwrap());
            assert!(refused.contains(&key) && refused.contains("takes effect after a restart"), "{text}: {refused}");
        }
    }
}

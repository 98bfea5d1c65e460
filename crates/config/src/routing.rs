//! The settings of sendmail's maps, and of rules of our own beside them.

use ipnet::IpNet;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::RelayDomain;

/// Where the entries of a map are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MapSource {
    /// In a file.
    File(PathBuf),
    /// Where `[[ldap]]` of this name asks.
    Ldap(String),
    /// Where `[[sqlite]]` of this name asks.
    Sqlite(String),
}

impl FromStr for MapSource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once(':') {
            Some(("ldap", name)) => Self::Ldap(name.to_owned()),
            Some(("sqlite", name)) => Self::Sqlite(name.to_owned()),
            _ => Self::File(PathBuf::from(text)),
        })
    }
}

impl fmt::Display for MapSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Ldap(name) => write!(f, "ldap:{name}"),
            Self::Sqlite(name) => write!(f, "sqlite:{name}"),
        }
    }
}

/// The treatment of a map with lines that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLine {
    /// They are left out.
    Skip,
    /// The map stays as it was before; at the start the server does not start.
    KeepOld,
}

/// `[maps]`: each map a list of sources, of which the first that has a key counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Where the files are that no other key names; `None`: there are none.
    pub directory: Option<PathBuf>,
    /// The clients, senders and recipients that are accepted or refused.
    pub access: Vec<MapSource>,
    /// Hosts for recipients' domains.
    pub mailertable: Vec<MapSource>,
    /// Addresses of domains that have no mailboxes of their own.
    pub virtusertable: Vec<MapSource>,
    /// The outside addresses of senders.
    pub genericstable: Vec<MapSource>,
    /// Other names of domains.
    pub domaintable: Vec<MapSource>,
    /// Hosts for senders.
    pub smarttable: Vec<MapSource>,
    /// Other names of users, programs, files, lists.
    pub aliases: Vec<MapSource>,
    /// The treatment of a line that cannot be read.
    pub bad_line: BadLine,
    /// How often files are looked at; 0: only at a reload.
    pub interval: Duration,
    /// The most octets of one file.
    pub size_max: u64,
    /// The most octets of memory for the expansion of long lists.
    pub expansions_size_max: u64,
    /// Files, and directories on the way to them, may be writable by their group.
    pub group_writable: bool,
}

/// When the access map is asked about clients and senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayChecks {
    /// At once.
    No,
    /// At RCPT.
    Yes,
    /// At RCPT, and not for recipients who are friends of spam.
    Friend,
    /// At RCPT, and only for recipients who hate it.
    Hater,
}

/// `[access]`: features of sendmail's access map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRules {
    /// `delay_checks`
    pub delay_checks: DelayChecks,
    /// `blocklist_recipients`
    pub blocklist_recipients: bool,
    /// `lookupdotdomain`
    pub lookup_dot_domain: bool,
    /// `relaytofulladdress`
    pub relay_to_full_address: bool,
    /// `relay_mail_from`
    pub relay_mail_from: bool,
    /// `relay_hosts_only`
    pub relay_hosts_only: bool,
    /// The time in which `ClientRate:` counts connections.
    pub client_rate_window: Duration,
}

/// `[generics]`: for which addresses genericstable and the masquerade are, and where they have their other name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generics {
    /// The domains, class G.
    pub domains: Vec<RelayDomain>,
    /// Files of such.
    pub domain_files: Vec<PathBuf>,
    /// The sender of the envelope too.
    pub envelope: bool,
    /// Senders in the header of our users' mail.
    pub headers: bool,
    /// Recipients in the header too.
    pub recipients: bool,
    /// The domain that stands for ours in addresses of senders.
    pub masquerade: Option<String>,
    /// Domains for which it stands beside ours, class M.
    pub masquerade_domains: Vec<RelayDomain>,
    /// Domains for which it never stands, class N.
    pub masquerade_exceptions: Vec<RelayDomain>,
    /// It stands for no other domain of ours than the host name.
    pub masquerade_limited: bool,
    /// Users who keep their domain, class E.
    pub exposed_users: Vec<String>,
}

/// Which is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// mailertable, then smarttable.
    Recipient,
    /// smarttable, then mailertable.
    Sender,
}

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAt {
    /// Before everything.
    First,
    /// Before virtusertable.
    BeforeVirtual,
    /// Before local names.
    BeforeLocal,
    /// Before mailertable.
    BeforeMailertable,
    /// Behind all maps, before smart host and MX.
    Last,
}

/// Whether a copy's fate is told to the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDsn {
    /// No.
    Never,
    /// As for the message itself.
    AsOriginal,
}

/// When `250` is said to a message that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAcknowledge {
    /// As the listener has it.
    Listener,
    /// As [`Acknowledge::Durable`](super::Acknowledge::Durable).
    Durable,
    /// As [`Acknowledge::Race`](super::Acknowledge::Race).
    Race,
    /// As [`Acknowledge::Interactive`](super::Acknowledge::Interactive).
    Interactive,
}

/// `[[route.rule]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// When it is asked.
    pub at: RuleAt,
    /// Senders; none: all.
    pub sender: Vec<String>,
    /// Recipients; none: all.
    pub recipient: Vec<String>,
    /// Clients; none: all.
    pub client: Vec<IpNet>,
    /// As a value of mailertable; empty: as without the rule.
    pub via: String,
    /// Where copies go: values of mailertable, or addresses.
    pub copy: Vec<String>,
    /// Whether the sender hears of them.
    pub copy_dsn: CopyDsn,
    /// Mail is held, and this is why; empty: it is not.
    pub hold: String,
    /// Mail waits for `mailrace queue retry`.
    pub queue: bool,
    /// When its sender hears that it is accepted.
    pub acknowledge: RuleAcknowledge,
    /// Where connections come from.
    pub source: Vec<IpAddr>,
    /// The name we give; empty: the usual.
    pub hello: String,
    /// The recipient is refused with this reply; empty: he is not.
    pub reject: String,
}

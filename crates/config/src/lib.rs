//! The configuration: one TOML file, every key optional, and where each value came from.
//!
//! The table of `parameters` is the only place that defines a setting: keys, kinds, ranges, defaults and the words that
//! explain them. Reading, checking, `mailrace config …`, the example file, the manual page and `docs/configuration.md`
//! come from it. A file goes through three steps: `reader` walks the TOML and keeps what it understands, `build` fills
//! in the defaults, `rules` looks at values that must fit each other. All problems of all steps come at once.
//!
//! Nothing here opens a file or asks the machine: the text, a [`Machine`] and, for `check`, [`Files`] are given in;
//! `server::config` reads them.
//! A [`Config`] is a value; a reload makes a new one and [`differences`] says what that changes.

#![forbid(unsafe_code)]

mod auth_results;
mod blank;
mod build;
mod choice;
mod cluster;
pub mod commands;
mod destination;
mod difference;
mod dkim;
mod domain;
mod field;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod generate;
mod history;
mod http;
mod instance;
mod kind;
mod layers;
mod limits;
mod loaded;
mod local;
mod lookup;
mod machine;
mod milter_macros;
mod next_host;
mod number;
mod open;
mod overrides;
mod own_keys;
mod parameter;
mod parameters;
mod paths;
mod postmaster;
mod problem;
mod reader;
mod routing;
mod rules;
mod screen;
mod show;
mod suggestion;
#[cfg(test)]
mod tests;
mod toml_string;
mod toml_text;
mod value;
mod webhook;

pub use auth_results::{AuthResults, SenderCheck, SenderFailure, SenderTempError};
#[cfg(feature = "filled")]
pub use blank::filled;
pub use build::load;
pub use cluster::{Cluster, OnNoReplica};
pub use destination::{DestinationRule, EffectiveRule, MxPattern, NextHop, NoNextHop, SetLimit, UsedExtensions};
pub use difference::{Difference, differences, refuses_reload};
pub use dkim::{ArcSealing, Dkim, DkimKey};
pub use domain::RelayDomain;
pub use files::{FileStatus, Files, check_files, check_own_file, unreadable_by_server};
pub use history::History;
pub use http::{Http, HttpClient, HttpRole, HttpToken};
pub use layers::{ConfigText, load_shared, own_part};
pub use limits::{DNS_ADDRESSES_MAX, DNS_HOSTS_MAX, SEGMENT_BYTES_MIN};
pub use loaded::{Loaded, Origin};
pub use local::{Local, Mailbox, Names, NoMailbox, Template, Unknown};
pub use lookup::{Ldap, LdapDetail, LdapReferrals, Sqlite};
pub use machine::Machine;
pub use milter_macros::{MacroValue, MilterMacros, MilterStage, NoMacrosError};
pub use next_host::{Host, HostPort, NoHost};
pub use number::{Rate, octets, size_text, time};
pub use open::{DEFAULT_PATH, VARIABLE, choose, load_bytes};
pub use paths::paths;
pub use problem::{Problem, Severity, render};
pub use routing::{
    AccessRules, BadLine, CopyDsn, DelayChecks, Generics, MapSource, Maps, Precedence, RouteRule, RuleAcknowledge,
    RuleAt,
};
pub use screen::{
    DigestTime, Filter, FilterAddress, FilterFailure, FilterKind, FilterReject, FilterStage, NoDigestTimeError,
    NoFilterAddressError, Quarantine, Screen,
};
pub use webhook::{Webhook, WebhookEvent, WebhookFormat};

use ipnet::IpNet;
use mail::{Address, DomainName};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be set. Parts are grouped as in the file; what each value means in full is in the table of
/// parameters, and `mailrace config explain KEY` prints it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Our name.
    pub hostname: String,
    /// The process.
    pub server: Server,
    /// Where accepted mail is kept.
    pub spool: Spool,
    /// `[[listen]]`; at least one.
    pub listen: Vec<Listen>,
    /// Limits on connecting clients, and the checks before the greeting.
    pub accept: Accept,
    /// The clients and domains that may relay.
    pub relay: Relay,
    /// Limits of a message.
    pub message: Message,
    /// Limits of a session.
    pub smtp: Smtp,
    /// Passwords.
    pub auth: Auth,
    /// Certificates.
    pub tls: Tls,
    /// Names and addresses.
    pub dns: Dns,
    /// Block lists.
    pub dnsbl: Dnsbl,
    /// sendmail's maps.
    pub maps: Maps,
    /// Features of the access map.
    pub access: AccessRules,
    /// The outside addresses of senders.
    pub generics: Generics,
    /// Mail for people and programs of this machine.
    pub local: Local,
    /// The next hop of a message.
    pub route: Route,
    /// `[[route.rule]]`: where mail of some senders or recipients goes.
    pub rules: Vec<RouteRule>,
    /// `[[ldap]]`
    pub ldap: Vec<Ldap>,
    /// `[[sqlite]]`
    pub sqlite: Vec<Sqlite>,
    /// When and how accepted messages are delivered.
    pub delivery: Delivery,
    /// `[[destination]]`: settings for some next hops; see [`Config::rule_for`].
    pub destinations: Vec<DestinationRule>,
    /// Signatures of mail that leaves.
    pub dkim: Dkim,
    /// Seals on forwarded mail of others.
    pub arc: ArcSealing,
    /// The log.
    pub log: Log,
    /// The socket for `mailrace reload` and its like.
    pub control: Control,
    /// Metrics, health, API and page by HTTP.
    pub http: Http,
    /// The way of past messages.
    pub history: History,
    /// Copies of queued mail at other nodes.
    pub cluster: Cluster,
    /// `[[webhook]]`: programs that get outcomes of mail.
    pub webhooks: Vec<Webhook>,
    /// Where programs of this machine hand mail in.
    pub submit: Submit,
    /// Content rules.
    pub screen: Screen,
    /// Sender authentication.
    pub auth_results: AuthResults,
    /// `[[filter]]`: programs that judge mail.
    pub filters: Vec<Filter>,
    /// Mail in quarantine.
    pub quarantine: Quarantine,
    /// Limits that operators have set at run time; the first that fits counts. No key has them.
    pub set_limits: Vec<SetLimit>,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Worker threads; 0: one per core.
    pub threads: u16,
    /// Become this user after binding, when started as root. Empty: stay.
    pub user: String,
    /// Become this group; empty: the user's own.
    pub group: String,
    /// How long open transactions may go on after SIGTERM.
    pub shutdown_grace: Duration,
    /// Close files that the configuration does not name.
    pub landlock: bool,
    /// Further files and directories that may be read, and run.
    pub landlock_read: Vec<PathBuf>,
    /// Further directories that may be written to.
    pub landlock_write: Vec<PathBuf>,
    /// Refuse system calls that mail never needs.
    pub seccomp: bool,
}

/// Where accepted mail is kept. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// The directory.
    pub path: PathBuf,
    /// The most all segments together may take.
    pub size_max: u64,
    /// Room on the file system that is left to others.
    pub free_min: u64,
    /// Free segments that are kept for a storm, in octets.
    pub ready_bytes: u64,
    /// Committer threads, one directory each.
    pub shards: u16,
    /// Size of a segment file.
    pub segment_bytes: u32,
    /// Bodies kept in memory for their first delivery.
    pub cache_bytes: u64,
    /// Messages that were read from the disk and are kept in memory for their other recipients.
    pub shared_bytes: u64,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenProtocol {
    /// SMTP between servers.
    Smtp,
    /// Mail from users (RFC 6409).
    Submission,
    /// Local delivery (RFC 2033).
    Lmtp,
}

/// TLS on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenTls {
    /// None.
    None,
    /// Offered by STARTTLS.
    StartTls,
    /// From the first byte.
    Implicit,
}

/// One listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Name in log lines (`daemon=`).
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// The protocol.
    pub protocol: ListenProtocol,
    /// TLS.
    pub tls: ListenTls,
    /// Refuse mail before TLS.
    pub tls_required: bool,
    /// Clients from these networks begin with a PROXY header; 0.0.0.0/0 and ::/0 for every client.
    pub proxy_protocol: Vec<IpNet>,
    /// Connections at once; 0: only `accept.connections_max` counts.
    pub connections_max: u32,
    /// Refuse MAIL without AUTH.
    pub auth_required: bool,
    /// When a message is said to be accepted.
    pub acknowledge: Acknowledge,
    /// The answer where no other node can keep a copy.
    pub on_no_replica: OnNoReplica,
    /// Bare CR or LF.
    pub bare_newline: smtp::server::BareNewline,
    /// The filters that its mail passes, in order.
    pub filters: Vec<String>,
    /// Strangers are checked as `[auth_results]` says.
    pub auth_results: bool,
    /// The effect of a DMARC failure for a domain with `p=reject`.
    pub dmarc_reject: SenderFailure,
    /// The effect of a DMARC failure for a domain with `p=quarantine`.
    pub dmarc_quarantine: SenderFailure,
    /// The effect of a failed SPF.
    pub spf_fail: SenderFailure,
    /// The effect of an address without a name that leads back to it.
    pub iprev_fail: SenderFailure,
}

/// When `250` is said to a message, the safest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acknowledge {
    /// When it is on stable storage.
    Durable,
    /// Then, or when every next hop has taken it, whichever is first.
    Race,
    /// When every next hop has taken it; it is stored only if that does not happen soon.
    Interactive,
}

/// Limits on connecting clients, and the checks before the greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// Connections that wait for `accept` in the kernel.
    pub backlog: u32,
    /// Connections at once.
    pub connections_max: u32,
    /// Connections at once from one client.
    pub connections_per_client: u32,
    /// New connections per second from one client; 0 no limit.
    pub rate_per_client: u32,
    /// New connections per second in all; 0 no limit.
    pub rate: u32,
    /// Networks to which the limits per client do not apply.
    pub exempt: Vec<IpNet>,
    /// Pause before the greeting, for clients no `greet_pause_for` names.
    pub greet_pause: Duration,
    /// `[[accept.greet_pause_for]]`: the first that fits counts. Loopback and `relay.from` never pause.
    pub greet_pause_for: Vec<(Vec<IpNet>, Duration)>,
    /// Look up the name of the client's address and verify it forward.
    pub reverse_dns: bool,
    /// XCLIENT from these networks.
    pub xclient: Vec<IpNet>,
}

/// The clients and domains that may relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Networks that may send anywhere.
    pub from: Vec<IpNet>,
    /// Domains that anyone may send to.
    pub to: Vec<RelayDomain>,
    /// Files of such, and of clients that may send anywhere: class R of sendmail.
    pub to_files: Vec<PathBuf>,
}

/// Limits of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Octets.
    pub size_max: u64,
    /// Recipients of a transaction.
    pub recipients_max: u32,
    /// `Received:` fields.
    pub hops_max: u32,
    /// Fields of the header section.
    pub header_fields_max: u32,
    /// Octets of the header section.
    pub header_bytes_max: u64,
    /// Octets of a line; 0 no limit.
    pub line_bytes_max: usize,
    /// How long a message may be held before delivery begins; 0 not at all.
    pub hold_max: Duration,
}

/// Limits of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smtp {
    /// Bare CR or LF.
    pub bare_newline: smtp::server::BareNewline,
    /// Commands that leave the grammar.
    pub forgiving: smtp::server::Forgiving,
    /// Octets of a command line.
    pub command_line_bytes_max: usize,
    /// Octets of an AUTH line.
    pub auth_line_bytes_max: usize,
    /// Transactions of a session; 0 no limit.
    pub transactions_max: u32,
    /// Commands that did not work.
    pub errors_max: u32,
    /// Recipients refused.
    pub refused_recipients_max: u32,
    /// Commands that do nothing between two messages.
    pub idle_commands_max: u32,
    /// Waiting for a command.
    pub command_time_max: Duration,
    /// From MAIL to the end of the message.
    pub transaction_time_max: Duration,
    /// The whole session.
    pub session_time_max: Duration,
    /// Octets a second of content; 0 no limit.
    pub rate_bytes_min: u64,
    /// Over what time the rate is measured.
    pub rate_window: Duration,
    /// Offer VRFY and EXPN.
    pub verify: bool,
    /// Extensions that are offered and need not be.
    pub extensions: Vec<String>,
}

/// Passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// SASL mechanisms in the order of preference.
    pub mechanisms: Vec<String>,
    /// The password file.
    pub file: Option<PathBuf>,
    /// A program that is asked, with its arguments; empty for none.
    pub program: Vec<String>,
    /// How long the program may think.
    pub program_time_max: Duration,
    /// Offer AUTH without TLS too.
    pub without_tls: bool,
    /// Failed logins of a client in the window; 0 no limit.
    pub failures_per_client: u32,
    /// Failed logins of a user in the window; 0 no limit.
    pub failures_per_user: u32,
    /// The time in which they count.
    pub failures_window: Duration,
    /// Recipients of a login in an hour; 0 no limit.
    pub recipients_hour_max: u32,
}

/// Certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificate chains; several for an ECDSA and an RSA certificate.
    pub certificate: Vec<PathBuf>,
    /// Key files in the same order.
    pub key: Vec<PathBuf>,
    /// Certificates of those who vouch for clients; none: clients are asked for no certificate.
    pub client_ca: Vec<PathBuf>,
    /// `1.2` or `1.3`.
    pub version_min: String,
    /// How long a handshake may take.
    pub handshake_time_max: Duration,
    /// Certificates of authorities that next hops are judged by; empty: those of the system.
    pub ca_files: Vec<PathBuf>,
}

/// Names and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// Empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// How long one question may take.
    pub timeout: Duration,
    /// Answers kept in memory.
    pub cache_entries_max: u32,
    /// How long after its time an answer still serves while the servers fail; 0: not at all.
    pub stale_max: Duration,
    /// Networks that the answers of name servers lead no mail to.
    pub ignored_addresses: Vec<IpNet>,
    /// `[[dns.override]]`: answers without a question to a name server; the first that fits counts.
    pub overrides: Vec<DnsOverride>,
}

/// The answer for a domain without a question to a name server. One of `mx` and `address` is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsOverride {
    /// Which domain, or which with all below it.
    pub domain: RelayDomain,
    /// The hosts that take its mail, in the order to try them; those of one inner list share the load.
    pub mx: Vec<Vec<Host>>,
    /// Its addresses; it has no MX records then.
    pub address: Vec<IpAddr>,
}

/// Block lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnsbl {
    /// `[[dnsbl.list]]`
    pub list: Vec<DnsblList>,
    /// Sum of weights from which the client is refused.
    pub refuse_at: i32,
    /// How long all lists together may take.
    pub time_max: Duration,
    /// Not asked about these networks, nor about `relay.from`.
    pub exempt: Vec<IpNet>,
}

/// One block list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsblList {
    /// The zone that is asked.
    pub zone: DomainName,
    /// The score that a hit adds; negative for lists of good clients.
    pub weight: i32,
    /// Answers that count.
    pub answers: Vec<IpNet>,
}

/// When delivery is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// At once.
    Background,
    /// On command: `mailrace queue retry`.
    Queue,
}

/// The protocol with the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteProtocol {
    /// SMTP (RFC 5321).
    Smtp,
    /// LMTP (RFC 2033).
    Lmtp,
}

/// TLS with the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTls {
    /// Never.
    None,
    /// Where it is offered and works.
    Opportunistic,
    /// No mail without it.
    Required,
}

impl RouteTls {
    /// The word of the file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Opportunistic => "opportunistic",
            Self::Required => "required",
        }
    }
}

/// Which addresses of a host are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// All.
    Any,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

/// The next hop of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Hosts that take all mail, in the order to try them; those of one inner list share the load and are at least
    /// one. Empty: MX records.
    pub smart_host: Vec<Vec<HostPort>>,
    /// The protocol.
    pub protocol: RouteProtocol,
    /// TLS.
    pub tls: RouteTls,
    /// Passwords of logins at next hops may be sent without TLS.
    pub login_in_clear: bool,
    /// Passwords are sent under TLS whose certificate is not verified.
    pub login_unverified: bool,
    /// The port of MX hosts, not 0.
    pub port: u16,
    /// Which of smarttable and mailertable is asked first.
    pub precedence: Precedence,
}

/// When and how accepted messages are delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When delivery is tried.
    pub mode: DeliveryMode,
    /// Connections to next hops at once.
    pub connections_max: u32,
    /// Connections beside these whose hosts are silent in a transaction.
    pub connections_silent_max: u32,
    /// Jobs in memory that wait for a connection.
    pub jobs_max: u32,
    /// Connections at once to one destination.
    pub connections_per_destination: u32,
    /// Recipients of a message in one transaction.
    pub recipients_per_transaction: u32,
    /// Messages over one connection.
    pub messages_per_connection: u32,
    /// How long a connection without work is kept; 0: not at all.
    pub idle_time: Duration,
    /// The pause after the first failed attempt.
    pub retry_first: Duration,
    /// The longest pause between attempts.
    pub retry_max: Duration,
    /// When the sender is told that his message waits; 0: never.
    pub warn_after: Duration,
    /// When a recipient is given up.
    pub give_up_after: Duration,
    /// The recipient of reports that have no other; `None`: see [`Config::postmaster`].
    pub postmaster: Option<Address>,
    /// Up to what size a message is returned whole, in octets.
    pub return_bytes_max: u64,
    /// For a connection to come about.
    pub connect_time: Duration,
    /// For the greeting.
    pub greeting_time: Duration,
    /// For the reply to a command before DATA.
    pub command_time: Duration,
    /// For the reply to DATA.
    pub data_time: Duration,
    /// For a block of content to be taken.
    pub block_time: Duration,
    /// For the reply to the end of the content.
    pub end_time: Duration,
    /// As `connect_time`, for destinations of which nothing bad is known.
    pub fast_connect_time: Duration,
    /// As `greeting_time`, for the same.
    pub fast_greeting_time: Duration,
    /// As `command_time`, for the same; a later reply moves the destination to the slow ones.
    pub fast_command_time: Duration,
    /// From the first command of a transaction to its last reply, whatever happens between.
    pub transaction_time: Duration,
    /// How long a sender waits for next hops before his message is stored, where the listener says "interactive".
    pub interactive_time: Duration,
    /// After how long without TLS a host that had it lately is spoken to in clear; 0: never.
    pub tls_fallback_after: Duration,
    /// Use PIPELINING where it is offered.
    pub pipelining: bool,
    /// Use CHUNKING where it is offered.
    pub chunking: bool,
    /// Octets of a line that a next hop has to take; longer ones are folded or encoded. 0: any.
    pub line_bytes_max: usize,
    /// Which addresses of a host are used.
    pub address_family: AddressFamily,
    /// `Precedence: bulk`, `list`, `junk` and `List-Id` make a message one of a list, which waits behind others.
    pub bulk_precedence: bool,
    /// The file of rules by which replies get their reason; `None`: the built-in rules.
    pub classes: Option<PathBuf>,
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// As sendmail writes them.
    Sendmail,
    /// One JSON object a line.
    Json,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPath {
    /// Standard output, `-`.
    Stdout,
    /// The socket of syslog.
    Syslog,
    /// The socket of journald.
    Journald,
    /// A file.
    File(PathBuf),
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// Where they go.
    pub path: LogPath,
    /// sendmail's LogLevel.
    pub level: u8,
    /// Lines that may wait for the writer; more are dropped and counted.
    pub queue_lines_max: usize,
    /// The name in lines and for syslog.
    pub tag: String,
    /// The facility for syslog.
    pub facility: String,
}

/// Where programs of this machine hand mail in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submit {
    /// The pickup directory; `None`: there is none.
    pub directory: Option<PathBuf>,
    /// Users whose choice of a sender is not remarked on.
    pub trusted: Vec<String>,
    /// How long a message that was handed in with `-odq` waits for its first attempt.
    pub queue_time: Duration,
    /// Files in the directory that are not taken yet; more are not accepted.
    pub files_max: u32,
    /// Those of them for files of one user other than root.
    pub user_files_max: u32,
    /// Commands of one user that wait for an answer.
    pub user_commands_max: u32,
    /// The filters that this mail passes, in order.
    pub filters: Vec<String>,
}

/// The socket for `mailrace reload` and its like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where it lies.
    pub path: PathBuf,
    /// The part of the queue that users see who may not control the server.
    pub mailq: Mailq,
}

/// The part of the queue that users see who may not control the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mailq {
    /// All of it, as sendmail has it without `restrictmailq`.
    Everyone,
    /// The messages that they have submitted themselves.
    Own,
    /// Nothing.
    Operators,
}

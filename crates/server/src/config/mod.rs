//! The configuration: one TOML file, every key optional.
//!
//! SKELETON: the values; reading, checking and explaining them follow.

use ipnet::IpNet;
use mail::DomainName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that can be set. Parts are grouped as in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Our name.
    pub hostname: String,
    pub server: Server,
    pub spool: Spool,
    /// `[[listen]]`; if there is none, one SMTP listener on 127.0.0.1:2525 (unprivileged) or 0.0.0.0:25 and [::]:25 (root)
    pub listen: Vec<Listen>,
    pub accept: Accept,
    pub relay: Relay,
    pub message: Message,
    pub smtp: Smtp,
    pub auth: Auth,
    pub tls: Tls,
    pub dns: Dns,
    pub dnsbl: Dnsbl,
    pub delivery: Delivery,
    pub log: Log,
    pub control: Control,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Worker threads; 0: one per core.
    pub threads: u16,
    /// Become this user after binding, when started as root. Empty: stay.
    pub user: String,
    pub group: String,
    /// How long open transactions may go on after SIGTERM.
    pub shutdown_grace: Duration,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Spool {
    pub path: PathBuf,
    pub size_max: u64,
    pub free_min: u64,
    pub shards: u16,
    pub segment_bytes: u32,
    pub cache_bytes: u64,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenProtocol { Smtp, Submission, Lmtp }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenTls { None, StartTls, Implicit }
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Name in log lines (`daemon=`): MTA, MSA, LMTP by default.
    pub name: String,
    pub address: SocketAddr,
    pub protocol: ListenProtocol,
    pub tls: ListenTls,
    /// Refuse mail before TLS.
    pub tls_required: bool,
    /// Clients from these networks begin with a PROXY header. `true` means every client.
    pub proxy_protocol: Vec<IpNet>,
    /// 0: only accept.connections_max counts
    pub connections_max: u32,
    /// Refuse MAIL without AUTH. Default true for submission.
    pub auth_required: bool,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Accept {
    pub backlog: u32,
    pub connections_max: u32,
    pub connections_per_client: u32,
    /// New connections per second from one client; 0 no limit.
    pub rate_per_client: u32,
    /// New connections per second in all; 0 no limit.
    pub rate: u32,
    /// Networks to which the limits per client do not apply (default loopback).
    pub exempt: Vec<IpNet>,
    /// Pause before the greeting, for clients no `greet_pause_for` names.
    pub greet_pause: Duration,
    /// `[[accept.greet_pause_for]] networks = [...] pause = "5s"`; the first that fits. Loopback and relay.from: 0.
    pub greet_pause_for: Vec<(Vec<IpNet>, Duration)>,
    /// Look up the name of the client's address (and verify it forward).
    pub reverse_dns: bool,
    /// XCLIENT from these networks.
    pub xclient: Vec<IpNet>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Relay { pub from: Vec<IpNet>, pub to: Vec<DomainName> }
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub size_max: u64,
    pub recipients_max: u32,
    pub hops_max: u32,
    pub header_fields_max: u32,
    pub header_bytes_max: u64,
    pub line_bytes_max: usize,
}
/// Maps onto smtp::server::Limits and Settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Smtp {
    pub bare_newline: smtp::server::BareNewline,
    pub command_line_bytes_max: usize,
    pub auth_line_bytes_max: usize,
    pub transactions_max: u32,
    pub errors_max: u32,
    pub refused_recipients_max: u32,
    pub idle_commands_max: u32,
    pub command_time_max: Duration,
    pub transaction_time_max: Duration,
    pub session_time_max: Duration,
    pub rate_bytes_min: u64,
    pub rate_window: Duration,
    pub verify: bool,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Auth {
    pub mechanisms: Vec<String>,
    pub file: Option<PathBuf>,
    pub program: Vec<String>,
    pub program_time_max: Duration,
    pub without_tls: bool,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    /// Files; several for an ECDSA and an RSA certificate. Key files in the same order.
    pub certificate: Vec<PathBuf>,
    pub key: Vec<PathBuf>,
    /// "1.2" or "1.3"
    pub version_min: String,
    pub handshake_time_max: Duration,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Dns {
    /// Empty: /etc/resolv.conf
    pub servers: Vec<SocketAddr>,
    pub timeout: Duration,
    pub cache_entries_max: u32,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Dnsbl {
    /// `[[dnsbl.list]]`
    pub list: Vec<DnsblList>,
    /// Sum of weights from which the client is refused.
    pub refuse_at: i32,
    pub time_max: Duration,
    /// Not asked about these networks (default loopback and private; relay.from always).
    pub exempt: Vec<IpNet>,
}
#[derive(Clone, Debug, PartialEq)]
pub struct DnsblList { pub zone: DomainName, pub weight: i32, /** Answers that count; empty: 127.0.0.0/8 */ pub answers: Vec<IpNet> }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode { Background, Queue }
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery { pub mode: DeliveryMode }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat { Sendmail, Json }
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPath { Stdout, Syslog, Journald, File(PathBuf) }
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    pub format: LogFormat,
    pub path: LogPath,
    /// sendmail's LogLevel, 0 to 20. Default 9.
    pub level: u8,
    /// Lines that may wait for the writer; more are dropped and counted.
    pub queue_lines_max: usize,
    /// The name in lines and for syslog.
    pub tag: String,
    pub facility: String,
}
#[derive(Clone, Debug, PartialEq)]
pub struct Control { pub path: PathBuf }

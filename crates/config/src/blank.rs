//! A configuration to write the values of the table over. None of these values is ever used.

use super::{
    Accept, AccessRules, Acknowledge, AddressFamily, ArcSealing, Auth, AuthResults, BadLine, Cluster, Config, Control,
    CopyDsn, DelayChecks, Delivery, DeliveryMode, DestinationRule, Dkim, DkimKey, Dns, DnsOverride, Dnsbl, DnsblList,
    Filter, FilterFailure, FilterKind, FilterReject, FilterStage, Generics, History, Http, HttpClient, HttpRole,
    HttpToken, Ldap, LdapDetail, LdapReferrals, Listen, ListenProtocol, ListenTls, Local, Log, LogFormat, LogPath,
    Mailbox, Mailq, MapSource, Maps, Message, OnNoReplica, Precedence, Quarantine, Rate, Relay, RelayDomain, Route,
    RouteProtocol, RouteRule, RouteTls, RuleAcknowledge, RuleAt, Screen, SenderCheck, SenderFailure, SenderTempError,
    Server, Smtp, Spool, Sqlite, Submit, Tls, Unknown, Webhook, WebhookFormat,
};
use mail::DomainName;
use smtp::server::{BareNewline, Forgiving};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Every field holds something that `n` (0 or 1) decides, so that a test finds a field without a parameter.
pub(super) fn config(n: u8) -> Config {
    let time = Duration::from_secs(n.into());
    let text = "x".repeat(n.into());
    let networks = vec![IpAddr::from(Ipv4Addr::LOCALHOST).into(); n.into()];
    Config {
        hostname: text.clone(),
        server: server(n),
        spool: spool(n, &text),
        listen: Vec::new(),
        accept: Accept {
            backlog: n.into(),
            connections_max: n.into(),
            connections_per_client: n.into(),
            rate_per_client: n.into(),
            rate: n.into(),
            exempt: networks.clone(),
            greet_pause: time,
            greet_pause_for: Vec::new(),
            reverse_dns: n == 1,
            xclient: networks.clone(),
        },
        relay: Relay {
            from: networks.clone(),
            to: vec![RelayDomain::new(DomainName::new("x").expect("a name"), false); n.into()],
            to_files: vec![PathBuf::from(&text); n.into()],
        },
        message: Message {
            size_max: n.into(),
            recipients_max: n.into(),
            hops_max: n.into(),
            header_fields_max: n.into(),
            header_bytes_max: n.into(),
            line_bytes_max: n.into(),
            hold_max: time,
        },
        smtp: session(n),
        auth: Auth {
            mechanisms: vec![text.clone(); n.into()],
            file: (n == 1).then(|| PathBuf::from(&text)),
            program: vec![text.clone(); n.into()],
            program_time_max: time,
            without_tls: n == 1,
            failures_per_client: n.into(),
            failures_per_user: n.into(),
            failures_window: time,
            recipients_hour_max: n.into(),
        },
        tls: Tls {
            certificate: vec![PathBuf::from(&text); n.into()],
            key: vec![PathBuf::from(&text); n.into()],
            client_ca: vec![PathBuf::from(&text); n.into()],
            version_min: text.clone(),
            handshake_time_max: time,
            ca_files: vec![PathBuf::from(&text); n.into()],
        },
        dns: Dns {
            servers: vec![SocketAddr::from(([0, 0, 0, 0], 0)); n.into()],
            timeout: time,
            cache_entries_max: n.into(),
            stale_max: time,
            ignored_addresses: networks.clone(),
            overrides: Vec::new(),
        },
        dnsbl: Dnsbl { list: Vec::new(), refuse_at: n.into(), time_max: time, exempt: networks },
        local: local(n),
        route: Route {
            smart_host: vec![Vec::new(); n.into()],
            protocol: if n == 1 { RouteProtocol::Lmtp } else { RouteProtocol::Smtp },
            tls: if n == 1 { RouteTls::Required } else { RouteTls::None },
            login_in_clear: n == 1,
            login_unverified: n == 1,
            port: n.into(),
            precedence: if n == 1 { Precedence::Sender } else { Precedence::Recipient },
        },
        maps: maps(n),
        access: access(n),
        generics: generics(n),
        rules: Vec::new(),
        ldap: Vec::new(),
        sqlite: Vec::new(),
        delivery: delivery(n),
        destinations: Vec::new(),
        dkim: Dkim { keys: Vec::new() },
        arc: arc(n),
        log: log(n),
        control: Control { path: PathBuf::from(&text), mailq: if n == 1 { Mailq::Everyone } else { Mailq::Operators } },
        http: http(n),
        history: history(n),
        cluster: cluster(n, time),
        webhooks: Vec::new(),
        submit: submit(n),
        screen: screen(n),
        auth_results: auth_results(n),
        filters: Vec::new(),
        quarantine: quarantine(n),
        set_limits: Vec::new(),
    }
}

fn quarantine(n: u8) -> Quarantine {
    let text = "x".repeat(n.into());
    Quarantine {
        keep: Duration::from_secs(n.into()),
        digest: text.clone(),
        digest_from: None,
        digest_subject: text.clone(),
        digest_domains: vec![text; n.into()],
    }
}

fn screen(n: u8) -> Screen {
    Screen {
        rules: vec![PathBuf::from("x".repeat(n.into())); n.into()],
        body_bytes_max: n.into(),
        workers: n.into(),
        backlog_max: n.into(),
        backlog_bytes_max: n.into(),
    }
}

fn auth_results(n: u8) -> AuthResults {
    let failure = if n == 1 { SenderFailure::Reject } else { SenderFailure::Tag };
    AuthResults {
        checks: vec![SenderCheck::Arc; n.into()],
        id: "x".repeat(n.into()),
        time_max: Duration::from_secs(n.into()),
        dmarc_reject: failure,
        dmarc_quarantine: failure,
        spf_fail: failure,
        iprev_fail: failure,
        temperror: if n == 1 { SenderTempError::Defer } else { SenderTempError::Pass },
        several_from: n == 1,
        trusted_arc_sealers: Vec::new(),
    }
}

/// A filter.
pub(super) fn filter() -> Filter {
    Filter {
        name: String::new(),
        kind: FilterKind::Milter,
        address: String::new(),
        when: FilterStage::Before250,
        on_failure: FilterFailure::Defer,
        on_reject: FilterReject::Quarantine,
        timeout: Duration::ZERO,
        total_timeout: Duration::ZERO,
        size_max: 0,
        macros: Vec::new(),
        macro_values: Vec::new(),
        idle_max: 0,
        idle_time: Duration::ZERO,
    }
}

fn spool(n: u8, text: &str) -> Spool {
    Spool {
        path: PathBuf::from(text),
        size_max: n.into(),
        free_min: n.into(),
        ready_bytes: n.into(),
        shards: n.into(),
        segment_bytes: n.into(),
        cache_bytes: n.into(),
        shared_bytes: n.into(),
    }
}

/// Makes a configuration in which every field that may be empty holds something.
#[cfg(feature = "filled")]
#[must_use]
pub fn filled() -> Config {
    config(1)
}

fn server(n: u8) -> Server {
    let text = "x".repeat(n.into());
    let paths = vec![PathBuf::from(&text); n.into()];
    Server {
        threads: n.into(),
        user: text.clone(),
        group: text,
        shutdown_grace: Duration::from_secs(n.into()),
        landlock: n == 1,
        landlock_read: paths.clone(),
        landlock_write: paths,
        seccomp: n == 1,
    }
}

fn access(n: u8) -> AccessRules {
    AccessRules {
        delay_checks: if n == 1 { DelayChecks::Yes } else { DelayChecks::No },
        blocklist_recipients: n == 1,
        lookup_dot_domain: n == 1,
        relay_to_full_address: n == 1,
        relay_mail_from: n == 1,
        relay_hosts_only: n == 1,
        client_rate_window: Duration::from_secs(n.into()),
    }
}

fn http(n: u8) -> Http {
    Http {
        address: "x".repeat(n.into()),
        agent_address: "x".repeat(n.into()),
        names: vec!["x".to_owned(); n.into()],
        public_url: "x".repeat(n.into()),
        without_token: if n == 1 { HttpRole::View } else { HttpRole::Operate },
        connections_max: n.into(),
        header_bytes_max: n.into(),
        body_bytes_max: n.into(),
        request_time_max: Duration::from_secs(n.into()),
        certificate: vec![PathBuf::from("x".repeat(n.into())); n.into()],
        key: vec![PathBuf::from("x".repeat(n.into())); n.into()],
        client_ca: vec![PathBuf::from("x".repeat(n.into())); n.into()],
        tokens: Vec::new(),
        clients: Vec::new(),
    }
}

/// A client of HTTP with a certificate.
pub(super) fn http_client() -> HttpClient {
    HttpClient { name: String::new(), role: HttpRole::View }
}

fn log(n: u8) -> Log {
    let text = "x".repeat(n.into());
    Log {
        format: if n == 1 { LogFormat::Json } else { LogFormat::Sendmail },
        path: if n == 1 { LogPath::Syslog } else { LogPath::Journald },
        level: n,
        queue_lines_max: n.into(),
        tag: text.clone(),
        facility: text.clone(),
    }
}

fn arc(n: u8) -> ArcSealing {
    let text = "x".repeat(n.into());
    ArcSealing { seal: n == 1, domain: Some(text.clone()), selector: Some(text) }
}

fn history(n: u8) -> History {
    let path = (n == 1).then(|| PathBuf::from("x"));
    History { path, days: n.into(), messages_max: n.into(), size_max: n.into() }
}

fn cluster(n: u8, time: Duration) -> Cluster {
    let (text, file) = ("x".repeat(n.into()), (n == 1).then(|| PathBuf::from("x")));
    Cluster {
        id: text.clone(),
        node: n.into(),
        engines: vec![text.clone(); n.into()],
        monitor: text.clone(),
        user: text.clone(),
        password_file: file.clone(),
        nkey_file: file.clone(),
        credentials_file: file.clone(),
        system_user: text,
        system_password_file: file.clone(),
        tls: n == 1,
        ca_file: file,
        copies: n,
        lane_size_max: n.into(),
        shared: n == 1,
        host_status: n == 1,
        drain_grace: time,
    }
}

/// A webhook.
pub(super) fn webhook() -> Webhook {
    Webhook {
        name: String::new(),
        url: String::new(),
        format: WebhookFormat::Json,
        events: Vec::new(),
        secret_file: PathBuf::new(),
        queue_max: 0,
        give_up_after: Duration::ZERO,
        request_time_max: Duration::ZERO,
    }
}

/// A token of HTTP.
pub(super) fn http_token() -> HttpToken {
    HttpToken { name: String::new(), file: PathBuf::new(), role: HttpRole::View }
}

fn submit(n: u8) -> Submit {
    let (time, text) = (Duration::from_secs(n.into()), "x".repeat(n.into()));
    Submit {
        directory: (n == 1).then(|| PathBuf::from(&text)),
        trusted: vec![text; n.into()],
        queue_time: time,
        files_max: n.into(),
        user_files_max: n.into(),
        user_commands_max: n.into(),
        filters: vec!["x".to_owned(); n.into()],
    }
}

fn local(n: u8) -> Local {
    let (time, text) = (Duration::from_secs(n.into()), "x".repeat(n.into()));
    Local {
        own_name: n == 1,
        domains: vec![DomainName::new("x").expect("a name"); n.into()],
        domain_files: vec![PathBuf::from("x"); n.into()],
        delimiter: text.clone(),
        unknown: if n == 1 { Unknown::Defer } else { Unknown::Refuse },
        luser_relay: text.clone(),
        accounts: PathBuf::from(&text),
        nss: n == 1,
        forward: n == 1,
        mailbox: if n == 1 { Mailbox::LmtpSocket("/x".into()) } else { Mailbox::None },
        mailbox_user: text.clone(),
        mailbox_group: text.clone(),
        mailbox_size_max: n.into(),
        locks: vec![text.clone(); n.into()],
        lock_time_max: time,
        subfolders: n == 1,
        programs: vec![PathBuf::from("x"); n.into()],
        program_time_max: time,
        program_processes_max: n.into(),
        programs_as_server: n == 1,
        files: vec![text.clone(); n.into()],
        default_user: text,
        uid_min: n.into(),
        list_size_max: n.into(),
        deliveries_max: n.into(),
    }
}

fn session(n: u8) -> Smtp {
    let time = Duration::from_secs(n.into());
    Smtp {
        bare_newline: if n == 1 { BareNewline::Reject } else { BareNewline::Normalize },
        forgiving: if n == 1 { Forgiving::All } else { Forgiving::None },
        command_line_bytes_max: n.into(),
        auth_line_bytes_max: n.into(),
        transactions_max: n.into(),
        errors_max: n.into(),
        refused_recipients_max: n.into(),
        idle_commands_max: n.into(),
        command_time_max: time,
        transaction_time_max: time,
        session_time_max: time,
        rate_bytes_min: n.into(),
        rate_window: time,
        verify: n == 1,
        extensions: vec![String::new(); n.into()],
    }
}

fn delivery(n: u8) -> Delivery {
    let time = Duration::from_secs(n.into());
    Delivery {
        mode: if n == 1 { DeliveryMode::Queue } else { DeliveryMode::Background },
        connections_max: n.into(),
        connections_silent_max: n.into(),
        jobs_max: n.into(),
        connections_per_destination: n.into(),
        recipients_per_transaction: n.into(),
        messages_per_connection: n.into(),
        idle_time: time,
        retry_first: time,
        retry_max: time,
        warn_after: time,
        give_up_after: time,
        postmaster: (n == 1).then(|| "x@x".parse().expect("an address")),
        return_bytes_max: n.into(),
        connect_time: time,
        greeting_time: time,
        command_time: time,
        data_time: time,
        block_time: time,
        end_time: time,
        fast_connect_time: time,
        fast_greeting_time: time,
        fast_command_time: time,
        transaction_time: time,
        interactive_time: time,
        tls_fallback_after: time,
        pipelining: n == 1,
        chunking: n == 1,
        line_bytes_max: n.into(),
        address_family: if n == 1 { AddressFamily::Ipv4 } else { AddressFamily::Any },
        bulk_precedence: n == 1,
        classes: (n == 1).then(|| PathBuf::from("x")),
    }
}

fn generics(n: u8) -> Generics {
    let domains = || vec![RelayDomain::new(DomainName::new("x").expect("a name"), false); n.into()];
    Generics {
        domains: domains(),
        domain_files: vec![PathBuf::from("x"); n.into()],
        envelope: n == 1,
        headers: n == 1,
        recipients: n == 1,
        masquerade: (n == 1).then(|| "x".repeat(n.into())),
        masquerade_domains: domains(),
        masquerade_exceptions: domains(),
        masquerade_limited: n == 1,
        exposed_users: vec!["x".to_owned(); n.into()],
    }
}

fn maps(n: u8) -> Maps {
    let sources = || vec![MapSource::Ldap(String::new()); n.into()];
    Maps {
        directory: (n == 1).then(|| PathBuf::from("x")),
        access: sources(),
        mailertable: sources(),
        virtusertable: sources(),
        genericstable: sources(),
        domaintable: sources(),
        smarttable: sources(),
        aliases: sources(),
        bad_line: if n == 1 { BadLine::KeepOld } else { BadLine::Skip },
        interval: Duration::from_secs(n.into()),
        size_max: n.into(),
        expansions_size_max: n.into(),
        group_writable: n == 1,
    }
}

/// A rule of routing.
pub(super) fn route_rule() -> RouteRule {
    RouteRule {
        at: RuleAt::BeforeMailertable,
        sender: Vec::new(),
        recipient: Vec::new(),
        client: Vec::new(),
        via: String::new(),
        copy: Vec::new(),
        copy_dsn: CopyDsn::Never,
        hold: String::new(),
        queue: false,
        acknowledge: RuleAcknowledge::Listener,
        source: Vec::new(),
        hello: String::new(),
        reject: String::new(),
    }
}

/// A directory.
pub(super) fn ldap() -> Ldap {
    Ldap {
        name: String::new(),
        servers: Vec::new(),
        base: String::new(),
        bind: String::new(),
        password_file: None,
        starttls: false,
        ca_file: None,
        referrals: LdapReferrals::Defer,
        filter: String::new(),
        attribute: String::new(),
        separator: String::new(),
        routing_domains: Vec::new(),
        routing_equivalents: Vec::new(),
        routing_name: String::new(),
        bounce: false,
        detail: LdapDetail::Keep,
        no_domain: false,
        timeout: Duration::ZERO,
        connections: 0,
        cache_time: Duration::ZERO,
        negative_time: Duration::ZERO,
        stale_max: Duration::ZERO,
        cache_entries_max: 0,
    }
}

/// A database.
pub(super) fn sqlite() -> Sqlite {
    Sqlite { name: String::new(), path: PathBuf::new(), query: String::new(), cache_time: Duration::ZERO }
}

/// A listener.
pub(super) fn listen() -> Listen {
    Listen {
        name: String::new(),
        address: SocketAddr::from(([0, 0, 0, 0], 0)),
        protocol: ListenProtocol::Smtp,
        tls: ListenTls::None,
        tls_required: false,
        proxy_protocol: Vec::new(),
        connections_max: 0,
        auth_required: false,
        acknowledge: Acknowledge::Durable,
        on_no_replica: OnNoReplica::TempFail,
        bare_newline: BareNewline::Reject,
        filters: Vec::new(),
        auth_results: false,
        dmarc_reject: SenderFailure::None,
        dmarc_quarantine: SenderFailure::None,
        spf_fail: SenderFailure::None,
        iprev_fail: SenderFailure::None,
    }
}

/// A key for signatures.
pub(super) fn dkim_key() -> DkimKey {
    let domain = DomainName::new("x").expect("a name");
    DkimKey { domain, selector: String::new(), file: PathBuf::new(), sign: false }
}

/// A block list.
pub(super) fn dnsbl_list() -> DnsblList {
    DnsblList { zone: DomainName::new("x").expect("a name"), weight: 0, answers: Vec::new() }
}

/// A rule for next hops.
pub(super) fn destination() -> DestinationRule {
    DestinationRule {
        matches: Vec::new(),
        connections: 0,
        messages_per_second: Rate::NONE,
        recipients_per_transaction: 0,
        messages_per_connection: 0,
        source: Vec::new(),
        hello: DomainName::new("x").expect("a name"),
        tls: RouteTls::None,
        pipelining: false,
        chunking: false,
        size: false,
        eight_bit_mime: false,
        dsn: false,
        shared: false,
    }
}

/// An answer without a question to a name server.
pub(super) fn dns_override() -> DnsOverride {
    let domain = RelayDomain::new(DomainName::new("x").expect("a name"), false);
    DnsOverride { domain, mx: Vec::new(), address: Vec::new() }
}

//! Parameters of connections: listeners, who may connect and relay, names and block lists.

use super::super::choice::Choice as _;
use super::super::field::Field as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::{Acknowledge, ListenProtocol, ListenTls, OnNoReplica, blank};
use super::auth_results::FAILURE;
use super::{DAY, Kind, NETWORKS, PATH, count, count_from_1, fixed, list, seconds};
use ::smtp::server::BareNewline;
use std::time::Duration;

pub(super) static LISTEN: Section = Section {
    key: "listen",
    summary: "a listening socket",
    group: Some(Group {
        len: |config| config.listen.len(),
        push: |config| config.listen.push(blank::listen()),
        preset: |machine| {
            if machine.is_root {
                &[&[("address", "0.0.0.0:25")], &[("address", "[::]:25")]]
            } else {
                &[&[("address", "127.0.0.1:2525")]]
            }
        },
        preset_text: "one for SMTP: on port 25 of all addresses for root, else on 127.0.0.1:2525",
    }),
    parameters: &[
        fixed(
            "listen.address",
            at!(listen[].address),
            Kind::Listen,
            "",
            ":25",
            "address and port; \":25\" stands for 0.0.0.0:25 and [::]:25",
            "A reload binds new addresses and closes old ones; their connections go on. Port 0 takes a free one.",
        )
        .preset(Preset::Required),
        fixed(
            "listen.protocol",
            at!(listen[].protocol),
            Kind::Choice(ListenProtocol::WORDS),
            "smtp",
            "submission",
            "the protocol",
            "",
        ),
        fixed(
            "listen.name",
            at!(listen[].name),
            Kind::Word { empty: false },
            "",
            "MTA-v6",
            "the name of the listener in log lines (daemon=)",
            "",
        )
        .preset(Preset::Derived {
            text: "MTA, MSA or LMTP, by the protocol",
            value: |config, _, index| {
                let protocol = config.listen.get(index).map(|listen| listen.protocol);
                let name = match protocol {
                    None | Some(ListenProtocol::Smtp) => "MTA",
                    Some(ListenProtocol::Submission) => "MSA",
                    Some(ListenProtocol::Lmtp) => "LMTP",
                };
                name.to_owned().value()
            },
        }),
        fixed(
            "listen.tls",
            at!(listen[].tls),
            Kind::Choice(ListenTls::WORDS),
            "",
            "implicit",
            "TLS: none, starttls or implicit",
            "Both need tls.certificate and tls.key.",
        )
        .preset(Preset::Derived {
            text: "\"starttls\" if there is a tls.certificate, else \"none\"",
            value: |config, _, _| {
                if config.tls.certificate.is_empty() { ListenTls::None } else { ListenTls::StartTls }.value()
            },
        }),
        fixed(
            "listen.tls_required",
            at!(listen[].tls_required),
            Kind::Flag,
            "false",
            "true",
            "refuse mail before TLS (530 5.7.0)",
            "RFC 3207 forbids this on a public server.",
        ),
        fixed(
            "listen.proxy_protocol",
            at!(listen[].proxy_protocol),
            Kind::List { of: &Kind::Network, flag: true },
            "[]",
            "[\"10.0.0.5\", \"10.0.1.0/24\"]",
            "networks whose connections begin with a PROXY header (version 1 or 2)",
            "For load balancers: the header names the client for all rules and logs. true trusts every client.",
        ),
        fixed(
            "listen.connections_max",
            at!(listen[].connections_max),
            count("connections"),
            "0",
            "500",
            "connections at once on this listener; 0: accept.connections_max",
            "Above it: 421 4.3.2.",
        ),
        fixed(
            "listen.auth_required",
            at!(listen[].auth_required),
            Kind::Flag,
            "",
            "false",
            "refuse MAIL without AUTH (530 5.7.0)",
            "",
        )
        .preset(Preset::Derived {
            text: "true for protocol = \"submission\", else false",
            value: |config, _, index| {
                config.listen.get(index).is_some_and(|listen| listen.protocol == ListenProtocol::Submission).value()
            },
        }),
        fixed(
            "listen.acknowledge",
            at!(listen[].acknowledge),
            Kind::Choice(Acknowledge::WORDS),
            "durable",
            "race",
            "when a message is acknowledged",
            "250 always means stored, or taken by every next hop. With \"race\" and \"interactive\" a crash before \
             the 250 may cause a duplicate; the sender waits at most delivery.interactive_time. Messages over 64 \
             KiB, or with NOTIFY=SUCCESS, are durable first.",
        ),
        fixed(
            "listen.on_no_replica",
            at!(listen[].on_no_replica),
            Kind::Choice(OnNoReplica::WORDS),
            "tempfail",
            "accept_local",
            "answer where no other node of the cluster can keep a copy",
            "Only with [cluster] and cluster.copies above 1.",
        ),
        fixed(
            "listen.bare_newline",
            at!(listen[].bare_newline),
            Kind::Choice(BareNewline::WORDS),
            "",
            "normalize",
            "effect of a bare CR or LF on this listener",
            "",
        )
        .preset(Preset::Derived { text: "smtp.bare_newline", value: |config, _, _| config.smtp.bare_newline.value() }),
        fixed(
            "listen.filters",
            at!(listen[].filters),
            list(&Kind::Word { empty: false }),
            "[]",
            "[\"dkim\", \"clamav\"]",
            "filters that mail of this listener passes, in order",
            "Names of [[filter]] tables. Content rules judge before them.",
        ),
        fixed(
            "listen.auth_results",
            at!(listen[].auth_results),
            Kind::Flag,
            "",
            "false",
            "check senders as auth_results.checks says",
            "Only mail of strangers: neither relay.from nor logged-in clients are checked.",
        )
        .preset(Preset::Derived {
            text: "true for protocol = \"smtp\", else false",
            value: |config, _, index| {
                config.listen.get(index).is_some_and(|listen| listen.protocol == ListenProtocol::Smtp).value()
            },
        }),
        fixed(
            "listen.dmarc_reject",
            at!(listen[].dmarc_reject),
            FAILURE,
            "",
            "reject",
            "effect of a DMARC failure where the domain has p=reject",
            "",
        )
        .preset(Preset::Derived {
            text: "auth_results.dmarc_reject",
            value: |config, _, _| config.auth_results.dmarc_reject.value(),
        }),
        fixed(
            "listen.dmarc_quarantine",
            at!(listen[].dmarc_quarantine),
            FAILURE,
            "",
            "quarantine",
            "effect of a DMARC failure where the domain has p=quarantine",
            "",
        )
        .preset(Preset::Derived {
            text: "auth_results.dmarc_quarantine",
            value: |config, _, _| config.auth_results.dmarc_quarantine.value(),
        }),
        fixed(
            "listen.spf_fail",
            at!(listen[].spf_fail),
            FAILURE,
            "",
            "tag",
            "effect of an SPF fail, unless DMARC passes",
            "",
        )
        .preset(Preset::Derived {
            text: "auth_results.spf_fail",
            value: |config, _, _| config.auth_results.spf_fail.value(),
        }),
        fixed(
            "listen.iprev_fail",
            at!(listen[].iprev_fail),
            FAILURE,
            "",
            "reject",
            "effect of a client address without a name that leads back to it",
            "",
        )
        .preset(Preset::Derived {
            text: "auth_results.iprev_fail",
            value: |config, _, _| config.auth_results.iprev_fail.value(),
        }),
    ],
};

pub(super) static ACCEPT: Section = Section {
    key: "accept",
    summary: "limits on connections, and the pause before the greeting",
    group: None,
    parameters: &[
        fixed(
            "accept.backlog",
            at!(accept.backlog),
            Kind::Number { min: 1, max: 65_535, unit: "connections" },
            "4096",
            "16384",
            "connections that wait in the kernel",
            "Cut to net.core.somaxconn.",
        )
        .restart(),
        fixed(
            "accept.connections_max",
            at!(accept.connections_max),
            count_from_1("connections"),
            "10000",
            "50000",
            "connections at once",
            "Above it: 421 4.3.2. Each takes a file descriptor and up to 256 KiB.",
        ),
        fixed(
            "accept.connections_per_client",
            at!(accept.connections_per_client),
            count("connections"),
            "100",
            "20",
            "connections at once from one client; 0 for no limit",
            "A client is an IPv4 address or an IPv6 /64. Above it: 421 4.7.0.",
        ),
        fixed(
            "accept.rate_per_client",
            at!(accept.rate_per_client),
            count("connections a second"),
            "0",
            "10",
            "new connections a second from one client; 0 for no limit",
            "Above it: 421 4.7.0.",
        ),
        fixed(
            "accept.rate",
            at!(accept.rate),
            count("connections a second"),
            "0",
            "2000",
            "new connections a second in all; 0 for no limit",
            "Above it: 421 4.3.2.",
        ),
        fixed(
            "accept.exempt",
            at!(accept.exempt),
            NETWORKS,
            "[\"127.0.0.0/8\", \"::1/128\"]",
            "[\"127.0.0.0/8\", \"::1/128\", \"10.0.0.0/8\"]",
            "networks without limits per client",
            "For own hosts and load balancers. Limits of all clients together still hold.",
        ),
        fixed(
            "accept.greet_pause",
            at!(accept.greet_pause),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(300) },
            "0",
            "5s",
            "pause before the greeting; a client that speaks first is refused",
            "Spam programs do not wait. Over 30 seconds some good clients give up. Loopback and relay.from do not \
             wait.",
        ),
        fixed(
            "accept.reverse_dns",
            at!(accept.reverse_dns),
            Kind::Flag,
            "true",
            "false",
            "look up the name of the client's address",
            "In the trace line and the log; \"may be forged\" unless it leads back to the address.",
        ),
        fixed(
            "accept.xclient",
            at!(accept.xclient),
            NETWORKS,
            "[]",
            "[\"10.0.0.5\"]",
            "networks that may speak for other clients with XCLIENT",
            "For filters and proxies in front. They can claim any address, also those of relay.from.",
        ),
    ],
};

pub(super) static GREET_PAUSE_FOR: Section = Section {
    key: "accept.greet_pause_for",
    summary: "another greeting pause for some networks; the first match counts",
    group: Some(Group {
        len: |config| config.accept.greet_pause_for.len(),
        push: |config| config.accept.greet_pause_for.push((Vec::new(), Duration::ZERO)),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "accept.greet_pause_for.networks",
            at!(accept.greet_pause_for[].0),
            NETWORKS,
            "",
            "[\"198.51.100.0/24\"]",
            "the networks",
            "",
        )
        .preset(Preset::Required),
        fixed(
            "accept.greet_pause_for.pause",
            at!(accept.greet_pause_for[].1),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(300) },
            "",
            "10s",
            "their pause; \"0\" for none",
            "",
        )
        .preset(Preset::Required),
    ],
};

pub(super) static RELAY: Section = Section {
    key: "relay",
    summary: "relay rights",
    group: None,
    parameters: &[
        fixed(
            "relay.from",
            at!(relay.from),
            NETWORKS,
            "[\"127.0.0.0/8\", \"::1/128\"]",
            "[\"127.0.0.0/8\", \"::1/128\", \"10.0.0.0/8\"]",
            "networks that may send to any domain",
            "Others may send to relay.to only (550 5.7.1 Relaying denied), unless logged in. A list replaces the \
             default: name loopback too.",
        ),
        fixed(
            "relay.to",
            at!(relay.to),
            list(&Kind::RelayDomain),
            "[]",
            "[\"example.com\", \".example.org\"]",
            "domains that every client may send to",
            "A leading dot means the domain and all below it.",
        ),
        fixed(
            "relay.to_files",
            at!(relay.to_files),
            list(&PATH),
            "",
            "[\"/etc/mail/relay-domains\"]",
            "files of domains and networks, as relay-domains of sendmail",
            "A name includes all below it, unless access.relay_hosts_only; addresses or their first numbers are \
             clients with the right to relay.",
        )
        .preset(Preset::Derived {
            text: "relay-domains in maps.directory, if there is one",
            value: |config, _, _| super::routing::in_directory(config, "relay-domains"),
        }),
    ],
};

pub(super) static DNS: Section = Section {
    key: "dns",
    summary: "names and addresses",
    group: None,
    parameters: &[
        fixed(
            "dns.servers",
            at!(dns.servers),
            list(&Kind::Address { port: 53 }),
            "[]",
            "[\"127.0.0.1\", \"[2001:db8::53]:5353\"]",
            "name servers; none for those of /etc/resolv.conf",
            "Use a resolver on this host: block lists refuse large public ones.",
        ),
        fixed(
            "dns.timeout",
            at!(dns.timeout),
            Kind::Time { min: Duration::from_millis(100), max: Duration::from_secs(60) },
            "5s",
            "2s",
            "time for a question",
            "Then the name is unknown; no client is refused for that.",
        ),
        fixed(
            "dns.cache_entries_max",
            at!(dns.cache_entries_max),
            count("answers"),
            "100000",
            "500000",
            "answers kept in memory",
            "Some 200 bytes each; a domain with mail has three.",
        ),
        fixed(
            "dns.stale_max",
            at!(dns.stale_max),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(7 * DAY) },
            "1h",
            "1d",
            "how long an expired answer serves while the name servers fail; 0 for never",
            "Deliveries only, and only answers with hosts or addresses (RFC 8767). Mail is never sent back for it.",
        ),
        fixed(
            "dns.ignored_addresses",
            at!(dns.ignored_addresses),
            NETWORKS,
            "[\"0.0.0.0/8\", \"127.0.0.1/32\", \"169.254.0.0/16\", \"240.0.0.0/4\", \"::/96\", \"fe80::/10\"]",
            "[]",
            "networks that the hosts of a domain are not looked for in",
            "Such hosts are passed over; mail for a domain with no others fails (5.4.4). Hosts that route.smart_host, \
             a map or dns.override names may have any address.",
        ),
    ],
};

pub(super) static DNS_OVERRIDE: Section = Section {
    key: "dns.override",
    summary: "hosts of a domain without asking the DNS",
    group: Some(Group {
        len: |config| config.dns.overrides.len(),
        push: |config| config.dns.overrides.push(blank::dns_override()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "dns.override.domain",
            at!(dns.overrides[].domain),
            Kind::RelayDomain,
            "",
            "example.com",
            "the domain; with a leading dot all below it too",
            "The first match counts, for deliveries only.",
        )
        .preset(Preset::Required),
        fixed(
            "dns.override.mx",
            at!(dns.overrides[].mx),
            list(&Kind::List { of: &Kind::MxHost, flag: false }),
            "[]",
            "[\"relay1.example.net\", [\"[192.0.2.9]\", \"[2001:db8::9]\"]]",
            "the hosts of its MX records",
            "In order; hosts in inner brackets share the load. Names are looked up, addresses are in brackets. The \
             port is route.port.",
        ),
        fixed(
            "dns.override.address",
            at!(dns.overrides[].address),
            list(&Kind::Ip),
            "[]",
            "[\"192.0.2.9\", \"2001:db8::9\"]",
            "its addresses, as if it had no MX records",
            "Also where the name is a host of an MX record, of dns.override.mx or of route.smart_host.",
        ),
    ],
};

pub(super) static DNSBL: Section = Section {
    key: "dnsbl",
    summary: "block lists in the DNS",
    group: None,
    parameters: &[
        fixed(
            "dnsbl.refuse_at",
            at!(dnsbl.refuse_at),
            Kind::Number { min: 1, max: 1_000_000, unit: "" },
            "1",
            "3",
            "sum of weights that refuses a client",
            "Its recipients get 554 5.7.1 with the zones.",
        ),
        fixed(
            "dnsbl.time_max",
            at!(dnsbl.time_max),
            seconds(1, 60),
            "5s",
            "3s",
            "time for all lists together",
            "A list without an answer counts 0.",
        ),
        fixed(
            "dnsbl.exempt",
            at!(dnsbl.exempt),
            NETWORKS,
            "[\"127.0.0.0/8\", \"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"::1/128\", \"fc00::/7\", \"fe80::/10\"]",
            "[\"127.0.0.0/8\", \"192.0.2.0/24\"]",
            "networks that are not looked up",
            "Nor is relay.from.",
        ),
    ],
};

pub(super) static DNSBL_LIST: Section = Section {
    key: "dnsbl.list",
    summary: "a block list",
    group: Some(Group {
        len: |config| config.dnsbl.list.len(),
        push: |config| config.dnsbl.list.push(blank::dnsbl_list()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "dnsbl.list.zone",
            at!(dnsbl.list[].zone),
            Kind::Domain,
            "",
            "zen.spamhaus.org",
            "the zone that is asked",
            "Most lists want a contract from busy servers.",
        )
        .preset(Preset::Required),
        fixed(
            "dnsbl.list.weight",
            at!(dnsbl.list[].weight),
            Kind::Number { min: -1_000_000, max: 1_000_000, unit: "" },
            "1",
            "2",
            "weight of a hit; negative for a list of good clients",
            "",
        ),
        fixed(
            "dnsbl.list.answers",
            at!(dnsbl.list[].answers),
            NETWORKS,
            "[\"127.0.0.0/8\"]",
            "[\"127.0.0.2\", \"127.0.0.4/30\"]",
            "answers that count as a hit",
            "127.255.255.0/24 is never a hit: the list does not serve this resolver.",
        ),
    ],
};

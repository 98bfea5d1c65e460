//! Parameters of `[[destination]]`: settings for some next hops and not for others.

use super::super::choice::Choice as _;
use super::super::field::Field as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::value::Value;
use super::super::{RouteTls, blank};
use super::{Kind, count_from_1, fixed, list};

pub(super) static DESTINATION: Section = Section {
    key: "destination",
    summary: "settings for some next hops; the first match counts, alone",
    group: Some(Group {
        len: |config| config.destinations.len(),
        push: |config| config.destinations.push(blank::destination()),
        preset: |_| &[],
        preset_text: "none; the keys of [delivery] and [route] hold for all",
    }),
    parameters: &[
        fixed(
            "destination.match",
            at!(destinations[].matches),
            list(&Kind::NextHop),
            "",
            "[\"example.com\", \".example.org\", \"mx:*.outlook.com\", \"hop:smart.example.com:25\"]",
            "next hops of this table",
            "A domain; .domain for all below; [address]; mx: and an MX host (a star is any letters and dots); hop: and a \
             host of route.smart_host; group: and a queue group (QGRP). With route.smart_host only hop: and group: \
             match.",
        )
        .preset(Preset::Required),
        fixed(
            "destination.connections",
            at!(destinations[].connections),
            count_from_1("connections"),
            "",
            "5",
            "connections to each of these destinations",
            "Domains with the same MX hosts share it. If a provider allows N, subtract your other sending hosts; the nodes of a cluster share it (destination.shared).",
        )
        .preset(Preset::Derived {
            text: "delivery.connections_per_destination",
            value: |config, _, _| config.delivery.connections_per_destination.value(),
        }),
        fixed(
            "destination.messages_per_second",
            at!(destinations[].messages_per_second),
            Kind::Rate,
            "0",
            "0.5",
            "messages a second to each, over all connections; 0 for no limit",
            "0.5 is one in two seconds. A second's worth, at least one message, may go at once. For providers that \
             count, and new addresses.",
        ),
        fixed(
            "destination.recipients_per_transaction",
            at!(destinations[].recipients_per_transaction),
            count_from_1("recipients"),
            "",
            "50",
            "recipients of a message in one transaction",
            "The rest follows in further transactions.",
        )
        .preset(Preset::Derived {
            text: "delivery.recipients_per_transaction",
            value: |config, _, _| config.delivery.recipients_per_transaction.value(),
        }),
        fixed(
            "destination.messages_per_connection",
            at!(destinations[].messages_per_connection),
            count_from_1("messages"),
            "",
            "20",
            "messages over one connection before it is closed",
            "Some providers close with a 421 after a number.",
        )
        .preset(Preset::Derived {
            text: "delivery.messages_per_connection",
            value: |config, _, _| config.delivery.messages_per_connection.value(),
        }),
        fixed(
            "destination.source",
            at!(destinations[].source),
            list(&Kind::Ip),
            "[]",
            "[\"192.0.2.7\", \"2001:db8::7\"]",
            "source addresses, one of each family; none: the kernel's choice",
            "It must be on this machine; its DNS name should be destination.hello.",
        ),
        fixed(
            "destination.hello",
            at!(destinations[].hello),
            Kind::Domain,
            "",
            "mta1.example.net",
            "name in EHLO",
            "It should be the name of the source address.",
        )
        .preset(Preset::Derived { text: "hostname", value: |config, _, _| Value::Text(config.hostname.clone()) }),
        fixed(
            "destination.tls",
            at!(destinations[].tls),
            Kind::Choice(RouteTls::WORDS),
            "",
            "required",
            "TLS with the next hop",
            "\"required\" for partners with TLS, \"none\" for a host with broken TLS.",
        )
        .preset(Preset::Derived { text: "route.tls", value: |config, _, _| config.route.tls.value() }),
        fixed(
            "destination.pipelining",
            at!(destinations[].pipelining),
            Kind::Flag,
            "",
            "false",
            "use PIPELINING where offered",
            "false for hosts or firewalls that get it wrong. mailrace notices most of them, and does without for a day.",
        )
        .preset(Preset::Derived {
            text: "delivery.pipelining",
            value: |config, _, _| config.delivery.pipelining.value(),
        }),
        fixed(
            "destination.chunking",
            at!(destinations[].chunking),
            Kind::Flag,
            "",
            "false",
            "use BDAT where CHUNKING is offered",
            "false for hosts or firewalls that get it wrong. mailrace notices most of them, and does without for a day.",
        )
        .preset(Preset::Derived {
            text: "delivery.chunking",
            value: |config, _, _| config.delivery.chunking.value(),
        }),
        fixed(
            "destination.size",
            at!(destinations[].size),
            Kind::Flag,
            "true",
            "false",
            "say SIZE where offered",
            "false for hosts that refuse the parameter or state a wrong limit.",
        ),
        fixed(
            "destination.eight_bit_mime",
            at!(destinations[].eight_bit_mime),
            Kind::Flag,
            "true",
            "false",
            "use 8BITMIME where offered",
            "false for hosts that offer it and damage 8-bit content; it is converted.",
        ),
        fixed(
            "destination.dsn",
            at!(destinations[].dsn),
            Kind::Flag,
            "true",
            "false",
            "pass requests for reports on where DSN is offered",
            "false for hosts that refuse the parameters. Reports of relayed mail are then written here.",
        ),
        fixed(
            "destination.shared",
            at!(destinations[].shared),
            Kind::Flag,
            "true",
            "false",
            "in a cluster, all nodes together keep connections and messages_per_second",
            "false: each node may use them in full, and heeds no other node's failures with these hosts \
             (cluster.host_status). A node that cannot reach a majority of the engines uses an equal part.",
        ),
    ],
};

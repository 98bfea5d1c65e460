//! Parameters of `[[destination]]`: what holds for some next hops and not for others.

use super::super::choice::Choice as _;
use super::super::field::Field as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::value::Value;
use super::super::{RouteTls, blank};
use super::{Kind, count_from_1, fixed, list};

pub(super) static DESTINATION: Section = Section {
    key: "destination",
    summary: "what holds for some next hops; of several tables the first that fits counts, alone",
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
            "the next hops that the table is for",
            "A domain; with a leading dot everything below it as well; an address in brackets for mail to such; mx: and a name of \
             an MX host, in which a star stands for any letters and dots: it fits a domain that has such a host; hop: and a host \
             of route.smart_host; group: and a queue group, which QGRP of the access map gives to recipients. While \
             route.smart_host takes all mail, only hop: and group: fit.",
        )
        .preset(Preset::Required),
        fixed(
            "destination.connections",
            at!(destinations[].connections),
            count_from_1("connections"),
            "",
            "5",
            "connections at once to each destination of these",
            "Domains with the same MX hosts are one destination and share it. Of large providers that say how many they take, \
             write that number less one for each other host that sends for you.",
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
            "messages a second to each of these, over all connections; 0 for no limit",
            "A message with many recipients in one transaction is one. 0.5 is one in two seconds. After a pause \
             a second's worth goes at once, at least one message: in any time no more than the rate gives for it and that. \
             For providers that count, and for new addresses that have to earn a name.",
        ),
        fixed(
            "destination.recipients_per_transaction",
            at!(destinations[].recipients_per_transaction),
            count_from_1("recipients"),
            "",
            "50",
            "recipients of a message in one transaction",
            "The others follow in further transactions.",
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
            "Some providers close it themselves after a number, with a 421 that looks like trouble.",
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
            "where connections come from, one address of each family; none: the kernel's choice",
            "For mail whose reputation should be its own. The address must be on this machine, and its name in the DNS should be \
             destination.hello. Without one of a family the kernel chooses for that family.",
        ),
        fixed(
            "destination.hello",
            at!(destinations[].hello),
            Kind::Domain,
            "",
            "mta1.example.net",
            "the name we give in EHLO",
            "It should be the name of the address that connections come from, or servers that verify names refuse the mail.",
        )
        .preset(Preset::Derived { text: "hostname", value: |config, _, _| Value::Text(config.hostname.clone()) }),
        fixed(
            "destination.tls",
            at!(destinations[].tls),
            Kind::Choice(RouteTls::WORDS),
            "",
            "required",
            "TLS with the next hop",
            "Set \"required\" for partners that are known to have it, and \"none\" for a host whose TLS is broken.",
        )
        .preset(Preset::Derived { text: "route.tls", value: |config, _, _| config.route.tls.value() }),
    ],
};

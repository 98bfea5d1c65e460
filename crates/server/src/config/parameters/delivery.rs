//! Parameters of what happens after a message is accepted: where it goes, how fast, how long it is tried.

use super::super::choice::Choice as _;
use super::super::parameter::{Section, at};
use super::super::{AddressFamily, DeliveryMode, Precedence, RouteProtocol, RouteTls};
use super::{DAY, HOUR, Kind, count, count_from_1, fixed, list, seconds};
use std::time::Duration;

pub(super) static ROUTE: Section = Section {
    key: "route",
    summary: "the next hop of a message",
    group: None,
    parameters: &[
        fixed(
            "route.smart_host",
            at!(route.smart_host),
            list(&Kind::List { of: &Kind::Host, flag: false }),
            "[]",
            "[\"smart1.example.com\", [\"10.0.0.5:2525\", \"10.0.0.6:2525\"]]",
            "hosts that take all mail; empty to deliver by the MX records of each recipient's domain",
            "They are tried in this order, the next one when none before it can be reached. Hosts in brackets of their own \
             share the load. Of a name the addresses are looked up, not the MX records. The port is 25 unless given. \
             Set it where another host does the delivery: a relay of the provider, a gateway, a mailbox server. After a \
             reload waiting messages go the new way at their next attempt.",
        ),
        fixed(
            "route.protocol",
            at!(route.protocol),
            Kind::Choice(RouteProtocol::WORDS),
            "smtp",
            "lmtp",
            "what is spoken with the next hop",
            "LMTP is for a mailbox server behind this one, named in route.smart_host with its port, which RFC 2033 does not \
             let be 25. SMTP is the default because every mail server speaks it.",
        ),
        fixed(
            "route.tls",
            at!(route.tls),
            Kind::Choice(RouteTls::WORDS),
            "opportunistic",
            "required",
            "TLS with the next hop",
            "Set \"required\" for a smart host that is known to have it; with MX hosts it keeps mail from those that have \
             none. No certificate is verified, so it keeps listeners out and not one who stands in the middle. Set \"none\" for a \
             next hop whose TLS is broken. The default encrypts where it can and delivers all the same where it cannot (RFC \
             7435).",
        ),
        fixed(
            "route.login_in_clear",
            at!(route.login_in_clear),
            Kind::Flag,
            "false",
            "true",
            "send passwords of logins at next hops without TLS too",
            "Logins are those of AuthInfo in the access map. PLAIN and LOGIN then show the password to everybody on the way; \
             for a next hop on the same machine or in a tunnel.",
        ),
        fixed(
            "route.port",
            at!(route.port),
            Kind::Number { min: 1, max: 65_535, unit: "" },
            "25",
            "2525",
            "the port of MX hosts",
            "All of the Internet uses 25. Another one is for test set-ups. Hosts of route.smart_host have their own.",
        ),
        fixed(
            "route.precedence",
            at!(route.precedence),
            Kind::Choice(Precedence::WORDS),
            "recipient",
            "sender",
            "which counts when both the sender and the recipient have an entry",
            "With sendmail mailertable always wins, and a . entry in it leaves smarttable nothing. With \"sender\" mail of a sender \
             in smarttable takes his way whatever mailertable says. Mail for local users stays here with both.",
        ),
    ],
};

pub(super) static DELIVERY: Section = Section {
    key: "delivery",
    summary: "when and how accepted messages are delivered",
    group: None,
    parameters: &[
        fixed(
            "delivery.mode",
            at!(delivery.mode),
            Kind::Choice(DeliveryMode::WORDS),
            "background",
            "queue",
            "when delivery is tried",
            "With \"queue\" the server accepts, and delivers on command: messages wait in the spool until \"mailrace queue \
             retry\" names them. It is for maintenance of the next hop and for looking at mail before it leaves. After \
             a reload to \"background\" everything that waits is delivered.",
        ),
        fixed(
            "delivery.connections_max",
            at!(delivery.connections_max),
            count_from_1("connections"),
            "1000",
            "5000",
            "connections to next hops at once, all destinations together",
            "When all are in use, destinations take turns. Each takes a file descriptor and some memory. The default \
             feeds hundreds of slow destinations from a small machine; raise it for mass mail to many domains, together with \
             LimitNOFILE.",
        ),
        fixed(
            "delivery.connections_silent_max",
            at!(delivery.connections_silent_max),
            count("connections"),
            "2000",
            "500",
            "connections beside delivery.connections_max, to hosts silent in a transaction",
            "A host is silent after a second without an answer. Its connection holds no place of delivery.connections_max until \
             its transaction is over. Then it comes back, or goes on beside those that hold one until others need places and \
             it had its turn of five seconds. So many hosts that hang do not hold up those that do not. Each takes a file \
             descriptor and some memory. With 0 there are never more connections than delivery.connections_max.",
        ),
        fixed(
            "delivery.jobs_max",
            at!(delivery.jobs_max),
            count_from_1("jobs"),
            "500000",
            "100000",
            "transactions that wait in memory for a connection, all destinations together",
            "A job is a message with its recipients at one destination, and takes some 150 bytes; what does not fit waits in \
             the spool and is read page by page. A destination has 1,024, or its share where there are many, and 16 at least; \
             as many again where mail came back from the spool. Lower it on a machine with little memory.",
        ),
        fixed(
            "delivery.connections_per_destination",
            at!(delivery.connections_per_destination),
            count_from_1("connections"),
            "20",
            "5",
            "connections at once to one destination",
            "The most; how many there are is learnt: it begins with 5, or this number if that is less, grows \
             while deliveries succeed and is halved when the destination says to slow down. Large providers refuse clients \
             with more than 10 to 20. Raise it for a smart host of your own.",
        ),
        fixed(
            "delivery.recipients_per_transaction",
            at!(delivery.recipients_per_transaction),
            count_from_1("recipients"),
            "100",
            "50",
            "recipients of a message in one transaction",
            "The others follow in further transactions. 100 is what every server must take (RFC 5321); lower it for \
             a destination that takes fewer.",
        ),
        fixed(
            "delivery.messages_per_connection",
            at!(delivery.messages_per_connection),
            count_from_1("messages"),
            "1000",
            "100",
            "messages over one connection before it is closed",
            "A new connection reaches another host behind the same name, so a smaller number spreads the load better. \
             A larger one saves handshakes.",
        ),
        fixed(
            "delivery.idle_time",
            at!(delivery.idle_time),
            seconds(0, 300),
            "5s",
            "30s",
            "how long a connection without work is kept for the next message; 0 to close it at once",
            "It saves a handshake when mail for the same destination follows. Other servers count open connections, \
             so keep it short; longer pays for a smart host of your own.",
        ),
        fixed(
            "delivery.retry_first",
            at!(delivery.retry_first),
            seconds(1, DAY),
            "5m",
            "1m",
            "how long after the first failed attempt a recipient is tried again",
            "The pause doubles with each attempt up to delivery.retry_max and varies by a quarter, so that not all come at \
             once. Greylisting, the most common cause, wants 1 to 5 minutes. A destination that cannot be reached at all \
             is probed by one message for all.",
        ),
        fixed(
            "delivery.retry_max",
            at!(delivery.retry_max),
            seconds(1, DAY),
            "1h",
            "30m",
            "the longest pause between attempts",
            "After an outage of the destination its mail arrives within this time. \"mailrace queue retry\" does not wait.",
        ),
        fixed(
            "delivery.warn_after",
            at!(delivery.warn_after),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(30 * DAY) },
            "4h",
            "0",
            "after what time the sender is told once that his message still waits; 0 for never",
            "Only senders that did not ask otherwise (NOTIFY, or a time with BY). 4 hours is what people know from other servers; \
             earlier tells them of greylisting, which is no news.",
        ),
        fixed(
            "delivery.give_up_after",
            at!(delivery.give_up_after),
            seconds(1, 30 * DAY),
            "5d",
            "2d",
            "after what time a recipient that cannot be reached is returned to the sender",
            "RFC 5321 wants 4 to 5 days at least, so that mail outlives a long weekend. A reload counts for messages that wait \
             too: a shorter time may return many at once.",
        ),
        fixed(
            "delivery.postmaster",
            at!(delivery.postmaster),
            Kind::Mailbox { empty: true },
            "",
            "postmaster@example.com",
            "who gets reports that their sender cannot take; empty for postmaster at our hostname",
            "Such a report tells of a wrong sender address or of a fault of ours. Name a mailbox that somebody reads and \
             that is not on a host this server cannot reach. What this address cannot take either is held in the queue for a person, and logged.",
        ),
        fixed(
            "delivery.return_bytes_max",
            at!(delivery.return_bytes_max),
            Kind::Bytes { min: 0, max: 1 << 30 },
            "50KiB",
            "1MiB",
            "up to what size a message is returned whole in a report of its failure",
            "Of larger ones the header goes back, which is enough to know them by. Whole messages make reports as large as \
             spam that is bounced; 0 returns headers only. A sender that asks for RET=HDRS never gets more, \
             and RET=FULL does not lift this bound.",
        ),
        fixed(
            "delivery.connect_time",
            at!(delivery.connect_time),
            seconds(1, 600),
            "30s",
            "10s",
            "how long a connection may take to come about, for each address",
            "Hosts that are down often do not answer at all; the next address is tried after this time. The kernel alone \
             would wait 2 minutes and more.",
        ),
        fixed(
            "delivery.greeting_time",
            at!(delivery.greeting_time),
            seconds(1, HOUR),
            "5m",
            "1m",
            "how long to wait for the greeting",
            "5 minutes are those of RFC 5321: busy servers and those that pause on purpose greet late.",
        ),
        fixed(
            "delivery.command_time",
            at!(delivery.command_time),
            seconds(1, HOUR),
            "5m",
            "10m",
            "how long to wait for the reply to a command: EHLO, STARTTLS, MAIL, RCPT",
            "5 minutes are those of RFC 5321. Some servers look up much before they answer RCPT.",
        ),
        fixed(
            "delivery.data_time",
            at!(delivery.data_time),
            seconds(1, HOUR),
            "2m",
            "5m",
            "how long to wait for the reply to DATA, before the content is sent",
            "2 minutes are those of RFC 5321.",
        ),
        fixed(
            "delivery.block_time",
            at!(delivery.block_time),
            seconds(1, HOUR),
            "3m",
            "10m",
            "how long the next hop may take no content at all while it is sent",
            "3 minutes are those of RFC 5321.",
        ),
        fixed(
            "delivery.end_time",
            at!(delivery.end_time),
            seconds(1, 2 * HOUR),
            "10m",
            "30m",
            "how long to wait for the reply to the end of the content",
            "10 minutes are those of RFC 5321. The next hop scans and stores the message in this time. Shorter makes \
             duplicates: it may have taken the message although nobody waited for its answer, and gets it again.",
        ),
        fixed(
            "delivery.interactive_time",
            at!(delivery.interactive_time),
            seconds(1, 600),
            "10s",
            "3s",
            "how long the sender waits for next hops where listen.acknowledge is \"interactive\"",
            "After it his message is stored and accepted, and delivery goes on. Senders wait ten minutes by the standard, \
             many programs no more than thirty seconds.",
        ),
        fixed(
            "delivery.fast_connect_time",
            at!(delivery.fast_connect_time),
            seconds(1, 600),
            "5s",
            "3s",
            "the same as delivery.connect_time, for destinations that were not slow before",
            "Hosts that answer take milliseconds. One that does not is slow from then on: it keeps its mail and \
             delivery.connect_time, and takes no place from others any more.",
        ),
        fixed(
            "delivery.fast_greeting_time",
            at!(delivery.fast_greeting_time),
            seconds(1, HOUR),
            "10s",
            "30s",
            "the same as delivery.greeting_time, for destinations that were not slow before",
            "A later greeting costs one attempt: the destination is slow from then on and has delivery.greeting_time. Raise it \
             where most of your mail goes to servers that pause before they greet.",
        ),
        fixed(
            "delivery.fast_command_time",
            at!(delivery.fast_command_time),
            seconds(1, HOUR),
            "20s",
            "1m",
            "the same as delivery.command_time, for destinations that were not slow before",
            "Before the content is sent, a later reply costs one attempt: the destination is slow from then on and has \
             delivery.command_time. A reply to the content that takes longer is waited for, in a place among the slow ones.",
        ),
        fixed(
            "delivery.transaction_time",
            at!(delivery.transaction_time),
            seconds(1, DAY),
            "30m",
            "2h",
            "how long one message may take, from its first command to the last reply",
            "It bounds what a next hop costs that takes an octet now and then and so never reaches the other times. A large \
             message over a slow line needs longer: 50 MiB in 30 minutes are 29 kB a second.",
        ),
        fixed(
            "delivery.tls_fallback_after",
            at!(delivery.tls_fallback_after),
            Kind::Time { min: Duration::ZERO, max: Duration::from_secs(30 * DAY) },
            "4h",
            "1d",
            "after how long a host that has lost its TLS gets mail in clear text; 0 for never",
            "Where TLS is \"opportunistic\". If a handshake fails at a host that had TLS in the last 30 days, or STARTTLS is refused or gone there, somebody on \
             the way may want mail in clear text, so it waits; log and queue say so. Where the host has really lost its TLS, \
             tls = \"none\" in a [[destination]] rule sends at once. A shorter time delivers sooner and is easier to outwait.",
        ),
        fixed(
            "delivery.pipelining",
            at!(delivery.pipelining),
            Kind::Flag,
            "true",
            "false",
            "send commands without waiting for each reply, where the next hop offers PIPELINING",
            "It saves a round trip for each command (RFC 2920). Set false against a next hop or a firewall that offers it and gets \
             it wrong.",
        ),
        fixed(
            "delivery.chunking",
            at!(delivery.chunking),
            Kind::Flag,
            "true",
            "false",
            "send content with BDAT, where the next hop offers CHUNKING",
            "It needs no dots stuffed and no wait for 354, and is the only way for binary content (RFC 3030). Set false against \
             a next hop or a firewall that offers it and gets it wrong.",
        ),
        fixed(
            "delivery.address_family",
            at!(delivery.address_family),
            Kind::Choice(AddressFamily::WORDS),
            "any",
            "ipv4",
            "which addresses of a host are used",
            "Set \"ipv4\" where IPv6 is configured and leads nowhere, or where its addresses have no name in the DNS, for which large \
             providers refuse mail.",
        ),
        fixed(
            "delivery.bulk_precedence",
            at!(delivery.bulk_precedence),
            Kind::Flag,
            "true",
            "false",
            "mail with a List-Id, or of Precedence: bulk, list or junk, waits behind other mail",
            "Where mail has to wait for a connection, personal mail goes first and a list gets a share of the rest, so that it \
             delays nobody and still moves. MT-PRIORITY (RFC 6710) counts before the header.",
        ),
        fixed(
            "delivery.classes",
            at!(delivery.classes),
            Kind::Path { empty: true },
            "",
            "/etc/mailrace/classes",
            "rules by which a reply of a next hop gets its reason; empty for the built-in ones",
            "The reason says whether a refusal is about the recipient, the message, our address or the rate. It stands in the \
             log and in reports, and decides whether we slow down. \"mailrace reason TEXT\" tries a rule.",
        ),
    ],
};

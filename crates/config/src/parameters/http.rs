//! Parameters of HTTP: `[http]` and `[[http.token]]`.

use super::super::choice::Choice as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::{HttpRole, blank};
use super::{HOUR, Kind, PATH, count_from_1, fixed, list, seconds};

pub(super) static HTTP: Section = Section {
    key: "http",
    summary: "metrics, health, API and page by HTTP",
    group: None,
    parameters: &[
        fixed(
            "http.address",
            at!(http.address),
            Kind::Text,
            "",
            "127.0.0.1:8025",
            "address and port; empty for none",
            "An address that is not of this machine alone needs [[http.token]] or [[http.client]], and should have \
             http.certificate.",
        )
        .restart(),
        fixed(
            "http.agent_address",
            at!(http.agent_address),
            Kind::Text,
            "",
            "10.0.0.1:8026",
            "address and port for agent checks of a balancer; empty for none",
            "Each connection gets a line: ready up and free places of 100, drain, or down. Anybody who reaches it reads it. \
             HAProxy needs weight 100 at each server: it rounds a part of 1 down to 0.",
        )
        .restart(),
        fixed(
            "http.names",
            at!(http.names),
            list(&Kind::Text),
            "[]",
            "[\"mail.example.com\"]",
            "names in requests, beside hostname, localhost and addresses",
            "A request for another name is refused (DNS rebinding). Name the proxy's names here.",
        ),
        fixed(
            "http.public_url",
            at!(http.public_url),
            Kind::Text,
            "",
            "https://mail.example.com",
            "where recipients of mail reach this server by HTTP, for links in digests",
            "Usually a proxy with TLS, which passes /quarantine/ and /page/held.css on to http.address.",
        ),
        fixed(
            "http.without_token",
            at!(http.without_token),
            Kind::Choice(HttpRole::WORDS),
            "view",
            "operate",
            "rights of clients while there is no [[http.token]]",
            "Every user of this machine has them. With tokens a client without one has none.",
        ),
        fixed(
            "http.certificate",
            at!(http.certificate),
            list(&PATH),
            "[]",
            "/etc/mailrace/http.pem",
            "certificates in PEM, each with its chain; none: without TLS",
            "Clients then say https:. A reload reads them again.",
        )
        .restart(),
        fixed(
            "http.key",
            at!(http.key),
            list(&PATH),
            "[]",
            "/etc/mailrace/http.key",
            "their keys, in the same order",
            "",
        )
        .restart(),
        fixed(
            "http.client_ca",
            at!(http.client_ca),
            list(&PATH),
            "[]",
            "/etc/mailrace/admins-ca.pem",
            "CAs that vouch for certificates of clients",
            "Clients are asked for a certificate; [[http.client]] says which names have rights.",
        )
        .restart(),
        fixed(
            "http.connections_max",
            at!(http.connections_max),
            count_from_1("connections"),
            "64",
            "200",
            "connections at once",
            "More get 503. An open page takes one or two.",
        )
        .restart(),
        fixed(
            "http.header_bytes_max",
            at!(http.header_bytes_max),
            Kind::Bytes { min: 8 << 10, max: 1 << 20 },
            "16KiB",
            "32KiB",
            "most octets of the header section of a request",
            "More get 431.",
        )
        .restart(),
        fixed(
            "http.body_bytes_max",
            at!(http.body_bytes_max),
            Kind::Bytes { min: 1 << 10, max: 16 << 20 },
            "1MiB",
            "4MiB",
            "most octets of the body of a request",
            "More get 413. A queue id takes 17 octets.",
        )
        .restart(),
        fixed(
            "http.request_time_max",
            at!(http.request_time_max),
            seconds(1, HOUR),
            "30s",
            "10s",
            "time for a request to arrive, and for a part of an answer to be taken",
            "Slower clients get 408 or are cut off.",
        )
        .restart(),
    ],
};

pub(super) static HTTP_CLIENT: Section = Section {
    key: "http.client",
    summary: "a client whose certificate gives rights over HTTP",
    group: Some(Group {
        len: |config| config.http.clients.len(),
        push: |config| config.http.clients.push(blank::http_client()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "http.client.name",
            at!(http.clients[].name),
            Kind::Text,
            "",
            "ann.admin.example.com",
            "common name in its certificate, which http.client_ca vouches for",
            "Its name in the log and at held mail, too.",
        )
        .preset(Preset::Required),
        fixed(
            "http.client.role",
            at!(http.clients[].role),
            Kind::Choice(HttpRole::WORDS),
            "view",
            "operate",
            "its rights",
            "",
        ),
    ],
};

pub(super) static HTTP_TOKEN: Section = Section {
    key: "http.token",
    summary: "a secret that gives rights over HTTP",
    group: Some(Group {
        len: |config| config.http.tokens.len(),
        push: |config| config.http.tokens.push(blank::http_token()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "http.token.name",
            at!(http.tokens[].name),
            Kind::Word { empty: false },
            "",
            "ann",
            "name in the log and at held mail",
            "",
        )
        .preset(Preset::Required),
        fixed(
            "http.token.file",
            at!(http.tokens[].file),
            PATH,
            "",
            "/etc/mailrace/http-ann.token",
            "file whose first line is the secret, 16 characters or more",
            "openssl rand -hex 32 makes one. Clients send it as Authorization: Bearer; the page asks for it.",
        )
        .preset(Preset::Required),
        fixed(
            "http.token.role",
            at!(http.tokens[].role),
            Kind::Choice(HttpRole::WORDS),
            "view",
            "operate",
            "its rights",
            "",
        ),
    ],
};

//! Parameters of webhooks: `[[webhook]]`.

use super::super::choice::Choice as _;
use super::super::parameter::{Group, Preset, Section, at};
use super::super::{WebhookEvent, WebhookFormat, blank};
use super::{DAY, Kind, count_from_1, fixed, list, seconds};

pub(super) static WEBHOOK: Section = Section {
    key: "webhook",
    summary: "a program elsewhere that gets outcomes of mail by HTTP",
    group: Some(Group {
        len: |config| config.webhooks.len(),
        push: |config| config.webhooks.push(blank::webhook()),
        preset: |_| &[],
        preset_text: "none",
    }),
    parameters: &[
        fixed(
            "webhook.name",
            at!(webhooks[].name),
            Kind::Word { empty: false },
            "",
            "ops",
            "name in the log and in metrics",
            "",
        )
        .preset(Preset::Required)
        .restart(),
        fixed(
            "webhook.url",
            at!(webhooks[].url),
            Kind::Text,
            "",
            "https://ops.example.com/mail",
            "where requests go",
            "The certificate has to be good, by tls.ca_files or the CAs of the system. Without TLS, http:, only for a \
             receiver on this machine.",
        )
        .preset(Preset::Required)
        .restart(),
        fixed(
            "webhook.format",
            at!(webhooks[].format),
            Kind::Choice(WebhookFormat::WORDS),
            "json",
            "otlp",
            "the form of requests",
            "",
        )
        .restart(),
        fixed(
            "webhook.secret_file",
            at!(webhooks[].secret_file),
            Kind::Path { empty: true },
            "",
            "/etc/mailrace/webhook-ops.secret",
            "file whose first line is the secret of signatures, 16 characters or more",
            "openssl rand -hex 32 makes one. The form json needs it.",
        )
        .restart(),
        fixed(
            "webhook.events",
            at!(webhooks[].events),
            list(&Kind::Choice(WebhookEvent::WORDS)),
            "[\"sent\", \"failed\"]",
            "[\"failed\", \"reported\"]",
            "the events that it gets",
            "Each is the object of the log in the form json. Of these, accepted, sent, deferred and failed have spans.",
        )
        .restart(),
        fixed(
            "webhook.queue_max",
            at!(webhooks[].queue_max),
            count_from_1("events"),
            "10000",
            "100000",
            "events that may wait",
            "More are dropped and counted. An event of one recipient takes about 360 octets.",
        )
        .restart(),
        fixed(
            "webhook.give_up_after",
            at!(webhooks[].give_up_after),
            seconds(1, 7 * DAY),
            "1d",
            "1h",
            "how long a request that is not taken is repeated",
            "After 1 s, 2 s, 4 s and so on, every five minutes at last.",
        )
        .restart(),
        fixed(
            "webhook.request_time_max",
            at!(webhooks[].request_time_max),
            seconds(1, 300),
            "20s",
            "5s",
            "how long a request may take, from the connection to the status",
            "",
        )
        .restart(),
    ],
};

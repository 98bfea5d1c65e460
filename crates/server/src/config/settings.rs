//! Makes the settings of a session and of the spool from a configuration.

use super::{Config, Listen, ListenProtocol, ListenTls};
use smtp::server::{AuthOffer, Dialect, Limits, Settings};
use std::time::Duration;

/// Settings for the sessions of a listener.
#[must_use]
pub(crate) fn smtp_settings(config: &Config, listen: &Listen) -> Settings {
    let dialect = match listen.protocol {
        ListenProtocol::Smtp => Dialect::Smtp,
        ListenProtocol::Submission => Dialect::Submission,
        ListenProtocol::Lmtp => Dialect::Lmtp,
    };
    let can_check = config.auth.file.is_some() || !config.auth.program.is_empty();
    // A program needs passwords in clear; SCRAM has none to give it.
    let offered = |name: &&String| can_check && (config.auth.program.is_empty() || *name != "SCRAM-SHA-256");
    let offers = |name: &str| config.smtp.extensions.iter().any(|extension| extension == name);
    Settings {
        hostname: config.hostname.as_str().into(),
        dialect,
        starttls: listen.tls == ListenTls::StartTls,
        tls_required: listen.tls_required,
        auth: AuthOffer {
            mechanisms: config.auth.mechanisms.iter().filter(offered).map(|name| name.as_str().into()).collect(),
            without_tls: config.auth.without_tls,
            required: listen.auth_required,
        },
        verify: config.smtp.verify,
        expand: true,
        dsn: true,
        pipelining: true,
        bare_newline: listen.bare_newline,
        forgiving: config.smtp.forgiving,
        mt_priority: offers("MT-PRIORITY"),
        deliver_by: offers("DELIVERBY").then_some(Duration::ZERO),
        future_release: Some(config.message.hold_max).filter(|max| !max.is_zero() && offers("FUTURERELEASE")),
        limits: limits(config),
    }
}

fn limits(config: &Config) -> Limits {
    let (message, smtp) = (&config.message, &config.smtp);
    Limits {
        message_bytes: message.size_max,
        recipients: message.recipients_max,
        transactions: smtp.transactions_max,
        command_line_bytes: smtp.command_line_bytes_max,
        auth_line_bytes: smtp.auth_line_bytes_max,
        content_line_bytes: message.line_bytes_max,
        header_fields: message.header_fields_max,
        header_bytes: message.header_bytes_max,
        hops: message.hops_max,
        errors: smtp.errors_max,
        refused_recipients: smtp.refused_recipients_max,
        idle_commands: smtp.idle_commands_max,
        command_time: smtp.command_time_max,
        transaction_time: smtp.transaction_time_max,
        session_time: smtp.session_time_max,
        rate_bytes: smtp.rate_bytes_min,
        rate_window: smtp.rate_window,
        content_piece_bytes: Limits::default().content_piece_bytes,
    }
}

/// Returns the settings of the spool.
#[must_use]
pub(crate) fn spool_settings(config: &Config) -> spool::Config {
    let of = &config.spool;
    let mut settings = spool::Config::new(&of.path);
    settings.shards = of.shards;
    settings.segment_bytes = of.segment_bytes;
    settings.size_max = of.size_max;
    settings.free_min = of.free_min;
    settings.ready_bytes = of.ready_bytes;
    settings.cache_bytes = usize::try_from(of.cache_bytes).unwrap_or(usize::MAX);
    settings.shared_bytes = usize::try_from(of.shared_bytes).unwrap_or(usize::MAX);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Machine, SEGMENT_BYTES_MIN, load};

    #[test]
    fn defaults_are_those_of_the_rooms() {
        let config = Config::default();
        let settings = smtp_settings(&config, config.listen.first().expect("a listener"));
        assert_eq!(settings.limits, Limits::default());
        assert_eq!((&*settings.hostname, settings.dialect, settings.starttls), ("localhost", Dialect::Smtp, false));
        assert!(settings.auth.mechanisms.is_empty() && !settings.auth.required);
        let (spool, room) = (spool_settings(&config), spool::Config::new("x"));
        assert_eq!(
            (spool.shards, spool.segment_bytes, spool.size_max, spool.free_min, spool.cache_bytes),
            (room.shards, room.segment_bytes, room.size_max, room.free_min, room.cache_bytes)
        );
        assert_eq!(spool.shared_bytes, room.shared_bytes);
    }

    /// The rules of the configuration refuse every configuration that the spool refuses.
    #[test]
    fn the_smallest_spools_can_be_opened() {
        for (segment, shards) in [(SEGMENT_BYTES_MIN, 1), (SEGMENT_BYTES_MIN, 64), (1 << 30, 1), (1 << 30, 64)] {
            let least = 8 * u64::from(segment) * shards;
            let set = |size: u64| {
                let text = format!(
                    "message.size_max = 1024\n[spool]\nsegment_bytes = {segment}\nshards = {shards}\nsize_max = {size}\n"
                );
                load(&text, None, &[], &Machine::default())
            };
            let loaded = set(least).expect("a configuration");
            assert!(spool_settings(&loaded.config).check().is_ok(), "{segment} {shards}");
            assert!(set(least - 1).is_err(), "{segment} {shards}");
        }
    }

    #[test]
    fn what_a_listener_offers() {
        let text = "tls = { certificate = \"/c\", key = \"/k\" }\nauth.program = [\"/p\"]\n\
                    listen = [{ address = \"127.0.0.1:0\", protocol = \"submission\" }, { address = \"127.0.0.1:0\", tls = \"implicit\", protocol = \"lmtp\" }]";
        let config = load(text, None, &[], &Machine::default()).expect("a configuration").config;
        let [submission, lmtp] = config.listen.as_slice() else { panic!("{config:?}") };
        assert_eq!((submission.protocol, submission.name.as_str()), (ListenProtocol::Submission, "MSA"));
        let settings = smtp_settings(&config, submission);
        assert!(settings.starttls && settings.auth.required && !settings.tls_required);
        assert_eq!(settings.auth.mechanisms, ["PLAIN".into(), "LOGIN".into()] as [Box<str>; 2]);
        let settings = smtp_settings(&config, lmtp);
        assert_eq!((settings.dialect, settings.starttls, settings.auth.required), (Dialect::Lmtp, false, false));
    }
}

//! What other rooms take: settings of a session, limits of a spool.

use super::{Config, Listen, ListenProtocol, ListenTls};
use mail::{Address, DomainName, LocalPart};
use smtp::server::{AuthOffer, Dialect, Limits, Settings};
use std::time::Duration;

impl Config {
    /// Settings for the sessions of a listener.
    #[must_use]
    pub fn smtp_settings(&self, listen: &Listen) -> Settings {
        let dialect = match listen.protocol {
            ListenProtocol::Smtp => Dialect::Smtp,
            ListenProtocol::Submission => Dialect::Submission,
            ListenProtocol::Lmtp => Dialect::Lmtp,
        };
        let can_check = self.auth.file.is_some() || !self.auth.program.is_empty();
        // A program is asked for passwords in clear; SCRAM has none to show it.
        let offered = |name: &&String| can_check && (self.auth.program.is_empty() || *name != "SCRAM-SHA-256");
        let offers = |name: &str| self.smtp.extensions.iter().any(|extension| extension == name);
        Settings {
            hostname: self.hostname.as_str().into(),
            dialect,
            starttls: listen.tls == ListenTls::StartTls,
            tls_required: listen.tls_required,
            auth: AuthOffer {
                mechanisms: self.auth.mechanisms.iter().filter(offered).map(|name| name.as_str().into()).collect(),
                without_tls: self.auth.without_tls,
                required: listen.auth_required,
            },
            verify: self.smtp.verify,
            expand: true,
            dsn: true,
            pipelining: true,
            bare_newline: self.smtp.bare_newline,
            mt_priority: offers("MT-PRIORITY"),
            deliver_by: offers("DELIVERBY").then_some(Duration::ZERO),
            future_release: Some(self.message.hold_max).filter(|max| !max.is_zero() && offers("FUTURERELEASE")),
            limits: self.limits(),
        }
    }

    fn limits(&self) -> Limits {
        let (message, smtp) = (&self.message, &self.smtp);
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

    /// How the spool is opened.
    #[must_use]
    pub fn spool(&self) -> spool::Config {
        let mut config = spool::Config::new(&self.spool.path);
        config.shards = self.spool.shards;
        config.segment_bytes = self.spool.segment_bytes;
        config.size_max = self.spool.size_max;
        config.free_min = self.spool.free_min;
        config.cache_bytes = usize::try_from(self.spool.cache_bytes).unwrap_or(usize::MAX);
        config.shared_bytes = usize::try_from(self.spool.shared_bytes).unwrap_or(usize::MAX);
        config
    }
}

impl Config {
    /// Who gets reports that cannot be delivered to the sender: `delivery.postmaster`, else postmaster at our name.
    ///
    /// # Panics
    /// Where the hostname is none, which nothing that was loaded has.
    #[must_use]
    pub fn postmaster(&self) -> Address {
        self.delivery.postmaster.clone().unwrap_or_else(|| {
            self.postmaster_here().expect("a rule refuses a hostname that is too long, and its kind one that is none")
        })
    }

    /// Postmaster at our name; `None` if that is too long for an address.
    pub(super) fn postmaster_here(&self) -> Option<Address> {
        // RFC 5321 §4.5.1
        let domain = DomainName::new(&self.hostname).ok()?;
        Address::new(LocalPart::new("postmaster").ok()?, domain.into()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ListenProtocol, Machine, load};

    #[test]
    fn defaults_are_those_of_the_rooms() {
        let config = Config::default();
        let settings = config.smtp_settings(config.listen.first().expect("a listener"));
        assert_eq!(settings.limits, Limits::default());
        assert_eq!((&*settings.hostname, settings.dialect, settings.starttls), ("localhost", Dialect::Smtp, false));
        assert!(settings.auth.mechanisms.is_empty() && !settings.auth.required);
        let (spool, room) = (config.spool(), spool::Config::new("x"));
        assert_eq!(
            (spool.shards, spool.segment_bytes, spool.size_max, spool.free_min, spool.cache_bytes),
            (room.shards, room.segment_bytes, room.size_max, room.free_min, room.cache_bytes)
        );
        assert_eq!(spool.shared_bytes, room.shared_bytes);
    }

    #[test]
    fn the_postmaster() {
        let mut config = Config::default();
        assert_eq!(config.postmaster().to_string(), "postmaster@localhost");
        config.delivery.postmaster = Some("a@b.example".parse().expect("an address"));
        assert_eq!(config.postmaster().to_string(), "a@b.example");
    }

    #[test]
    fn what_a_listener_offers() {
        let text = "tls = { certificate = \"/c\", key = \"/k\" }\nauth.program = [\"/p\"]\n\
                    listen = [{ address = \"127.0.0.1:0\", protocol = \"submission\" }, { address = \"127.0.0.1:0\", tls = \"implicit\", protocol = \"lmtp\" }]";
        let config = load(text, None, &[], &Machine::default()).expect("a configuration").config;
        let [submission, lmtp] = config.listen.as_slice() else { panic!("{config:?}") };
        assert_eq!((submission.protocol, submission.name.as_str()), (ListenProtocol::Submission, "MSA"));
        let settings = config.smtp_settings(submission);
        assert!(settings.starttls && settings.auth.required && !settings.tls_required);
        assert_eq!(settings.auth.mechanisms, ["PLAIN".into(), "LOGIN".into()] as [Box<str>; 2]);
        let settings = config.smtp_settings(lmtp);
        assert_eq!((settings.dialect, settings.starttls, settings.auth.required), (Dialect::Lmtp, false, false));
    }
}

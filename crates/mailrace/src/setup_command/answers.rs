//! The values that setup asks for, as texts of the configuration file.

use server::config::{Config, HostPort};
use std::net::{IpAddr, SocketAddr};

/// A listener for every address of this machine.
pub(super) const EVERYWHERE: &str = ":25";
/// Listeners for this machine alone.
pub(super) const HERE: [&str; 2] = ["127.0.0.1:25", "[::1]:25"];

/// The values of the new file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetupAnswers {
    pub(super) hostname: String,
    pub(super) domains: Vec<String>,
    pub(super) relay_from: Vec<String>,
    pub(super) smart_hosts: Vec<String>,
    pub(super) certificates: Vec<String>,
    pub(super) keys: Vec<String>,
    /// `None`: listeners stay as they are.
    pub(super) listen: Option<Vec<String>>,
}

impl SetupAnswers {
    /// Returns the values of a configuration; `text`: that of its file, if there is one.
    pub(super) fn of_config(config: &Config, text: Option<&str>) -> Self {
        let texts = |paths: &[std::path::PathBuf]| paths.iter().map(|path| path.display().to_string()).collect();
        Self {
            hostname: config.hostname.clone(),
            domains: config.local.domains.iter().map(ToString::to_string).collect(),
            relay_from: config.relay.from.iter().map(ToString::to_string).collect(),
            smart_hosts: config.route.smart_host.iter().flatten().map(HostPort::to_string).collect(),
            certificates: texts(&config.tls.certificate),
            keys: texts(&config.tls.key),
            listen: text.is_none().then(|| HERE.map(str::to_owned).to_vec()),
        }
    }

    /// Returns whether other machines hand mail in: for the domains of this host, or from networks that may relay.
    pub(super) fn is_for_others(&self) -> bool {
        let is_outside = |network: &String| {
            let ip = network.split('/').next().and_then(|ip| ip.parse::<IpAddr>().ok());
            ip.is_none_or(|ip| !ip.is_loopback())
        };
        !self.domains.is_empty() || self.relay_from.iter().any(is_outside)
    }
}

/// Returns whether a listener of the file takes mail of this machine alone, at the port of SMTP.
pub(super) fn is_for_this_machine(listener: &str) -> bool {
    listener.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback() && address.port() == 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_for_itself_alone_takes_nothing_from_others() {
        let with = |domains: &[&str], networks: &[&str]| {
            let texts = |some: &[&str]| some.iter().map(|&text| text.to_owned()).collect();
            SetupAnswers { domains: texts(domains), relay_from: texts(networks), ..SetupAnswers::default() }
        };
        assert!(!with(&[], &[]).is_for_others() && !with(&[], &["127.0.0.0/8", "::1/128"]).is_for_others());
        assert!(with(&["example.com"], &[]).is_for_others() && with(&[], &["192.0.2.0/24"]).is_for_others());
        assert!(HERE.into_iter().all(is_for_this_machine) && !is_for_this_machine(EVERYWHERE));
    }
}

//! Puts a changed configuration in force, whole or not at all.
//!
//! A reload first does everything that can fail, while the old values are in force: it reads the file, loads
//! passwords and certificates, binds new addresses and opens the log file. Only then it replaces the values, and no
//! step of that can fail. Open connections keep the profile of the listener that accepted them.

use super::http::reload_http_access;
use super::load::{lines, load_tls, open_authenticator, threads, with_places};
use super::server::{Server, lock, register};
use super::source::ConfigSource;
use crate::accept::listener::{self, ConnectionAcceptor as Socket};
use crate::active_config::ActiveConfig;
use crate::auth::Authenticator;
use crate::config::{self, Config, Listen};
use crate::dispatch::Renewal;
use crate::dns::Resolver;
use crate::listener_profile::ListenerProfile;
use crate::log;
use crate::lookup::Lookups;
use crate::routing;
use crate::screen::{self, Screen};
use crate::signing::{KeyFileError, SigningKeys};
use crate::steering::limits_of;
use crate::tls::{Acceptor, TlsProblem};
use observe::Event;
use observe::reason::Rules;
use operator::control::{self, Answer, Reason};
use operator::http::HttpAccess;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Server {
    /// Reads the configuration again, and puts all of it in force or nothing.
    pub(super) async fn reload(self: &Arc<Self>) -> Answer {
        if self.reloading.swap(true, Ordering::SeqCst) {
            return Answer::refused(Reason::Busy, "a reload is going on");
        }
        self.manager.reloading();
        let server = Arc::clone(self);
        // Reading files, hashing and binding block.
        let answer = tokio::task::spawn_blocking(move || server.reload_now()).await;
        self.reloading.store(false, Ordering::SeqCst);
        self.manager.ready("accepting mail");
        if let Some(shared) = self.shared.get() {
            shared.own_file_changed();
        }
        answer.unwrap_or_else(|_| Answer::refused(Reason::Failed, "the reload broke off; the old configuration stays"))
    }

    pub(super) fn reload_now(self: &Arc<Self>) -> Answer {
        let Some(source) = &self.source else { return Answer::refused(Reason::Failed, "a sink has no configuration") };
        let path = source.path.as_ref().map_or_else(|| "(no file)".to_owned(), |path| path.display().to_string());
        match self.prepare_reload(source).map(|prepared| self.put_in_force(prepared)) {
            Ok(Reloaded { changed, refused, warnings, renewal }) => {
                self.context.record(&Event::Reloaded { path: &path, retried: renewal.text().as_deref() });
                for text in &refused {
                    self.context.record(&Event::FileRefused { text });
                }
                for text in &warnings {
                    self.context.record(&Event::ConfigWarning { text });
                }
                self.warn_of_certificates();
                Answer::reloaded(&changed, &[], renewal.ways())
            }
            Err(Refused { error, problems }) => {
                let errors: Vec<String> = match problems.as_slice() {
                    [] => vec![error.clone()],
                    problems => problems.iter().map(ToString::to_string).collect(),
                };
                self.context.record(&Event::ReloadRefused { path: &path, errors: &errors });
                Answer::Refused { reason: Reason::Config, error, problems }
            }
        }
    }

    /// Does everything of a reload that can fail, while the old values are in force.
    fn prepare_reload(&self, source: &ConfigSource) -> Result<PreparedReload, Refused> {
        let loaded = source.read().map_err(|problems| Refused::of(&problems))?;
        let mut values = self.prepare_values(loaded, source.path.as_deref())?;
        let config = &values.config;
        let added = self.bind_added(config)?;
        // The last step that can fail, since it takes effect by itself: open connections too get the new certificate
        // at their handshake, and tickets stay valid.
        let mut of_tls = Vec::new();
        let tls = match lock(&self.tls).clone().filter(|_| !config.tls.certificate.is_empty()) {
            Some(acceptor) => {
                of_tls = reload_certificates(&acceptor, &values.old.config, config)?;
                Some(acceptor)
            }
            None => load_tls(config, &mut of_tls).map_err(|error| Refused::because(error.to_string()))?,
        };
        of_tls.append(&mut values.notes);
        Ok(PreparedReload { values, added, tls, of_tls })
    }

    /// Makes the values of a configuration, with all files that it names but certificates. Nothing takes effect.
    pub(super) fn prepare_values(
        &self,
        loaded: config::Loaded,
        config_file: Option<&Path>,
    ) -> Result<PreparedValues, Refused> {
        let old = self.context.live.load_full();
        let differences = config::differences(&old.config, &loaded.config);
        if let Some(why) = config::refuses_reload(&differences) {
            return Err(Refused::because(why));
        }
        let hardening = self.hardening.as_ref();
        if let Some(why) = hardening.and_then(|hardening| hardening.refuses(&loaded.config, config_file)) {
            return Err(Refused::because(why));
        }
        let mut config = loaded.config.clone();
        config.set_limits = limits_of(&self.context.steering.orders());
        let authenticator = open_authenticator(&config).map_err(|error| Refused::because(error.to_string()))?;
        let reasons = config::read_safe_reasons(config.delivery.classes.as_deref(), &routing::load::trust(&config));
        let reasons = reasons.map_err(|faults| Refused::because(lines(&faults)))?;
        let screen = screen::load(&config, &routing::load::trust(&config));
        let screen = screen.map_err(|faults| Refused::because(lines(&with_places(Some(&loaded), faults))))?;
        let log = log::LogSettings::from_config(&config.log, &config.hostname);
        log::check(&log)
            .map_err(|error| Refused::because(format!("log.path: {error}; name a file that mailrace may write")))?;
        // The resolver reads the present servers and names of the machine. If they are the same, the kept answers
        // stay.
        let resolver = Resolver::new(&config.dns);
        let resolver = resolver.map_err(|error| Refused::because(format!("dns.servers: {error}")))?;
        let resolver = Some(resolver).filter(|resolver| !resolver.is_like(&self.context.resolver.load()));
        // Cached answers stay where the same directories and files are asked.
        let lookups = Arc::new(Lookups::after(&config, &self.context.routing.load().lookups()));
        let maps = routing::load::load(&config, &lookups, Some(&self.context.routing.load_full()));
        let maps = maps.map_err(|faults| Refused::because(lines(&with_places(Some(&loaded), faults))))?;
        let (signing, notes) = reload_signing_keys(&old, &config)?;
        let (http, notes_of_http) = reload_http_access(&old, &config)
            .map_err(|faults| Refused::because(lines(&with_places(Some(&loaded), faults))))?;
        Ok(PreparedValues {
            differences,
            warnings: loaded.warnings.iter().map(config::Problem::line).collect(),
            old,
            config,
            authenticator,
            reasons,
            screen,
            log,
            resolver,
            maps,
            signing,
            http,
            notes: notes.into_iter().chain(notes_of_http).collect(),
            loaded: Arc::new(loaded),
        })
    }

    /// Puts a prepared configuration in force. No step of it fails.
    fn put_in_force(self: &Arc<Self>, prepared: PreparedReload) -> Reloaded {
        let PreparedReload { values, added, tls, of_tls } = prepared;
        let PreparedValues { old, config, authenticator, reasons, screen, log, resolver, maps, .. } = values;
        if let Some(authenticator) = &authenticator {
            authenticator.count_attempts(&config.auth, &config.accept.exempt, old.authenticator.as_deref());
        }
        let mut renewal = Renewal::between(&old.config, &config);
        let routing = Arc::new(maps.routing);
        if !routing.has_hosts_of(&self.context.routing.swap(Arc::clone(&routing))) {
            renewal.add_maps();
        }
        if let Some(resolver) = resolver {
            self.context.resolver.store(Arc::new(resolver));
            renewal.add_dns();
        }
        self.context.log.reconfigure(&log);
        *lock(&self.tls) = tls.clone();
        self.replace_lanes(&config, authenticator.as_deref(), tls.as_ref());
        let mut limits = self.limits(&config);
        limits.listeners.extend(added.iter().map(|(_, listen, _)| listen.connections_max));
        self.limits.replace(limits);
        for (address, listen, sockets) in added {
            self.open(address, ListenerProfile::new(&config, &listen, authenticator.as_deref(), tls.as_ref()), sockets);
        }
        let of_http = self.reload_http_tls(&config);
        let live = ActiveConfig::new(config, authenticator).with_reasons(reasons).with_screen(screen);
        let live = live.with_signing(values.signing).with_http(values.http).with_loaded(Some(values.loaded));
        self.context.live.store(Arc::new(live));
        self.outbound.hosts.set_limits(&self.context.live.load().config);
        self.reconfigure_dispatch(&renewal);
        if let Some(screen_queue) = &self.inbound.screen_queue {
            screen_queue.retry_all();
        }
        let changed = values.differences.iter().map(ToString::to_string).collect();
        let warnings = values.warnings.into_iter().chain(maps.notes).chain(of_tls).chain(of_http);
        Reloaded { changed, refused: maps.refused, warnings: warnings.collect(), renewal }
    }

    /// Binds the addresses that are new.
    fn bind_added(&self, config: &Config) -> Result<Vec<(SocketAddr, Listen, Vec<Socket>)>, Refused> {
        let known: Vec<SocketAddr> = self.open_listeners().iter().map(|one| one.lane.load().listen.address).collect();
        let added: Vec<Listen> =
            config.listen.iter().filter(|listen| !known.contains(&listen.address)).cloned().collect();
        let bound = listener::bind(&added, Vec::new(), config.accept.backlog, usize::from(threads(config)))
            .map_err(|errors| Refused::because(lines(&errors)))?;
        let mut opened = Vec::new();
        for (listen, bound) in added.into_iter().zip(bound.listeners) {
            let sockets = register(bound.address, bound.sockets).map_err(Refused::because)?;
            opened.push((bound.address, listen, sockets));
        }
        Ok(opened)
    }

    /// Gives listeners that stay their new lanes, and closes those that go.
    fn replace_lanes(&self, config: &Config, authenticator: Option<&Authenticator>, tls: Option<&Arc<Acceptor>>) {
        for listener in self.open_listeners() {
            let address = listener.lane.load().listen.address;
            match config.listen.iter().find(|listen| listen.address == address) {
                Some(listen) => listener.lane.store(Arc::new(ListenerProfile::new(config, listen, authenticator, tls))),
                None => listener.close(),
            }
        }
    }
}

/// Reads certificates and keys anew. Files that only root may read, which the start has read, refuse no reload: what
/// was read stays, and the texts say so.
fn reload_certificates(acceptor: &Acceptor, old: &Config, config: &Config) -> Result<Vec<String>, Refused> {
    match acceptor.reload(&config.tls) {
        Ok(()) => Ok(Vec::new()),
        Err(problems) if old.tls == config.tls && problems.iter().all(TlsProblem::is_denied) => {
            let kept = |problem: &TlsProblem| format!("{problem}; the old certificates stay until a restart");
            Ok(problems.iter().map(kept).collect())
        }
        Err(problems) => Err(Refused::because(lines(&problems))),
    }
}

/// Reads the keys of DKIM signatures anew, with the same exception. Returns notes on them, too.
fn reload_signing_keys(old: &ActiveConfig, config: &Config) -> Result<(Arc<SigningKeys>, Vec<String>), Refused> {
    match SigningKeys::load(&config.dkim, &config.arc) {
        Ok(keys) => Ok((Arc::new(keys), Vec::new())),
        Err(faults)
            if (&old.config.dkim, &old.config.arc) == (&config.dkim, &config.arc)
                && faults.iter().all(KeyFileError::is_denied) =>
        {
            let kept = |fault: &KeyFileError| format!("dkim.key.file: {fault}; the old keys stay until a restart");
            Ok((Arc::clone(&old.signing), faults.iter().map(kept).collect()))
        }
        Err(faults) => Err(Refused::because(lines(&faults))),
    }
}

/// The values of a changed configuration, before it is in force.
pub(super) struct PreparedValues {
    differences: Vec<config::Difference>,
    /// Warnings on the configuration.
    warnings: Vec<String>,
    /// The configuration in force.
    old: Arc<ActiveConfig>,
    config: Config,
    authenticator: Option<Arc<Authenticator>>,
    reasons: Rules,
    screen: Option<Arc<Screen>>,
    log: log::LogSettings,
    /// `None`: the present one stays, with its kept answers.
    resolver: Option<Resolver>,
    maps: routing::load::Loaded,
    signing: Arc<SigningKeys>,
    http: Arc<HttpAccess>,
    /// Notes on keys and tokens.
    notes: Vec<String>,
    loaded: Arc<config::Loaded>,
}

/// A changed configuration with everything that it needs, before it is in force.
struct PreparedReload {
    values: PreparedValues,
    /// New addresses and their sockets.
    added: Vec<(SocketAddr, Listen, Vec<Socket>)>,
    tls: Option<Arc<Acceptor>>,
    /// Notes on certificates and keys.
    of_tls: Vec<String>,
}

/// The changes of a successful reload.
struct Reloaded {
    /// As `key changed from … to …`.
    changed: Vec<String>,
    /// Files of maps that others can write.
    refused: Vec<String>,
    warnings: Vec<String>,
    renewal: Renewal,
}

/// Why a reload was refused.
pub(super) struct Refused {
    error: String,
    problems: Vec<control::Problem>,
}

impl Refused {
    fn because(error: impl Into<String>) -> Self {
        Self { error: error.into(), problems: Vec::new() }
    }

    /// The first reason, with its place.
    pub(super) fn first(&self) -> String {
        self.problems.first().map_or_else(|| self.error.clone(), ToString::to_string)
    }

    pub(super) fn of(problems: &[config::Problem]) -> Self {
        // Warnings refuse nothing, and `mailrace check` shows them.
        let problems = problems.iter().filter(|problem| problem.severity == config::Severity::Error);
        let plural = if problems.clone().count() == 1 { "" } else { "s" };
        let error =
            format!("{} error{plural} in the configuration; the old one stays in force", problems.clone().count());
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let problems = problems.map(|problem| control::Problem {
            file: PathBuf::from(&problem.file),
            line: number(problem.line),
            column: number(problem.column),
            text: problem.sentence(),
        });
        Self { error, problems: problems.collect() }
    }
}

#[cfg(test)]
mod tests;

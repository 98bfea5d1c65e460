//! Logs the notes that the spool, the resolver, the authenticator and the certificates collect, and feeds the watchdog.

use super::admin::SENT;
use super::server::{Server, lock};
use crate::dispatch::Renewal;
use crate::dns::{DnsNote, MachineFiles, Resolver};
use observe::counters::Counter;
use observe::{Event, Severity};
use os::{blocking, clock};
use spool::Spool;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks for notes of the spool and others.
const NOTES_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks whether the log file was renamed or deleted.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two looks at the machine's files about names, which count within a minute.
const FILES_INTERVAL: Duration = Duration::from_secs(20);
/// Time between two checks of the expiry of certificates.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(24 * 3_600);

impl Server {
    /// Logs the notes of spool, users, names and certificates.
    pub(crate) fn watch(self: &Arc<Self>, spool: Option<Arc<Spool>>) {
        let server = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let mut ticks = tokio::time::interval(NOTES_INTERVAL);
            let mut looked_at = clock::now();
            let mut log_at = looked_at;
            loop {
                tokio::select! {
                    () = server.context.stop.begun() => return,
                    _ = ticks.tick() => {}
                }
                server.pass_notes(spool.as_deref());
                lock(&server.accepted).add_sample(clock::now(), server.context.log.counter(Counter::Messages));
                lock(&server.sent).add_sample(clock::now(), server.context.log.counter(SENT));
                if clock::now().saturating_duration_since(log_at) >= LOG_INTERVAL {
                    log_at = clock::now();
                    server.context.log.follow_file();
                }
                if clock::now().saturating_duration_since(looked_at) >= CERTIFICATE_INTERVAL {
                    looked_at = clock::now();
                    server.warn_of_certificates();
                }
            }
        });
        let server = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let mut ticks = tokio::time::interval(FILES_INTERVAL);
            loop {
                tokio::select! {
                    () = server.context.stop.begun() => return,
                    _ = ticks.tick() => {}
                }
                let looking = Arc::clone(&server);
                // A panic in it has been logged.
                drop(blocking::run(move || looking.follow_machine_files()).await);
            }
        });
        let server = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let alive = || server.is_alive();
            tokio::select! {
                () = server.context.stop.begun() => {}
                () = server.manager.watch(alive) => {}
            }
        });
        self.warn_of_certificates();
    }

    /// Makes a resolver of what /etc/resolv.conf and /etc/hosts say now, if that has changed. Blocks on the disk.
    fn follow_machine_files(&self) {
        let config = &self.context.live.load_full().config;
        let old = self.context.resolver.load_full();
        let files = MachineFiles::read(&config.dns);
        if old.has_files(&files) {
            return;
        }
        let resolver = match Resolver::with(&config.dns, files) {
            Ok(resolver) => Arc::new(resolver),
            Err(error) => return self.context.record(&Event::ConfigWarning { text: &error.to_string() }),
        };
        // A reload that came in between has read the files as well.
        if !Arc::ptr_eq(&*self.context.resolver.compare_and_swap(&old, Arc::clone(&resolver)), &old) {
            return;
        }
        let servers: Vec<String> = resolver.servers().map(|server| server.ip().to_string()).collect();
        let text = format!("/etc/resolv.conf or /etc/hosts has changed; name servers: {}", servers.join(", "));
        self.context.record(&Event::ConfigWarning { text: &text });
        let mut renewal = Renewal::default();
        renewal.add_dns();
        self.reconfigure_dispatch(&renewal);
    }

    pub(super) fn pass_notes(&self, spool: Option<&Spool>) {
        for event in spool.map(Spool::take_events).unwrap_or_default() {
            let severity = match event {
                spool::Event::SegmentRetired { .. } => Severity::Warning,
                spool::Event::ReadOnly { .. } => Severity::Critical,
                _ => Severity::Error,
            };
            self.context.record(&Event::Spool { severity, text: &event.to_string() });
        }
        for note in self.context.resolver.load().take_notes() {
            self.context.record(&Event::ConfigWarning { text: &note.to_string() });
            if let (DnsNote::Alive, Some(dispatch)) = (note, &self.outbound.dispatch) {
                dispatch.resolver_is_back();
            }
        }
        let live = self.context.live.load_full();
        if let Some(screen) = &live.screen {
            screen.close_idle_connections(clock::now());
        }
        for problem in live.authenticator.iter().flat_map(|authenticator| authenticator.take_problems()) {
            let text = &problem.to_string();
            let is_refusal = problem.is_refusal();
            self.context.record(&if is_refusal { Event::FileRefused { text } } else { Event::ConfigWarning { text } });
        }
    }

    pub(super) fn warn_of_certificates(&self) {
        let acceptors = [lock(&self.tls).clone(), lock(&self.http_tls).clone()];
        for warning in acceptors.iter().flatten().flat_map(|acceptor| acceptor.warnings()) {
            self.context.record(&Event::ConfigWarning { text: &warning.to_string() });
        }
    }
}

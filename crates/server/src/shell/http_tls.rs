//! TLS of HTTP: certificates of its own, and the names of clients with a certificate.

use super::server::{Server, lock};
use super::start_error::StartError;
use crate::config::{self, Config};
use crate::context::Context;
use crate::tls::{Acceptor, ClientCertificate, TlsProblem};
use observe::{Event, Relay};
use operator::http::HttpTransport;
use os::clock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A stream of HTTP, with or without TLS.
pub(super) trait HttpIo: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> HttpIo for T {}

/// Accepts connections of HTTP.
pub(super) struct ServerTransport {
    pub(super) context: Arc<Context>,
    /// `None`: without TLS.
    pub(super) acceptor: Option<Arc<Acceptor>>,
}

impl HttpTransport for ServerTransport {
    type Stream = Box<dyn HttpIo>;

    fn is_plain(&self) -> bool {
        self.acceptor.is_none()
    }

    async fn open(&self, stream: TcpStream, time_max: Duration) -> Option<(Self::Stream, Option<Arc<str>>)> {
        let Some(acceptor) = &self.acceptor else { return Some((Box::new(stream), None)) };
        let peer = stream.peer_addr().ok()?;
        match acceptor.accept(stream, clock::now() + time_max, true).await {
            Ok((stream, _, certificate)) => {
                self.report_refused(&certificate, Relay::address(peer.ip()));
                let name = certificate.verified().and_then(|names| names.common_name.as_deref()).map(Arc::from);
                Some((Box::new(stream), name))
            }
            Err(error) => {
                let (relay, reason) = (Relay::address(peer.ip()), error.to_string());
                self.context.record(&Event::TlsFailed { relay, reason: &format!("http: {reason}") });
                None
            }
        }
    }
}

impl ServerTransport {
    /// Logs a certificate that gives its client no rights; the connection goes on without them.
    fn report_refused(&self, certificate: &ClientCertificate, relay: Relay<'_>) {
        let unnamed = |common_name: Option<&str>| match common_name {
            Some(name) if self.context.live.load().config.http.clients.iter().any(|one| one.name == name) => None,
            Some(name) => Some(format!("no [[http.client]] has the name \"{name}\"")),
            None => Some("it has no common name, so no [[http.client]] fits".to_owned()),
        };
        let (names, why) = match certificate {
            ClientCertificate::NotAsked | ClientCertificate::Nothing => return,
            ClientCertificate::Unverified { names, why } => (names.as_deref(), Some(why.to_string())),
            ClientCertificate::Verified(names) => (Some(&**names), unnamed(names.common_name.as_deref())),
        };
        if let Some(why) = why {
            let subject = names.map(|names| &*names.subject);
            self.context.record(&Event::HttpCertificateRefused { relay, subject, why: &why });
        }
    }
}

/// The settings of `[tls]` with the files of `[http]`.
fn settings(config: &Config) -> config::Tls {
    let http = &config.http;
    let (certificate, key, client_ca) = (http.certificate.clone(), http.key.clone(), http.client_ca.clone());
    config::Tls { certificate, key, client_ca, ..config.tls.clone() }
}

/// Reads certificate and key of HTTP, if the configuration has any.
///
/// # Errors
/// They cannot be used.
pub(super) fn load_http_tls(config: &Config) -> Result<Option<Arc<Acceptor>>, StartError> {
    if config.http.certificate.is_empty() || config.http.socket().is_none() {
        return Ok(None);
    }
    let loaded = Acceptor::load_with(&settings(config), "http.client_ca");
    let refused =
        |problems: Vec<TlsProblem>| StartError::Config(problems.iter().map(told).collect::<Vec<_>>().join("\n"));
    loaded.map(|acceptor| Some(Arc::new(acceptor))).map_err(refused)
}

fn told(problem: &impl fmt::Display) -> String {
    format!("http.certificate: {problem}")
}

impl Server {
    /// Reads certificate and key of HTTP again; those that cannot be used leave the old ones in force. Returns messages
    /// about that.
    pub(super) fn reload_http_tls(&self, config: &Config) -> Vec<String> {
        let acceptor = lock(&self.http_tls).clone();
        let reloaded = acceptor.map_or(Ok(()), |acceptor| acceptor.reload(&settings(config)));
        let kept = |problem: &TlsProblem| format!("{}; the old certificate of HTTP stays", told(problem));
        reloaded.err().into_iter().flatten().map(|problem| kept(&problem)).collect()
    }
}

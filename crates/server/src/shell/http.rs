//! HTTP: binds its address, reads its tokens, and answers its questions with the state of the server.

use super::admin::AdminHandler;
use super::http_tls::ServerTransport;
use super::server::{Server, lock};
use super::start_error::StartError;
use crate::accept::listener::BindError;
use crate::active_config::ActiveConfig;
use crate::config::{self, Config, HttpRole};
use crate::context::Context;
use crate::digest::answer_link;
use crate::tls::Acceptor;
use cluster::StreamState;
use observe::Event;
use observe::counters::Counter;
use operator::answers::StatusAnswer;
use operator::http::{HttpAccess, HttpClient, HttpHandler, HttpLimits, HttpRights, HttpToken, LinkAnswer, serve_http};
use os::safe_file::Trust;
use spool::Pressure;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Octets of a file with a token that are read.
const TOKEN_FILE_OCTETS_MAX: u64 = 4_096;

/// Binds the address of HTTP, if there is one. It does not block.
///
/// # Errors
/// The address cannot be had.
pub(super) fn bind_http(config: &Config) -> Result<Option<TcpListener>, StartError> {
    bind(config.http.socket(), "http.address")
}

/// Binds the address for agent checks, if there is one. It does not block.
///
/// # Errors
/// The address cannot be had.
pub(super) fn bind_agent(config: &Config) -> Result<Option<TcpListener>, StartError> {
    bind(config.http.agent_socket(), "http.agent_address")
}

fn bind(address: Option<SocketAddr>, key: &str) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map(Some).map_err(|error| {
        let error = BindError { entry: 0, address, error, holder: None };
        StartError::Unavailable(format!("{key}: {error}"))
    })
}

/// Reads the tokens of the configuration.
///
/// # Errors
/// Every file that cannot be used, with its key.
pub(super) fn load_http_access(config: &Config) -> Result<Arc<HttpAccess>, Vec<String>> {
    let (mut tokens, mut faults) = (Vec::new(), Vec::new());
    for token in config.http.tokens.iter().filter(|_| config.http.socket().is_some()) {
        let mut text = String::new();
        let shown = token.file.display();
        let read = Trust::secrets(&config.server.user, &config.server.group).open(&token.file);
        let read = read.and_then(|(file, _)| Ok(file.take(TOKEN_FILE_OCTETS_MAX).read_to_string(&mut text)?));
        match read
            .map_err(|error| error.to_string())
            .and_then(|_| HttpToken::read(&token.name, &text, rights(token.role)).map_err(|error| error.to_string()))
        {
            Ok(token) => tokens.push(token),
            Err(why) => faults.push(format!(
                "http.token.file: {shown}: {why}; put a secret into it, as openssl rand -hex 32 makes one"
            )),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let public_name = config.http.public_name().map(str::to_owned);
    let names = config.http.names.iter().chain([&config.hostname]).cloned().collect();
    let client = |one: &config::HttpClient| HttpClient { name: one.name.as_str().into(), rights: rights(one.role) };
    let clients = config.http.clients.iter().map(client).collect();
    Ok(Arc::new(HttpAccess { names, public_name, without_token: rights(config.http.without_token), tokens, clients }))
}

/// Reads the tokens anew. Where the configuration of HTTP is the same and a file cannot be used, perhaps since root
/// alone may read it, the old ones stay; returns texts about that, too.
///
/// # Errors
/// A file of a changed configuration cannot be used.
pub(super) fn reload_http_access(
    old: &ActiveConfig,
    config: &Config,
) -> Result<(Arc<HttpAccess>, Vec<String>), Vec<String>> {
    match load_http_access(config) {
        Ok(access) => Ok((access, Vec::new())),
        Err(faults) if old.config.http == config.http => {
            let kept = |fault: String| format!("{fault}; the old tokens stay until a restart");
            Ok((Arc::clone(&old.http), faults.into_iter().map(kept).collect()))
        }
        Err(faults) => Err(faults),
    }
}

const fn rights(role: HttpRole) -> HttpRights {
    match role {
        HttpRole::None => HttpRights::None,
        HttpRole::View => HttpRights::View,
        HttpRole::Operate => HttpRights::Operate,
    }
}

impl Server {
    /// Answers HTTP until the server has ended, so that a probe sees the stop.
    ///
    /// # Errors
    /// The socket cannot be registered with the runtime.
    pub(crate) fn answer_http(self: &Arc<Self>, listener: TcpListener, tls: Option<Arc<Acceptor>>) -> io::Result<()> {
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let http = self.context.live.load().config.http.clone();
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = HttpLimits {
            connections_max: size(http.connections_max),
            header_bytes_max: size(http.header_bytes_max),
            body_bytes_max: size(http.body_bytes_max),
            request_time_max: http.request_time_max,
        };
        self.http_address.get_or_init(|| address);
        let word = if tls.is_some() { "implicit" } else { "none" };
        self.context.record(&Event::Listening { daemon: "http", address, protocol: "http", tls: word });
        lock(&self.http_tls).clone_from(&tls);
        let transport = ServerTransport { context: Arc::clone(&self.context), acceptor: tls };
        let handler = Arc::new(AdminHandler(Arc::clone(self)));
        lock(&self.tasks).spawn(serve_http(listener, limits, Arc::default(), handler, transport));
        Ok(())
    }

    /// Returns where HTTP is answered.
    pub(super) fn http_address(&self) -> Option<SocketAddr> {
        self.http_address.get().copied()
    }
}

/// Whether the server takes mail; the reason if it does not.
pub(super) fn readiness(context: &Context) -> Result<(), String> {
    let why = match context.message_store.pressure() {
        _ if context.stop.has_begun() => "the server is stopping",
        Pressure::Full => "the spool is full: see spool.size_max and spool.free_min",
        Pressure::Poisoned => "the spool takes no more writes since one has failed: look at the log and restart",
        Pressure::None | Pressure::Slow => return has_holder(context),
    };
    Err(why.to_owned())
}

/// Whether mail that must have a copy gets one.
fn has_holder(context: &Context) -> Result<(), String> {
    let Some(member) = context.message_store.cluster() else { return Ok(()) };
    let status = member.status();
    if let Some(refusal) = status.refusal {
        return Err(refusal);
    }
    if status.is_draining {
        return Err("this node gives its mail to the others and ends (mailrace cluster drain or leave)".to_owned());
    }
    let live = context.live.load();
    let is_needed = |listen: &config::Listen| listen.on_no_replica == config::OnNoReplica::TempFail;
    let needs_holder = live.config.cluster.copies > 1 && live.config.listen.iter().any(is_needed);
    let has_holder = status.cluster.streams.iter().any(|stream| stream.state == StreamState::Open);
    match needs_holder && !has_holder {
        true => Err("no other node takes copies of mail: see mailrace cluster status".to_owned()),
        false => Ok(()),
    }
}

impl HttpHandler for AdminHandler {
    fn access(&self) -> Arc<HttpAccess> {
        Arc::clone(&self.0.context.live.load().http)
    }

    fn readiness(&self) -> Result<(), String> {
        readiness(&self.0.context)
    }

    async fn status(&self) -> StatusAnswer {
        self.0.status(0)
    }

    async fn quarantine_link(&self, text: &str, is_release: bool) -> LinkAnswer {
        match &self.0.outbound.dispatch {
            Some(dispatch) => answer_link(dispatch, text, is_release).await,
            None => LinkAnswer::Gone,
        }
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.0.context.log.counter(counter)
    }
}

//! One connection to the engines, with limits: requests with one answer, and requests with many.
//!
//! The library connects again by itself, to any address of the settings in their order. While there is no connection a
//! request fails at once: a request that waited in the library would be sent long after its maker gave up.

use super::error::EngineAccessError;
use super::settings::{EngineLogin, EngineSettings};
use crate::tls::authorities;
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Message, RequestErrorKind, Subscriber};
use bytes::Bytes;
use os::blocking;
use os::safe_file::{Refusal, Trust};
use rustls::{ClientConfig, RootCertStore};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Octets of a file with a secret.
const SECRET_FILE_BYTES_MAX: u64 = 64 << 10;
/// Requests that wait for their turn on the connection.
const WAITING_REQUESTS_MAX: usize = 256;
/// Answers that wait for their reader; more are dropped, which the readers notice by the sequences.
const WAITING_ANSWERS_MAX: usize = 4_096;
/// The first pause before another attempt to connect; it doubles.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(50);

/// A connection to the engines. Clones share it.
#[derive(Clone, Debug)]
pub struct Engine {
    client: Client,
    connection: watch::Receiver<EngineConnection>,
    request_time_max: Duration,
}

/// The state of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineConnection {
    /// There is one.
    pub is_up: bool,
    /// Connections so far. An engine may have been restarted with another configuration before each.
    pub count: u64,
    /// The last error that engine or library reported.
    pub problem: Option<String>,
}

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// Surely nobody got it: no server has a subscription for its subject.
    NotHeard,
    /// It may have been carried out, or may be later.
    Unknown,
}

impl Engine {
    /// Connects to the first address that answers, and stays connected.
    ///
    /// # Errors
    /// `Settings`, `Unreachable` or `Login`; nothing goes on in the background then.
    /// # Cancel safety
    /// Yes.
    pub async fn connect(settings: &EngineSettings) -> Result<Self, EngineAccessError> {
        let (tell, connection) = watch::channel(EngineConnection::default());
        let tell = Arc::new(tell);
        let options = options(settings).await?.event_callback(move |event| {
            tell.send_modify(|connection| note(connection, &event));
            std::future::ready(())
        });
        let client = open(settings, options, &settings.addresses).await?;
        Ok(Self::from_parts(client, connection, settings.request_time_max))
    }

    /// An engine on a connection that was opened elsewhere.
    pub(super) const fn from_parts(
        client: Client,
        connection: watch::Receiver<EngineConnection>,
        request_time_max: Duration,
    ) -> Self {
        Self { client, connection, request_time_max }
    }

    /// The state of the connection, and its changes.
    #[must_use]
    pub fn connection(&self) -> watch::Receiver<EngineConnection> {
        self.connection.clone()
    }

    /// Time for a request.
    pub(super) const fn request_time_max(&self) -> Duration {
        self.request_time_max
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// True while it is connected to the server of this name.
    pub(super) fn is_named(&self, server: &str) -> bool {
        self.is_connected() && self.client.server_info().server_name == server
    }

    /// The name of the cluster of engines that it is connected to.
    pub(super) fn cluster_name(&self) -> Option<String> {
        self.client.server_info().cluster
    }

    /// Sends a request and waits for one answer.
    ///
    /// # Cancel safety
    /// The request may be carried out all the same.
    pub(super) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, NoAnswer> {
        if !self.is_connected() {
            return Err(NoAnswer::Unknown);
        }
        let mut request = async_nats::Request::new().payload(payload).timeout(None);
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let asked = tokio::time::timeout(self.request_time_max, self.client.send_request(subject, request));
        match asked.await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Err(NoAnswer::NotHeard),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Unknown),
        }
    }

    /// Sends a request whose answers come one by one, until the receiver is dropped.
    ///
    /// # Cancel safety
    /// As [`Engine::request`].
    pub(super) async fn request_many(&self, subject: String, payload: Bytes) -> Result<Subscriber, NoAnswer> {
        if !self.is_connected() {
            return Err(NoAnswer::Unknown);
        }
        let inbox = self.client.new_inbox();
        let begun = async {
            let answers = self.client.subscribe(inbox.clone()).await.map_err(|_| NoAnswer::Unknown)?;
            self.client.publish_with_reply(subject, inbox, payload).await.map_err(|_| NoAnswer::Unknown)?;
            Ok(answers)
        };
        tokio::time::timeout(self.request_time_max, begun).await.unwrap_or(Err(NoAnswer::Unknown))
    }

    /// Receives messages of a subject of its own, which is returned with them.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn inbox(&self) -> Result<(String, Subscriber), NoAnswer> {
        let inbox = self.client.new_inbox();
        Ok((inbox.clone(), self.subscribe(inbox).await?))
    }

    /// Receives the messages of a subject. Those that come faster than they are read are dropped, and so are those of a
    /// time without a connection.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn subscribe(&self, subject: String) -> Result<Subscriber, NoAnswer> {
        let begun = tokio::time::timeout(self.request_time_max, self.client.subscribe(subject));
        match begun.await {
            Ok(Ok(messages)) => Ok(messages),
            Ok(Err(_)) | Err(_) => Err(NoAnswer::Unknown),
        }
    }

    /// Sends a message that nobody answers; it is lost without a connection, and where nobody receives it.
    ///
    /// # Cancel safety
    /// The message may be sent all the same.
    pub(super) async fn send(&self, subject: String, payload: Bytes) {
        if self.is_connected() {
            // Nothing follows from a message that is not sent.
            let sent = tokio::time::timeout(self.request_time_max, self.client.publish(subject, payload));
            drop(sent.await);
        }
    }
}

fn note(connection: &mut EngineConnection, event: &Event) {
    match event {
        Event::Connected => {
            connection.is_up = true;
            connection.count += 1;
        }
        Event::Disconnected | Event::Closed => connection.is_up = false,
        Event::ServerError(error) => connection.problem = Some(error.to_string()),
        Event::ClientError(error) => connection.problem = Some(error.to_string()),
        Event::SlowConsumer(_) => connection.problem = Some("answers came faster than they were read".to_owned()),
        Event::LameDuckMode | Event::Draining => {}
    }
}

/// Opens a connection to one of these addresses.
pub(super) async fn open(
    settings: &EngineSettings,
    options: ConnectOptions,
    addresses: &[String],
) -> Result<Client, EngineAccessError> {
    let scheme = if settings.is_tls { "tls" } else { "nats" };
    let listed = addresses.join(", ");
    let mut servers = Vec::new();
    for address in addresses {
        let parsed = format!("{scheme}://{address}").parse::<async_nats::ServerAddr>();
        servers.push(parsed.map_err(|error| EngineAccessError::Settings {
            why: format!("engine \"{address}\" is no address: {error}; write host:port"),
        })?);
    }
    if servers.is_empty() {
        let why = "no engine is named; write host:port of the nats-server of this node".to_owned();
        return Err(EngineAccessError::Settings { why });
    }
    // The library limits each step; a name with many addresses has many.
    let opened = tokio::time::timeout(settings.connect_time_max, options.connect(servers)).await;
    let unreachable = |why: String| EngineAccessError::Unreachable { address: listed.clone(), why };
    let seconds = settings.connect_time_max.as_secs();
    opened.map_err(|_| unreachable(format!("no answer within {seconds} s")))?.map_err(|error| match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            EngineAccessError::Login { address: listed.clone() }
        }
        _ => unreachable(error.to_string()),
    })
}

/// Options of the library, with secrets and CAs read from their files.
pub(super) async fn options(settings: &EngineSettings) -> Result<ConnectOptions, EngineAccessError> {
    let (login, ca_file) = (settings.login.clone(), settings.ca_file.clone());
    let read = blocking::run(move || Ok((log_in(ConnectOptions::new(), &login)?, tls(ca_file.as_deref())?))).await;
    let read = read.unwrap_or_else(|_| Err("the reading thread broke off".to_owned()));
    let (options, tls) = read.map_err(|why| EngineAccessError::Settings { why })?;
    let longest = settings.reconnect_delay_max;
    Ok(options
        .name(&settings.name)
        .require_tls(settings.is_tls)
        // Also where TLS is not required: an engine may ask for it, and the library's own choice needs a global.
        .tls_client_config(tls)
        .connection_timeout(settings.connect_time_max)
        .ping_interval(settings.ping_interval)
        .client_capacity(WAITING_REQUESTS_MAX)
        .subscription_capacity(WAITING_ANSWERS_MAX)
        // The engine of this node comes first, and certificates are for names of the settings.
        .retain_servers_order()
        .ignore_discovered_servers()
        .reconnect_delay_callback(move |attempts| {
            let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(16);
            (RECONNECT_DELAY_MIN * 2_u32.saturating_pow(doublings)).min(longest)
        }))
}

fn log_in(options: ConnectOptions, login: &EngineLogin) -> Result<ConnectOptions, String> {
    match login {
        EngineLogin::None => Ok(options),
        EngineLogin::Password { user, file } => {
            Ok(options.user_and_password(user.clone(), first_line(&secret(file)?).to_owned()))
        }
        EngineLogin::Nkey(file) => Ok(options.nkey(first_line(&secret(file)?).to_owned())),
        EngineLogin::Credentials(file) => options
            .credentials(&secret(file)?)
            .map_err(|error| format!("{}: no credentials: {error}; write the file anew by nsc", file.display())),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

fn secret(path: &Path) -> Result<String, String> {
    let read = || -> Result<String, Refusal> {
        let (file, _) = Trust::secrets("", "").open(path)?;
        let mut text = String::new();
        file.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|refusal| format!("{}: {refusal}", path.display()))
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        let certificates = authorities::of_file(path).map_err(|problem| problem.to_string())?;
        roots.add_parsable_certificates(certificates);
    } else if let Ok(certificates) = authorities::of_system("cluster") {
        // A machine without CAs reaches engines without TLS, and those with TLS not at all.
        roots.add_parsable_certificates(certificates);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

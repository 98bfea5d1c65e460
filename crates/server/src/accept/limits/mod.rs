//! Decides whether one more connection may have a session: counts and rates, in all, per listener and per client.
//!
//! A client is an IPv4 address or an IPv6 /64, since the holder of one address of a /64 usually has them all. Every
//! decision is one look at a few numbers and a few hash look-ups under one lock: a quarter of a microsecond for the
//! begin and end of a connection, with 30,000 clients. So the lock needs no shards: a hundred thousand connections a
//! second hold it for a few percent of the time.
//!
//! Invariants: a connection that was admitted is counted until its [`AdmittedConnection`] is dropped, exactly once; a
//! refused one takes neither a place nor a token. The table of clients is bounded: those with open connections are at
//! most `accept.connections_max`, those without at most [`IDLE_CLIENTS_MAX`]. An idle client is forgotten when its
//! bucket must be full again, which changes no decision; only a flood of different addresses makes the table forget
//! earlier, which gives such a client one fresh burst.
//!
//! The limits of the access map for a client ([`ClientLimits`]) replace the limits for all clients. Its rate is a
//! number of connections in a window, which [`SlidingWindows`] counts.
//!
//! Time is given; nothing here reads a clock.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::client_network::ClientNetwork;
use crate::sliding_window::SlidingWindows;
pub use crate::sliding_window::{KEYS_MAX as RATED_CLIENTS_MAX, SLOTS};
use ipnet::IpNet;

/// Clients without connections whose rate is remembered. About 2 MB.
pub const IDLE_CLIENTS_MAX: usize = 65_536;

/// A bucket holds the tokens of its rate for this many seconds: a quiet client may open so many connections at once.
pub const BURST_SECONDS: u64 = 5;

/// The limits. 0 means none, except for `connections_max`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `accept.connections_max`: open connections.
    pub connections_max: u32,
    /// `accept.connections_per_client`: open connections of one client.
    pub connections_per_client: u32,
    /// `accept.rate`: new connections a second.
    pub rate: u32,
    /// `accept.rate_per_client`: new connections a second of one client.
    pub rate_per_client: u32,
    /// `accept.exempt`: no limits per client for these.
    pub exempt: Vec<IpNet>,
    /// `access.client_rate_window`: the time in which [`ClientLimits::rate`] counts.
    pub rate_window: Duration,
    /// `listen.connections_max` of each listener, in order. A listener that is not here has none.
    pub listeners: Vec<u32>,
}

impl Settings {
    /// Takes the limits from the configuration.
    #[must_use]
    pub fn new(config: &crate::config::Config) -> Self {
        let accept = &config.accept;
        Self {
            connections_max: accept.connections_max,
            connections_per_client: accept.connections_per_client,
            rate: accept.rate,
            rate_per_client: accept.rate_per_client,
            exempt: accept.exempt.clone(),
            rate_window: config.access.client_rate_window,
            listeners: config.listen.iter().map(|listen| listen.connections_max).collect(),
        }
    }
}

/// Limits of the access map for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// `ClientConn:`: open connections.
    pub connections: Option<OwnMax>,
    /// `ClientRate:`: new connections in [`Settings::rate_window`].
    pub rate: Option<OwnMax>,
}

/// A limit of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMax {
    /// The number; 0 means no limit.
    pub value: u32,
    /// The limit is that of all clients without one of their own; an exempt client is exempt from it.
    pub is_default: bool,
}

/// The limits that count for one client.
#[derive(Clone, Copy)]
struct PerClient {
    connections: (Limit, u32),
    rate: Rate,
}

#[derive(Clone, Copy)]
enum Rate {
    /// Connections a second, with a burst.
    Second(u32),
    /// Connections in a window.
    Window(u32),
}

/// A limit, for the reply, the event and the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Open connections.
    Connections,
    /// Open connections of one listener.
    ListenerConnections,
    /// Open connections of one client.
    ClientConnections,
    /// New connections a second.
    Rate,
    /// New connections a second of one client.
    ClientRate,
    /// Open connections of one client, by the access map.
    AccessConnections,
    /// New connections of one client in a window, by the access map.
    AccessRate,
    /// File descriptors of the process; see [`super::listener`].
    Files,
}

impl Limit {
    /// Returns its name in the configuration, or in the access map.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "accept.connections_max",
            Self::ListenerConnections => "listen.connections_max",
            Self::ClientConnections => "accept.connections_per_client",
            Self::Rate => "accept.rate",
            Self::ClientRate => "accept.rate_per_client",
            Self::AccessConnections => "access.ClientConn",
            Self::AccessRate => "access.ClientRate",
            Self::Files => "RLIMIT_NOFILE",
        }
    }

    /// Returns the reply, ready to be sent. RFC 5321 §3.8 lets a server close after 421 at any time.
    ///
    /// 4.3.2 means that the system is busy, 4.7.0 that the limit is the client's own.
    #[must_use]
    pub const fn reply(self) -> &'static str {
        match self {
            Self::Connections | Self::ListenerConnections | Self::Files => {
                "421 4.3.2 Too many connections, try again later\r\n"
            }
            Self::Rate => "421 4.3.2 Connection rate limit exceeded, try again later\r\n",
            Self::ClientConnections => "421 4.7.0 Too many connections from your address, try again later\r\n",
            Self::ClientRate => "421 4.7.0 Connection rate limit exceeded for your address, try again later\r\n",
            // sendmail's words and codes.
            Self::AccessConnections => "421 4.3.2 Too many open connections.\r\n",
            Self::AccessRate => "421 4.3.2 Connection rate limit exceeded.\r\n",
        }
    }
}

/// Why a connection may have no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which limit was reached.
    pub limit: Limit,
    /// Its value.
    pub value: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} reached", self.limit.name(), self.value)
    }
}

/// The counts now, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Open connections.
    pub connections: u32,
    /// Clients with open connections; exempt ones are not among them.
    pub clients: usize,
    /// Clients without connections whose rate is remembered.
    pub idle_clients: usize,
    /// Clients whose connections are counted in a window, for the access map.
    pub rated_clients: usize,
}

/// A token bucket as one number: the time, in nanoseconds since the limits were made, at which it will be full again.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Bucket(u64);

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

impl Bucket {
    /// Returns whether it has a token.
    fn has(self, rate: u32, now: u64) -> bool {
        // The tokens that are missing leave at least one of the burst.
        rate == 0 || self.0.saturating_sub(now) <= (BURST_SECONDS * SECOND).saturating_sub(Self::token(rate))
    }

    /// Takes a token.
    fn take(&mut self, rate: u32, now: u64) {
        if rate != 0 {
            self.0 = self.0.max(now).saturating_add(Self::token(rate));
        }
    }

    fn token(rate: u32) -> u64 {
        SECOND / u64::from(rate)
    }
}

#[derive(Default)]
struct ClientUse {
    open: u32,
    bucket: Bucket,
}

#[derive(Default)]
struct LimitsState {
    settings: Settings,
    connections: u32,
    listeners: Vec<u32>,
    bucket: Bucket,
    /// Clients with open connections.
    open: HashMap<ClientNetwork, ClientUse>,
    /// Buckets of clients without connections: those since `rotated` and those from before.
    young: HashMap<ClientNetwork, Bucket>,
    old: HashMap<ClientNetwork, Bucket>,
    rotated: u64,
    windows: SlidingWindows<ClientNetwork>,
}

impl LimitsState {
    fn check_common(&self, listener: usize, now: u64) -> Result<(), Refusal> {
        let Settings { connections_max, rate, ref listeners, .. } = self.settings;
        if self.connections >= connections_max {
            return Err(Refusal { limit: Limit::Connections, value: connections_max });
        }
        let listener_max = listeners.get(listener).copied().unwrap_or(0);
        if listener_max != 0 && self.listeners.get(listener).copied().unwrap_or(0) >= listener_max {
            return Err(Refusal { limit: Limit::ListenerConnections, value: listener_max });
        }
        if !self.bucket.has(rate, now) {
            return Err(Refusal { limit: Limit::Rate, value: rate });
        }
        Ok(())
    }

    fn take_common(&mut self, listener: usize, now: u64) {
        self.connections += 1;
        if self.listeners.len() <= listener {
            self.listeners.resize(listener + 1, 0);
        }
        if let Some(open) = self.listeners.get_mut(listener) {
            *open += 1;
        }
        self.bucket.take(self.settings.rate, now);
    }

    /// Returns the key of this client and the limits that hold for it; `None`: no limit does.
    fn per_client(&self, ip: IpAddr, said: ClientLimits) -> Option<(ClientNetwork, PerClient)> {
        let is_exempt = is_exempt(&self.settings, ip);
        let own = |max: Option<OwnMax>| max.filter(|max| !(is_exempt && max.is_default)).map(|max| max.value);
        let (connections, rate) = (own(said.connections), own(said.rate));
        if is_exempt && connections.is_none() && rate.is_none() {
            return None;
        }
        let common = |value: u32| if is_exempt { 0 } else { value };
        let connections = match connections {
            Some(max) => (Limit::AccessConnections, max),
            None => (Limit::ClientConnections, common(self.settings.connections_per_client)),
        };
        let rate = rate.map_or_else(|| Rate::Second(common(self.settings.rate_per_client)), Rate::Window);
        Some((ClientNetwork::new(ip), PerClient { connections, rate }))
    }

    fn check_client(&self, key: ClientNetwork, limits: PerClient, now: u64) -> Result<(), Refusal> {
        let client = self.open.get(&key);
        let (limit, max) = limits.connections;
        if max != 0 && client.is_some_and(|client| client.open >= max) {
            return Err(Refusal { limit, value: max });
        }
        match limits.rate {
            Rate::Window(0) => Ok(()),
            Rate::Window(max) if self.windows.count(&key, now) >= max => {
                Err(Refusal { limit: Limit::AccessRate, value: max })
            }
            Rate::Window(_) => Ok(()),
            Rate::Second(rate) => {
                let bucket = match client {
                    Some(client) => client.bucket,
                    None => self.young.get(&key).or_else(|| self.old.get(&key)).copied().unwrap_or_default(),
                };
                if bucket.has(rate, now) { Ok(()) } else { Err(Refusal { limit: Limit::ClientRate, value: rate }) }
            }
        }
    }

    fn take_client(&mut self, key: ClientNetwork, limits: PerClient, now: u64) {
        self.rotate_when_due(now);
        let mut idle = || self.young.remove(&key).or_else(|| self.old.remove(&key)).unwrap_or_default();
        let client = self.open.entry(key).or_insert_with(|| ClientUse { open: 0, bucket: idle() });
        client.open += 1;
        match limits.rate {
            Rate::Window(0) => {}
            Rate::Window(_) => self.windows.record(key, now),
            Rate::Second(rate) => client.bucket.take(rate, now),
        }
    }

    fn leave_client(&mut self, key: ClientNetwork) {
        let Some(client) = self.open.get_mut(&key) else { return };
        client.open -= 1;
        if client.open > 0 {
            return;
        }
        let bucket = client.bucket;
        self.open.remove(&key);
        // A table that was large in a storm does not stay large.
        if self.open.capacity() > 1_024 && self.open.len() < self.open.capacity() / 8 {
            self.open.shrink_to(self.open.len() * 2);
        }
        if self.settings.rate_per_client != 0 && bucket != Bucket::default() {
            if self.young.len() >= IDLE_CLIENTS_MAX / 2 {
                self.rotate();
            }
            self.young.insert(key, bucket);
        }
    }

    /// Forgets buckets that are full again. A client in `old` took its last token before the last rotation; after the
    /// time of one burst its bucket is full, like that of an unknown client.
    fn rotate_when_due(&mut self, now: u64) {
        if now.saturating_sub(self.rotated) >= BURST_SECONDS * SECOND {
            self.rotate();
            self.rotated = now;
        }
    }

    fn rotate(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }
}

/// The limits and their counts. Shared by all listeners.
pub struct Limits {
    state: Mutex<LimitsState>,
    began: Instant,
}

impl Limits {
    /// Makes limits against which nothing is counted yet. All later times are `began` or after.
    #[must_use]
    pub fn new(settings: Settings, began: Instant) -> Arc<Self> {
        let windows = SlidingWindows::new(settings.rate_window);
        Arc::new(Self { state: Mutex::new(LimitsState { settings, windows, ..LimitsState::default() }), began })
    }

    /// Puts other numbers in the place of the old ones. Open connections stay open and counted.
    pub fn replace(&self, settings: Settings) {
        let mut state = self.state();
        if state.settings.rate_window != settings.rate_window {
            state.windows = SlidingWindows::new(settings.rate_window);
        }
        state.settings = settings;
    }

    /// Counts a new connection on the listener with this index, or returns the limit that it would exceed.
    ///
    /// `client` is `None` while a PROXY header is still to come; then [`AdmittedConnection::admit_client`] follows.
    ///
    /// # Errors
    /// The first limit that is reached, of: all connections, the listener's, the rate, the client's connections, the
    /// client's rate. Nothing was counted.
    pub fn admit(
        self: &Arc<Self>,
        listener: usize,
        client: Option<IpAddr>,
        now: Instant,
    ) -> Result<AdmittedConnection, Refusal> {
        self.admit_own(listener, client.map(|ip| (ip, ClientLimits::default())), now)
    }

    /// Admits a client for which the access map has limits.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub fn admit_own(
        self: &Arc<Self>,
        listener: usize,
        client: Option<(IpAddr, ClientLimits)>,
        now: Instant,
    ) -> Result<AdmittedConnection, Refusal> {
        let now = self.nanoseconds(now);
        let mut state = self.state();
        state.check_common(listener, now)?;
        let counted = client.and_then(|(ip, own)| state.per_client(ip, own));
        if let Some((key, limits)) = counted {
            state.check_client(key, limits, now)?;
            state.take_client(key, limits, now);
        }
        state.take_common(listener, now);
        drop(state);
        Ok(AdmittedConnection { limits: Arc::clone(self), listener, key: counted.map(|(key, _)| key) })
    }

    /// Returns the counts now.
    #[must_use]
    pub fn counts(&self) -> ConnectionCounts {
        let state = self.state();
        ConnectionCounts {
            connections: state.connections,
            clients: state.open.len(),
            idle_clients: state.young.len() + state.old.len(),
            rated_clients: state.windows.len(),
        }
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, LimitsState> {
        // Every change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

fn is_exempt(settings: &Settings, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    settings.exempt.iter().any(|network| network.contains(&ip))
}

/// The place of one admitted connection; dropping it gives the place back.
#[must_use = "dropping it gives the place back"]
pub struct AdmittedConnection {
    limits: Arc<Limits>,
    listener: usize,
    key: Option<ClientNetwork>,
}

impl AdmittedConnection {
    /// Counts the connection for the client that a PROXY header named, or of which the access map had to be asked.
    ///
    /// # Errors
    /// The client's limit that is reached. The connection stays counted in all and for its listener until the guard is
    /// dropped.
    pub fn admit_client(&mut self, client: IpAddr, own: ClientLimits, now: Instant) -> Result<(), Refusal> {
        let now = self.limits.nanoseconds(now);
        let mut state = self.limits.state();
        if let Some(before) = self.key.take() {
            state.leave_client(before);
        }
        if let Some((key, limits)) = state.per_client(client, own) {
            state.check_client(key, limits, now)?;
            state.take_client(key, limits, now);
            self.key = Some(key);
        }
        Ok(())
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        let mut state = self.limits.state();
        state.connections -= 1;
        if let Some(open) = state.listeners.get_mut(self.listener) {
            *open -= 1;
        }
        if let Some(key) = self.key {
            state.leave_client(key);
        }
    }
}

impl fmt::Debug for AdmittedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("listener", &self.listener).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! A listener, and the settings of its connections.
//!
//! A reload gives a listener another profile. A connection keeps the [`ListenerProfile`] with which it began.

use crate::auth::Authenticator;
use crate::config::{self, Config, Listen, ListenTls};
use crate::intake::PIECE_BYTES;
use crate::tls::Acceptor;
use arc_swap::ArcSwap;
use smtp::server::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// One listener, for as long as it listens.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Its number in the limits of connections.
    pub(crate) entry: usize,
    /// As it was bound.
    pub(crate) address: SocketAddr,
    /// Settings of its connections.
    pub(crate) lane: ArcSwap<ListenerProfile>,
    /// Tells its loops to end.
    pub(crate) closed: Notify,
    /// It does not listen any more: a reload removed it.
    pub(crate) is_closed: AtomicBool,
}

impl ListenerState {
    /// Ends its loops; accepted connections go on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.notify_waiters();
    }

    /// Returns whether it listens no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

/// Settings of the connections of a listener. A connection keeps those with which it began.
#[derive(Debug)]
pub(crate) struct ListenerProfile {
    /// The settings of the configuration.
    pub(crate) listen: Listen,
    /// Offers and limits of its sessions.
    pub(crate) settings: Arc<Settings>,
    /// Certificates, if it has TLS.
    pub(crate) tls: Option<Arc<Acceptor>>,
    /// How long a handshake may take.
    pub(crate) handshake_time: Duration,
}

impl ListenerProfile {
    /// Makes the profile of a configured listener.
    pub(crate) fn new(
        config: &Config,
        listen: &Listen,
        authenticator: Option<&Authenticator>,
        tls: Option<&Arc<Acceptor>>,
    ) -> Self {
        let mut settings = config::smtp_settings(config, listen);
        settings.limits.content_piece_bytes = PIECE_BYTES;
        settings.auth.mechanisms = authenticator
            .map(|authenticator| authenticator.mechanisms(true).into_iter().map(Into::into).collect())
            .unwrap_or_default();
        Self {
            listen: listen.clone(),
            settings: Arc::new(settings),
            tls: tls.filter(|_| listen.tls != ListenTls::None).cloned(),
            handshake_time: config.tls.handshake_time_max,
        }
    }

    /// Returns whether connections begin with a handshake.
    pub(crate) fn is_implicit_tls(&self) -> bool {
        self.listen.tls == ListenTls::Implicit
    }
}

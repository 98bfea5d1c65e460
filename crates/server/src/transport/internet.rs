//! Hosts of a test: connections that lead to a script instead of the network.

use super::Transport;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

type Connecting = Pin<Box<dyn Future<Output = io::Result<Transport>> + Send>>;

/// Where connections lead.
#[derive(Clone)]
pub(crate) struct Internet(Arc<dyn Fn(SocketAddr) -> Connecting + Send + Sync>);

impl Internet {
    /// Hosts that answer as `connect` says.
    pub(crate) fn new(connect: impl Fn(SocketAddr) -> Connecting + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects to a host.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<Transport> {
        (self.0)(address).await
    }
}

impl fmt::Debug for Internet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Internet")
    }
}

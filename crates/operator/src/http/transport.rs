//! The layer between HTTP and the socket: nothing, or TLS.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Makes streams of connections.
pub trait HttpTransport: Send + Sync + 'static {
    /// The stream of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Returns whether a client understands an answer without a handshake.
    fn is_plain(&self) -> bool;

    /// Does the handshake, within a time. Returns the stream, and the name in a certificate of the client that was
    /// verified; `None` if there is no stream.
    fn open(
        &self,
        stream: TcpStream,
        time_max: Duration,
    ) -> impl Future<Output = Option<(Self::Stream, Option<Arc<str>>)>> + Send;
}

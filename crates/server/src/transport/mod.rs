//! The bytes of a session: a TCP connection, plain or under TLS, or a UNIX socket.
//!
//! A connection owns no read buffer: input is read into one buffer of the worker thread and used at once, so an idle
//! connection costs its socket, its task and its state, and nothing else. [`Wait`] is the wait of a connection for
//! input.

#[cfg(test)]
mod internet;
mod wait;

#[cfg(test)]
pub(crate) use internet::Internet;
pub(crate) use wait::{FAR, Wait};

use os::quickack;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use zeroize::Zeroize as _;

/// The most that is read from a connection at once, into a buffer that all connections of a thread share.
const READ_BYTES: usize = 32 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) enum Transport {
    /// In clear.
    Plain(TcpStream),
    /// Under TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// Under TLS, towards a next hop.
    TlsOut(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// From a process of this machine.
    Local(UnixStream),
    /// Nowhere: the other end is held by a test.
    #[cfg(test)]
    Memory(tokio::io::DuplexStream),
    /// Nothing: a handshake has taken the connection.
    Closed,
}

thread_local! {
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

impl Transport {
    /// Reads once into the buffer of this thread and gives the input to `uses`; an empty slice is the end of input.
    pub(crate) fn poll_input<T>(
        &mut self,
        context: &mut Context<'_>,
        uses: impl FnOnce(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        INPUT.with_borrow_mut(|buffer| {
            let mut input = ReadBuf::new(buffer);
            ready!(self.poll_read(context, &mut input))?;
            Poll::Ready(Ok(uses(input.filled())))
        })
    }

    /// Wipes the buffer of this thread, which held a password.
    pub(crate) fn wipe_input() {
        INPUT.with_borrow_mut(|buffer| buffer.zeroize());
    }

    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, input),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, input),
            Self::TlsOut(stream) => Pin::new(stream.as_mut()).poll_read(context, input),
            Self::Local(stream) => Pin::new(stream).poll_read(context, input),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_read(context, input),
            Self::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes some of `output`, at least one octet.
    pub(crate) async fn write(&mut self, output: &[u8]) -> io::Result<usize> {
        let written = poll_fn(|context| self.poll_write(context, &[IoSlice::new(output)])).await?;
        poll_fn(|context| self.poll_flush(context)).await?;
        Ok(written)
    }

    /// Writes some of `output`, at least one octet; under TLS it leaves only with [`Self::poll_flush`].
    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, output: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = ready!(match self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, output),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, output),
            Self::TlsOut(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, output),
            Self::Local(stream) => Pin::new(stream).poll_write_vectored(context, output),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_write_vectored(context, output),
            Self::Closed => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        })?;
        Poll::Ready(if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) })
    }

    /// Sends octets that TLS holds back.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
            Self::TlsOut(stream) => Pin::new(stream.as_mut()).poll_flush(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Announces that nothing more will be written.
    pub(crate) async fn shut_down(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown().await,
            Self::Tls(stream) => stream.shutdown().await,
            Self::TlsOut(stream) => stream.shutdown().await,
            Self::Local(stream) => stream.shutdown().await,
            #[cfg(test)]
            Self::Memory(stream) => stream.shutdown().await,
            Self::Closed => Ok(()),
        }
    }

    /// Returns whether the end takes more than closing: TLS has an alert for it, so that an attacker cannot cut the
    /// stream.
    pub(crate) const fn has_farewell(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::TlsOut(_))
    }

    /// Sends the acknowledgement that the kernel would hold back.
    ///
    /// A client that sends its final dot in a write of its own, without TCP_NODELAY, waits for the acknowledgement of
    /// the write before it. When no reply is due, nothing carries that acknowledgement for 40 ms.
    pub(crate) fn acknowledge(&self) {
        match self {
            Self::Plain(stream) => quickack::acknowledge_now(stream),
            Self::Tls(stream) => quickack::acknowledge_now(stream.get_ref().0),
            Self::TlsOut(stream) => quickack::acknowledge_now(stream.get_ref().0),
            Self::Local(_) | Self::Closed => {}
            #[cfg(test)]
            Self::Memory(_) => {}
        }
    }
}

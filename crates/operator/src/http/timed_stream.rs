//! A connection that fails when its peer takes nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection whose writes have a time limit, and so have flush and shutdown: TLS takes octets before its peer does.
/// Reads have none: the limit for a request is that of the protocol.
#[derive(Debug)]
pub(super) struct TimedStream<S> {
    stream: S,
    time_max: Duration,
    /// Runs while the peer takes nothing.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) const fn new(stream: S, time_max: Duration) -> Self {
        Self { stream, time_max, wait: None }
    }

    fn poll_timed<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.wait = None;
            return result;
        }
        let time_max = self.time_max;
        let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(time_max)));
        ready!(wait.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, from);
        this.poll_timed(cx, result)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(cx);
        this.poll_timed(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.poll_timed(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, from);
        this.poll_timed(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    /// Takes octets as TLS does whose peer reads nothing: they are buffered, and never leave.
    struct FullPeer;

    impl AsyncWrite for FullPeer {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(from.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_ends_the_connection_at_each_step() {
        let mut stream = TimedStream::new(FullPeer, Duration::from_secs(30));
        stream.write_all(b"an answer").await.unwrap();
        assert_eq!(stream.flush().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut stream = TimedStream::new(FullPeer, Duration::from_secs(30));
        assert_eq!(stream.shutdown().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

//! The connections of HTTP, each a task.
//!
//! Limits: `http.connections_max` (503), `http.header_bytes_max` (431), `http.body_bytes_max` (413) and
//! `http.request_time_max` for a request to arrive and for each part of an answer to be taken. A client that is refused
//! for the first gets its answer from one of [`REFUSED_MAX`] tasks, or else is cut off.

use super::api::Api;
use super::counts::{HttpCounts, HttpLimit};
use super::handler::{HttpHandler, HttpLimits};
use super::timed_stream::TimedStream;
use super::transport::HttpTransport;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Refused clients that are waited for, so that they see why.
const REFUSED_MAX: usize = 64;
/// How long each is waited for.
const REFUSED_TIME_MAX: Duration = Duration::from_secs(1);
/// How long nothing is accepted after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer beyond `http.connections_max`.
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n\
                        Connection: close\r\nContent-Length: 60\r\n\r\n\
                        too many connections (http.connections_max); try again soon\n";

/// Answers requests on this address for as long as it is polled.
///
/// # Cancel safety
/// Dropping this ends every connection at once. A change that was begun keeps what it did until then.
pub async fn serve_http<H: HttpHandler, T: HttpTransport>(
    listener: TcpListener,
    limits: HttpLimits,
    counts: Arc<HttpCounts>,
    handler: Arc<H>,
    transport: T,
) {
    let transport = Arc::new(transport);
    let (places, refused) = (Arc::new(Semaphore::new(limits.connections_max)), Arc::new(Semaphore::new(REFUSED_MAX)));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The connection is gone again, or there is no descriptor left: the next attempt tells.
                Err(_) => {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let (handler, counts, transport) = (Arc::clone(&handler), Arc::clone(&counts), Arc::clone(&transport));
            connections.spawn(async move {
                counts.opened();
                serve_connection(stream, limits, &counts, &handler, &*transport).await;
                counts.closed();
                drop(place);
            });
            continue;
        }
        counts.refuse(HttpLimit::Connections);
        // A client that expects TLS would not understand the answer.
        if !transport.is_plain() {
            continue;
        }
        if let Ok(place) = Arc::clone(&refused).try_acquire_owned() {
            connections.spawn(async move {
                // A client that is gone needs no answer.
                drop(timeout(REFUSED_TIME_MAX, turn_away(stream)).await);
                drop(place);
            });
        }
    }
}

/// Sends the refusal, and reads what the client has sent, so that the system does not throw the refusal away.
async fn turn_away(mut stream: TcpStream) -> std::io::Result<()> {
    stream.write_all(TOO_MANY.as_bytes()).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 1_024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

async fn serve_connection<H: HttpHandler, T: HttpTransport>(
    stream: TcpStream,
    limits: HttpLimits,
    counts: &HttpCounts,
    handler: &Arc<H>,
    transport: &T,
) {
    // Answers are whole where they are short; without it the last part of a long one may wait.
    drop(stream.set_nodelay(true));
    let Some((stream, certificate)) = transport.open(stream, limits.request_time_max).await else { return };
    let stream = TokioIo::new(TimedStream::new(stream, limits.request_time_max));
    let api = Api { handler, limits: &limits, counts, certificate: certificate.as_deref() };
    let service = service_fn(|request| async { Ok::<_, Infallible>(api.answer(request).await) });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_time_max)
        .max_buf_size(limits.header_bytes_max)
        .serve_connection(stream, service)
        .await;
    if let Err(error) = served {
        if error.is_parse_too_large() {
            counts.refuse(HttpLimit::HeaderBytes);
        } else if error.is_timeout() {
            counts.refuse(HttpLimit::RequestTime);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_has_the_length_that_it_says() {
        let (head, body) = super::TOO_MANY.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{}", body.len());
    }
}

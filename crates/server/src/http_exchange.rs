//! One request over a connection of HTTP/1.1 that the caller has opened, and its answer.

use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Sends `request` and gives the answer to `read`, if its status is 2xx. Redirections are not followed, and nothing is
/// sent twice.
///
/// # Errors
/// The connection broke off, the status is another one, or the error of `read`. The text is for the operator.
/// # Cancel safety
/// Dropping the future ends the connection; the peer may have the request.
pub(crate) async fn exchange<S, T>(
    stream: S,
    request: Request<String>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, String>,
) -> Result<T, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| format!("the exchange broke off: {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let asked = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        match response.status() {
            status if status.is_success() => read(response).await,
            status => Err(format!("the answer is {status}")),
        }
    };
    tokio::pin!(connection);
    tokio::pin!(asked);
    tokio::select! {
        biased;
        result = &mut asked => result,
        // The answer may have come with the last octets of the connection.
        _ = &mut connection => asked.await,
    }
}

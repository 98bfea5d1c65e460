//! The agent check of balancers: a line with the state of this server and its free places, for each connection.
//!
//! HAProxy (`agent-check`) reads words up to the end of the line: `drain` takes new connections away, `down` says why,
//! `ready up` gives them back, and a percentage weighs this server against the others. It is a part of the weight in
//! HAProxy's configuration, rounded down, so that weight should be 100.

use super::http::readiness;
use super::server::{Server, lock};
use observe::Event;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;

/// Time for one client to take its line; others wait meanwhile.
const WRITE_TIME: Duration = Duration::from_secs(1);
/// Pause after accepting failed, as without file descriptors.
const TROUBLE_PAUSE: Duration = Duration::from_millis(200);

impl Server {
    /// Answers balancers until the server has ended.
    ///
    /// # Errors
    /// The socket cannot be registered with the runtime.
    pub(crate) fn answer_balancers(self: &Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        self.context.record(&Event::Listening { daemon: "agent", address, protocol: "agent-check", tls: "none" });
        let server = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((mut stream, _)) => {
                        let line = server.agent_line();
                        // One that does not read it asks again.
                        drop(tokio::time::timeout(WRITE_TIME, stream.write_all(line.as_bytes())).await);
                    }
                    Err(_) => tokio::time::sleep(TROUBLE_PAUSE).await,
                }
            }
        });
        Ok(())
    }

    /// The state of this server for balancers, with the line end.
    fn agent_line(&self) -> String {
        let is_leaving = self.context.stop.has_begun()
            || self.context.message_store.cluster().is_some_and(crate::cluster::ClusterMember::is_draining);
        if is_leaving {
            return "drain\n".to_owned();
        }
        match readiness(&self.context) {
            Ok(()) => {
                let max = u64::from(self.context.live.load().config.accept.connections_max);
                let open = u64::try_from(self.context.stop.open()).unwrap_or(u64::MAX);
                format!("ready up {}%\n", free_percent(open, max))
            }
            Err(why) => format!("down #{}\n", why.replace(['\r', '\n'], " ")),
        }
    }
}

/// Free places of 100, at least one: a full server still answers 421.
fn free_percent(open: u64, max: u64) -> u64 {
    (max.saturating_sub(open) * 100 / max.max(1)).clamp(1, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_weight_by_its_free_places() {
        assert_eq!(free_percent(0, 1_000), 100);
        assert_eq!(free_percent(250, 1_000), 75);
        assert_eq!(free_percent(1_000, 1_000), 1);
        assert_eq!(free_percent(2_000, 1_000), 1);
    }
}

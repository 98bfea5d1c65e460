//! What is found out about a client before it is greeted: its name, its standing with block lists, its patience.

use super::{Connection, Transport, Wait};
use crate::admit;
use crate::admit::dnsbl::{self, Listings};
use crate::dns::ClientName;
use crate::service::Service;
use mail::Client;
use observe::Relay;
use smtp::server::{Step, Verdict};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

/// What is known of a client besides its address.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// The name of its address.
    pub(super) name: ClientName,
    /// Login name or number, of a process of this machine.
    user: Option<Box<str>>,
    /// What block lists say of it.
    pub(super) listings: Listings,
}

impl Opening {
    /// A process of this machine.
    pub(crate) fn process(user: &str) -> Self {
        Self { user: Some(user.into()), ..Self::default() }
    }

    /// The verified name of the client.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.verified()
    }

    /// The client as log lines name it.
    pub(crate) fn relay(&self, client: &Client) -> Relay<'_> {
        match client {
            Client::Network(address) => {
                let (name, may_be_forged) = match &self.name {
                    ClientName::Verified(name) => (Some(&**name), false),
                    ClientName::Forged(name) => (Some(&**name), true),
                    ClientName::None | ClientName::Unknown => (None, false),
                };
                Relay::Host { name, address: address.ip().to_canonical(), may_be_forged }
            }
            Client::Process { .. } => Relay::Local { user: self.user.as_deref().unwrap_or("?") },
            Client::Internal => Relay::address(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        }
    }
}

impl Connection {
    /// Finds out about the client, then greets it.
    ///
    /// A client that speaks before is answered by the session, whatever was found out. The step is `Close` or `Read`.
    /// # Errors
    /// The connection is gone.
    // RFC 5321 §4.3.1: a client waits for the greeting
    pub(super) async fn greet<N: Future<Output = ()>>(
        &mut self,
        transport: &mut Transport,
        wait: &mut Wait<'_, N>,
    ) -> io::Result<Step> {
        // A process has no name to be found, and its input is ready before it is greeted.
        let found = match *self.session.client() {
            Client::Network(address) => self.find_out(address.ip().to_canonical(), transport, wait).await?,
            Client::Process { .. } | Client::Internal => None,
        };
        if let Some(Found { name, listings }) = found {
            self.opening.name = name;
            self.opening.listings = listings;
            self.report_listings();
        }
        let now = self.elapsed();
        if self.service.stop.has_begun() {
            self.session.shut_down(now);
        }
        self.session.greet(Verdict::Accept, now);
        // An early talker may say nothing more.
        self.report_notes();
        Ok(self.session.advance(&[], now).1)
    }

    /// `None`: the client spoke, or the server stops, and the session has been told.
    async fn find_out<N: Future<Output = ()>>(
        &mut self,
        ip: IpAddr,
        transport: &mut Transport,
        wait: &mut Wait<'_, N>,
    ) -> io::Result<Option<Found>> {
        let service = Arc::clone(&self.service);
        let deadline = self.deadline();
        let mut finding = Box::pin(find(&service, ip, self.began));
        poll_fn(|context| {
            let now = self.elapsed();
            match transport.poll_input(context, |input| {
                if !input.is_empty() {
                    let _: (usize, Step) = self.session.advance(input, now);
                }
                input.len()
            }) {
                Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(None)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => match finding.as_mut().poll(context) {
                    Poll::Ready(found) => Poll::Ready(Ok(Some(found))),
                    Poll::Pending => {
                        ready!(wait.poll(context, deadline));
                        self.woken();
                        Poll::Ready(Ok(None))
                    }
                },
            }
        })
        .await
    }
}

/// What was found out.
struct Found {
    name: ClientName,
    listings: Listings,
}

/// Asks the DNS and waits out the pause, side by side.
async fn find(service: &Service, ip: IpAddr, began: Instant) -> Found {
    let live = service.live.load_full();
    let (config, rights) = (&live.config, &live.rights);
    let name = async {
        match config.accept.reverse_dns {
            true => service.resolver.load_full().reverse(ip).await,
            false => ClientName::Unknown,
        }
    };
    let resolver = service.resolver.load_full();
    let listings = dnsbl::ask(&resolver, &config.dnsbl, rights, ip);
    let pause = async {
        let played = service.behaviour.as_ref().map_or(Duration::ZERO, |behaviour| behaviour.greeting_delay);
        let pause = admit::greet_pause(ip, &config.accept, rights).max(played);
        if !pause.is_zero() {
            tokio::time::sleep_until((began + pause).into()).await;
        }
    };
    let (name, listings, ()) = tokio::join!(name, listings, pause);
    Found { name, listings }
}

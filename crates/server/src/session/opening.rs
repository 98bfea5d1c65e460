//! What is found out about a client before it is greeted: its name, its standing with block lists, its patience.

use super::{Connection, Transport};
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
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

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
    /// A client that speaks before is answered by the session, whatever was found out. When the server stops, nobody
    /// waits for his greeting any more.
    /// # Errors
    /// The connection is gone.
    // RFC 5321 §4.3.1: a client waits for the greeting
    pub(super) async fn greet(&mut self, transport: &mut Transport) -> io::Result<()> {
        if let Some(Found { name, listings }) = self.find_out(transport).await? {
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
        Ok(())
    }

    /// `None`: the client spoke, and the session has seen it; or the server stops.
    async fn find_out(&mut self, transport: &mut Transport) -> io::Result<Option<Found>> {
        let service = Arc::clone(&self.service);
        let mut finding = Box::pin(find(&service, *self.session.client(), self.began));
        let mut stopping = pin!(service.stop.begun());
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
                    Poll::Pending => stopping.as_mut().poll(context).map(|()| Ok(None)),
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

/// Asks the DNS and waits out the pause, side by side. Nothing of it applies to processes.
async fn find(service: &Service, client: Client, began: Instant) -> Found {
    let Client::Network(address) = client else {
        return Found { name: ClientName::Unknown, listings: Listings::default() };
    };
    let ip = address.ip().to_canonical();
    let live = service.live.load_full();
    let (config, rights) = (&live.config, &live.rights);
    let name = async {
        match config.accept.reverse_dns {
            true => service.resolver.reverse(ip).await,
            false => ClientName::Unknown,
        }
    };
    let listings = dnsbl::ask(&service.resolver, &config.dnsbl, rights, ip);
    let pause = async {
        let pause = admit::greet_pause(ip, &config.accept, rights);
        if !pause.is_zero() {
            tokio::time::sleep_until((began + pause).into()).await;
        }
    };
    let (name, listings, ()) = tokio::join!(name, listings, pause);
    Found { name, listings }
}

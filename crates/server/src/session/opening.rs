//! Finds out about a client before the greeting: its name, its entries in block lists, whether it waits for the
//! greeting, and what the access map offers to it.

use super::Connection;
use super::answers::reply;
use crate::admit;
use crate::admit::dnsbl::{self, Listings};
use crate::admit::features::features;
use crate::context::Context;
use crate::dns::ClientName;
use crate::inbound::Inbound;
use crate::routing::Admission;
use crate::tls::ClientCertificate;
use crate::transport::{Transport, Wait};
use mail::Client;
use observe::{Event, Relay, Ruleset};
use route::{Ask, Stop, access};
use smtp::server::{Step, Verdict};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

/// Facts about a client besides its address.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The name of its address.
    pub(super) name: ClientName,
    /// Login name or number of a process of this machine.
    user: Option<Box<str>>,
    /// The entries of block lists for it.
    pub(super) listings: Listings,
    /// The certificate that it presented.
    pub(super) shown: Arc<ClientCertificate>,
    /// Whether the server asks for a certificate at STARTTLS.
    pub(super) asks_certificate: bool,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            name: ClientName::default(),
            user: None,
            listings: Listings::default(),
            shown: Arc::new(ClientCertificate::NotAsked),
            asks_certificate: true,
        }
    }
}

impl Opening {
    /// Makes the same of a client that presented a certificate, or none.
    pub(crate) fn showing(self, shown: ClientCertificate) -> Self {
        Self { shown: Arc::new(shown), ..self }
    }

    /// Makes a process of this machine.
    pub(crate) fn process(user: &str) -> Self {
        Self { user: Some(user.into()), ..Self::default() }
    }

    /// Returns the verified name of the client.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.verified()
    }

    /// Returns the client as log lines name it.
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
    /// The session answers a client that speaks before, whatever the look-ups found. The step is `Close` or `Read`.
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
        let mut verdict = Verdict::Accept;
        if let Some(OpeningFacts { name, listings, told, .. }) = found {
            self.opening.name = name;
            self.opening.listings = listings;
            self.report_listings();
            match told {
                Ok(GreetingRules { features: Some(letters), .. }) => self.offer(&letters),
                Ok(_) => {}
                Err(why) => verdict = self.unanswered(&why),
            }
        }
        if verdict == Verdict::Accept && self.has_filters() {
            verdict = Box::pin(self.filter_client()).await;
        }
        let now = self.elapsed();
        if self.context.stop.has_begun() {
            self.session.shut_down(now);
        }
        self.session.greet(verdict, now);
        // An early talker may say nothing more.
        self.report_notes();
        Ok(self.session.advance(&[], now).1)
    }

    /// Applies the letters of `Srv_Features:` to the offers.
    fn offer(&mut self, letters: &str) {
        let offers = features(letters, self.session.settings());
        self.opening.asks_certificate = offers.asks_certificate;
        self.session.replace_settings(Arc::new(offers.settings));
    }

    /// Refuses a client for now, as the access map cannot be asked.
    fn unanswered(&mut self, why: &str) -> Verdict {
        self.context.record(&Event::ConfigWarning { text: &format!("a map cannot be asked: {why}") });
        self.refuse(Ruleset::Relay, Verdict::Close(reply(421, "4.3.0 Temporary system failure, try again later")))
    }

    /// `None`: the client spoke during its pause, or the server stops, and the session knows.
    ///
    /// Looks up the client. A client without a pause may speak before its greeting: its input waits in the socket, so
    /// the order of packets decides nothing.
    async fn find_out<N: Future<Output = ()>>(
        &mut self,
        ip: IpAddr,
        transport: &mut Transport,
        wait: &mut Wait<'_, N>,
    ) -> io::Result<Option<OpeningFacts>> {
        let inbound = Arc::clone(&self.inbound);
        let deadline = self.deadline();
        let mut finding = Box::pin(find(&inbound, ip));
        let found = poll_fn(|context| match finding.as_mut().poll(context) {
            Poll::Ready(found) => Poll::Ready(Some(found)),
            Poll::Pending => {
                ready!(wait.poll(context, deadline));
                self.woken();
                Poll::Ready(None)
            }
        });
        let Some(facts) = found.await else { return Ok(None) };
        if facts.pause.is_zero() {
            return Ok(Some(facts));
        }
        let mut pause = Box::pin(tokio::time::sleep_until((self.began + facts.pause).into()));
        let is_over = poll_fn(|context| {
            let now = self.elapsed();
            match transport.poll_input(context, |input| {
                if !input.is_empty() {
                    let _: (usize, Step) = self.session.advance(input, now);
                }
                input.len()
            }) {
                Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(false)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => match pause.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Ok(true)),
                    Poll::Pending => {
                        ready!(wait.poll(context, deadline));
                        self.woken();
                        Poll::Ready(Ok(false))
                    }
                },
            }
        });
        Ok(is_over.await?.then_some(facts))
    }
}

/// Facts that look-ups before the greeting have found.
struct OpeningFacts {
    name: ClientName,
    listings: Listings,
    /// The rules of the access map; `Err`: the reason why it cannot be asked.
    told: Result<GreetingRules, Arc<str>>,
    /// The pause before the greeting, from the beginning of the connection on.
    pause: Duration,
}

/// Rules of the access map for a client and its name.
#[derive(Debug, Default)]
struct GreetingRules {
    /// `GreetPause:`
    pause: Option<Duration>,
    /// `Srv_Features:`
    features: Option<String>,
}

/// As long as `accept.greet_pause` can be, and as long as sendmail's limit.
const PAUSE_MAX: Duration = Duration::from_secs(300);

impl GreetingRules {
    fn by(admission: &Admission, ask: &mut Ask<'_>, client: &access::Client<'_>) -> Result<Self, Stop> {
        // Both before either is looked at, so that one round asks for both.
        let pause = admission.access.greet_pause(ask, client);
        let features = admission.access.server_features(ask, client);
        let pause = pause?.map(|found| Duration::from_millis(found.value.into()).min(PAUSE_MAX));
        Ok(Self { pause, features: features?.map(|found| found.value) })
    }
}

/// Asks the access map about a client with a known name; asks nothing, if no key has the tags.
async fn told(context: &Context, ip: IpAddr, name: &ClientName) -> Result<GreetingRules, Arc<str>> {
    let routing = {
        let routing = context.routing.load();
        let access = routing.admission().map(|admission| &admission.access);
        if !access.is_some_and(|access| access.may_have("GreetPause") || access.may_have("Srv_Features")) {
            return Ok(GreetingRules::default());
        }
        Arc::clone(&routing)
    };
    let Some(admission) = routing.admission() else { return Ok(GreetingRules::default()) };
    let asks_names = context.live.load().config.accept.reverse_dns;
    let client = access::Client::of(ip).named(super::routed::client_name(name, asks_names));
    routing.decide(|ask| GreetingRules::by(admission, ask, &client)).await
}

/// Asks the DNS and the access map.
async fn find(inbound: &Inbound, ip: IpAddr) -> OpeningFacts {
    let context = &inbound.context;
    let live = context.live.load_full();
    let (config, rights) = (&live.config, &live.rights);
    let name = async {
        let name = match config.accept.reverse_dns {
            true => context.resolver.load_full().reverse(ip).await,
            false => ClientName::Unknown,
        };
        let told = told(context, ip, &name).await;
        (name, told)
    };
    let resolver = context.resolver.load_full();
    let listings = dnsbl::ask(&resolver, &config.dnsbl, rights, ip);
    let ((name, told), listings) = tokio::join!(name, listings);
    let played = inbound.behaviour.as_ref().map_or(Duration::ZERO, |behaviour| behaviour.greeting_delay);
    let pause = match &told {
        Ok(GreetingRules { pause: Some(pause), .. }) => *pause,
        // A client that gets a temporary refusal is greeted without a pause.
        Err(_) => Duration::ZERO,
        Ok(_) => admit::greet_pause(ip, &config.accept, rights),
    };
    OpeningFacts { name, listings, told, pause: pause.max(played) }
}

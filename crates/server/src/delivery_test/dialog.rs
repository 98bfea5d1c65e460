//! The dialog with one host: connect, greeting, EHLO, STARTTLS, EHLO again, QUIT.

use super::{STEP_TIME_MAX, TestSetup, millis};
use crate::config::{EffectiveRule, RouteProtocol, RouteTls};
use crate::next_hop::Endpoint;
use crate::resolve::Candidate;
use crate::tls::TlsInfo;
use mail::{Reply, ReplyClass};
use os::clock;
use os::error::words;
use serde_json::{Map, Value, json};
use smtp::client::{ClientLimits, ReplyFault, ReplyStream};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::timeout;

/// Octets of a reply.
const REPLY_BYTES_MAX: usize = 16 << 10;

/// The findings about a host so far.
struct HostTest<'a> {
    setup: TestSetup<'a>,
    rule: &'a EffectiveRule,
    host: &'a Candidate,
    fields: Map<String, Value>,
}

/// The phase in which the test of a host ended, and why.
struct FailedPhase {
    phase: &'static str,
    why: String,
}

/// Tests a host. Returns its name and address, times of the phases in milliseconds, its words, and where and why it
/// failed, if it did.
pub(super) async fn test_host(setup: TestSetup<'_>, rule: &EffectiveRule, host: &Candidate) -> Value {
    let address = match &host.address {
        Endpoint::Socket(address) => address.to_string(),
        Endpoint::Unix(path) => path.display().to_string(),
    };
    let fields = Map::from_iter([
        ("host".to_owned(), json!(host.name)),
        ("address".to_owned(), json!(address)),
        ("preference".to_owned(), json!(host.preference)),
    ]);
    let mut test = HostTest { setup, rule, host, fields };
    let ended = Box::pin(test.run()).await;
    test.fields.insert("ok".to_owned(), json!(ended.is_ok()));
    if let Err(FailedPhase { phase, why }) = ended {
        test.fields.insert("failed".to_owned(), json!({ "phase": phase, "text": why }));
    }
    Value::Object(test.fields)
}

impl HostTest<'_> {
    async fn run(&mut self) -> Result<(), FailedPhase> {
        match &self.host.address {
            Endpoint::Unix(path) => {
                let opening = UnixStream::connect(path);
                let stream = self.timed("connect", opening).await?;
                self.greet(stream).await.map(drop)
            }
            Endpoint::Socket(address) => {
                let opening = connect(*address, self.rule);
                let stream = self.timed("connect", opening).await?;
                let (stream, offers_tls) = self.greet(stream).await?;
                self.secure(stream, offers_tls).await
            }
        }
    }

    /// Waits for a step of the network, and keeps its time.
    async fn timed<T>(
        &mut self,
        phase: &'static str,
        step: impl Future<Output = io::Result<T>>,
    ) -> Result<T, FailedPhase> {
        let began = clock::now();
        let done = timeout(STEP_TIME_MAX, step).await;
        self.keep_time(phase, began);
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(FailedPhase { phase, why: words(&error) }),
            Err(_) => Err(FailedPhase { phase, why: format!("no answer in {} s", STEP_TIME_MAX.as_secs()) }),
        }
    }

    fn keep_time(&mut self, phase: &'static str, began: Instant) {
        let took = clock::now().saturating_duration_since(began);
        self.fields.insert(format!("{phase}_ms"), json!(millis(took)));
    }

    /// Waits for the greeting, and says EHLO. Returns whether STARTTLS is offered.
    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(&mut self, mut stream: S) -> Result<(S, bool), FailedPhase> {
        let greeting = self.reply("greeting", &mut stream).await?;
        self.fields.insert("greeting".to_owned(), json!(shown(&greeting)));
        if greeting.code().class() != ReplyClass::Success {
            return Err(FailedPhase { phase: "greeting", why: shown(&greeting) });
        }
        let lines = self.hello("ehlo", &mut stream).await?;
        let offers_tls = lines.iter().any(|line| line.eq_ignore_ascii_case("STARTTLS"));
        self.fields.insert("extensions".to_owned(), json!(lines));
        if self.rule.tls == RouteTls::None || !offers_tls || !matches!(self.host.address, Endpoint::Socket(_)) {
            quit(&mut stream).await;
        }
        if self.rule.tls == RouteTls::Required && !offers_tls {
            return Err(FailedPhase {
                phase: "starttls",
                why: "it does not offer STARTTLS, and tls = \"required\"".to_owned(),
            });
        }
        Ok((stream, offers_tls))
    }

    /// Says STARTTLS, does the handshake, and says EHLO again.
    async fn secure(&mut self, mut stream: TcpStream, offers_tls: bool) -> Result<(), FailedPhase> {
        if self.rule.tls == RouteTls::None || !offers_tls {
            self.fields.insert("tls".to_owned(), Value::Null);
            return Ok(());
        }
        self.say("starttls", &mut stream, "STARTTLS").await?;
        let reply = self.reply("starttls", &mut stream).await?;
        if reply.code().class() != ReplyClass::Success {
            return Err(FailedPhase { phase: "starttls", why: shown(&reply) });
        }
        let TestSetup { connector, config, .. } = self.setup;
        let began = clock::now();
        let deadline = began + config.tls.handshake_time_max.min(STEP_TIME_MAX);
        let name = &self.host.server_name;
        let shaken = Box::pin(connector.connect_and_judge(stream, name, deadline, &config.tls.ca_files)).await;
        self.keep_time("tls", began);
        let (mut stream, info) = shaken.map_err(|error| FailedPhase { phase: "tls", why: error.to_string() })?;
        self.fields.insert("tls".to_owned(), tls_fields(&info, name));
        let lines = self.hello("ehlo_tls", &mut stream).await?;
        self.fields.insert("extensions_tls".to_owned(), json!(lines));
        quit(&mut stream).await;
        Ok(())
    }

    /// Says EHLO, or LHLO, and returns the words of the reply behind its first line.
    async fn hello<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        phase: &'static str,
        stream: &mut S,
    ) -> Result<Vec<String>, FailedPhase> {
        let verb = if self.host.protocol == RouteProtocol::Lmtp { "LHLO" } else { "EHLO" };
        let name = self.rule.hello.as_deref().unwrap_or(&self.setup.config.hostname);
        self.say(phase, stream, &format!("{verb} {name}")).await?;
        let reply = self.reply(phase, stream).await?;
        if reply.code().class() != ReplyClass::Success {
            return Err(FailedPhase { phase, why: shown(&reply) });
        }
        Ok(reply.lines().skip(1).map(|line| plain(line.trim())).collect())
    }

    async fn say<S: AsyncWrite + Unpin>(
        &mut self,
        phase: &'static str,
        stream: &mut S,
        line: &str,
    ) -> Result<(), FailedPhase> {
        let sending = async {
            stream.write_all(format!("{line}\r\n").as_bytes()).await?;
            stream.flush().await
        };
        match timeout(STEP_TIME_MAX, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(FailedPhase { phase, why: words(&error) }),
            Err(_) => Err(FailedPhase { phase, why: "it takes no command".to_owned() }),
        }
    }

    /// Reads a reply, and keeps its time.
    async fn reply<S: AsyncRead + Unpin>(&mut self, phase: &'static str, stream: &mut S) -> Result<Reply, FailedPhase> {
        let limits = ClientLimits { reply_octets: REPLY_BYTES_MAX, ..ClientLimits::default() };
        let mut replies = ReplyStream::lenient(limits);
        let read = self.timed(phase, read_reply(stream, &mut replies)).await;
        let fault = match read {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(fault)) => fault,
            // The host that says something else says more than that it is silent.
            Err(failed) => replies.noise().ok_or(failed)?,
        };
        Err(FailedPhase { phase, why: plain(&fault.to_string()) })
    }
}

async fn connect(address: SocketAddr, rule: &EffectiveRule) -> io::Result<TcpStream> {
    let (socket, source) = match address {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, rule.source4.map(IpAddr::from)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, rule.source6.map(IpAddr::from)),
    };
    if let Some(ip) = source {
        socket.bind(SocketAddr::new(ip, 0))?;
    }
    socket.connect(address).await
}

/// Reads a reply as deliveries do.
async fn read_reply<S: AsyncRead + Unpin>(
    stream: &mut S,
    replies: &mut ReplyStream,
) -> io::Result<Result<Reply, ReplyFault>> {
    // One at a time, since what follows the reply to STARTTLS belongs to TLS; replies are short.
    let mut octet = [0];
    loop {
        if stream.read(&mut octet).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed the connection"));
        }
        replies.push(&octet);
        if let Some(found) = replies.next_reply().transpose() {
            return Ok(found);
        }
    }
}

/// Says that nothing follows; the answer does not matter.
async fn quit<S: AsyncWrite + Unpin>(stream: &mut S) {
    let farewell = async {
        stream.write_all(b"QUIT\r\n").await?;
        stream.shutdown().await
    };
    drop(timeout(Duration::from_secs(1), farewell).await);
}

fn tls_fields(info: &TlsInfo, name: &str) -> Value {
    let certificate = info.certificate.as_ref();
    json!({
        "version": info.version, "cipher": info.cipher, "bits": info.bits, "verified": info.is_verified_for(name),
        "fault": info.fault.as_ref().map(|fault| &fault.text),
        "subject": certificate.map(|certificate| plain(certificate.subject())),
        "issuer": certificate.map(|certificate| plain(certificate.issuer())),
        "for_host": certificate.map(|certificate| certificate.is_for(name)),
    })
}

fn shown(reply: &Reply) -> String {
    plain(&reply.to_string())
}

/// Replaces what a terminal acts on.
fn plain(text: &str) -> String {
    text.chars().map(|c| if mail::is_unprintable(c) { '?' } else { c }).collect()
}

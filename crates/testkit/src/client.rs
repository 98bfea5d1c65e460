//! A client that sends given lines, and waits for whole replies.

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use crate::harness::SOON;

/// A connection, plain or not.
pub struct Client<S> {
    pub stream: S,
    received: Vec<u8>,
}

pub type Plain = Client<TcpStream>;
pub type Encrypted = Client<StreamOwned<ClientConnection, TcpStream>>;

/// Connects and reads nothing yet.
pub fn connect(address: SocketAddr) -> Plain {
    let stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(SOON)).expect("set");
    stream.set_write_timeout(Some(SOON)).expect("set");
    stream.set_nodelay(true).expect("set");
    Client::over(stream)
}

/// Connects, takes the greeting and says EHLO.
pub fn greeted(address: SocketAddr) -> Plain {
    let mut client = connect(address);
    client.hello();
    client
}

/// A client's TLS that trusts this certificate, for mx.test.
pub fn tls(stream: TcpStream, certificate: &Path) -> Encrypted {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    roots.add(certificate).expect("a good one");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("mx.test").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("made");
    Client::over(StreamOwned::new(connection, stream))
}

impl Plain {
    /// A connection that was made elsewhere.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(SOON)).expect("set");
        Self::over(stream)
    }

    /// The handshake after STARTTLS.
    pub fn start_tls(mut self, certificate: &Path) -> Encrypted {
        assert_eq!(self.command("STARTTLS"), "220 2.0.0 Ready to start TLS");
        tls(self.stream, certificate)
    }

    /// Says that nothing more will come.
    pub fn finish(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("open");
    }
}

impl<S: Read + Write> Client<S> {
    /// A client on a stream from elsewhere.
    pub const fn over(stream: S) -> Self {
        Self { stream, received: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).expect("the server takes it");
    }

    /// The next line without its end, or `None` when the server has closed.
    pub fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).collect();
                return Some(String::from_utf8(line).expect("UTF-8").trim_end_matches("\r\n").to_owned());
            }
            let mut piece = [0; 4_096];
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    assert!(self.received.is_empty(), "half a line: {}", self.received.escape_ascii());
                    return None;
                }
                Ok(octets) => self.received.extend_from_slice(&piece[..octets]),
                // A signal to this process says nothing of the peer.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // TLS without a close_notify.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// A whole reply, its lines joined by line feeds; `closed` when there is none.
    pub fn reply(&mut self) -> String {
        let mut lines: Vec<String> = Vec::new();
        loop {
            let Some(line) = self.line() else {
                assert!(lines.is_empty(), "half a reply: {lines:?}");
                return "closed".to_owned();
            };
            let goes_on = line.as_bytes().get(3) == Some(&b'-');
            lines.push(line);
            if !goes_on {
                return lines.join("\n");
            }
        }
    }

    pub fn command(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.reply()
    }

    /// Says it and expects a reply that begins so.
    #[track_caller]
    pub fn expect(&mut self, line: &str, wanted: &str) -> String {
        let reply = self.command(line);
        assert!(reply.starts_with(wanted), "{line}: {reply}");
        reply
    }

    /// The greeting, and EHLO.
    #[track_caller]
    pub fn hello(&mut self) -> String {
        let greeting = self.reply();
        assert!(greeting.starts_with("220 "), "{greeting}");
        self.expect("EHLO client.test", "250")
    }

    #[track_caller]
    pub fn envelope(&mut self) {
        self.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
        self.expect("RCPT TO:<b@example.com>", "250 2.1.5");
    }

    /// Sends a message with DATA; `content` has its dots stuffed and ends with CRLF. The queue id.
    #[track_caller]
    pub fn message(&mut self, content: &[u8]) -> String {
        self.envelope();
        self.data(content)
    }

    #[track_caller]
    pub fn data(&mut self, content: &[u8]) -> String {
        self.expect("DATA", "354");
        self.send(content);
        self.send(b".\r\n");
        id(&self.reply())
    }

    #[track_caller]
    pub fn quit(&mut self) {
        self.expect("QUIT", "221 2.0.0");
        assert_eq!(self.reply(), "closed");
    }
}

/// The queue id of a reply that accepts.
#[track_caller]
pub fn id(reply: &str) -> String {
    let id = reply.strip_prefix("250 2.0.0 ").and_then(|rest| rest.strip_suffix(" Message accepted for delivery"));
    id.unwrap_or_else(|| panic!("not accepted: {reply}")).to_owned()
}

/// Content as DATA sends it.
// RFC 5321 §4.5.2
pub fn stuffed(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + content.len() / 50);
    let mut at_start = true;
    for byte in content {
        if at_start && *byte == b'.' {
            out.push(b'.');
        }
        out.push(*byte);
        at_start = *byte == b'\n';
    }
    out
}

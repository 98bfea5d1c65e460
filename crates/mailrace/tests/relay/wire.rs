//! A connection as a next hop sees it, in clear or under TLS: lines and octets in, replies out.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use testkit::harness::SOON;

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
    Gone,
}

/// A socket that takes so many more octets, and is closed then.
struct Socket {
    stream: TcpStream,
    left: usize,
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.stream.shutdown(Shutdown::Both)?;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.stream.write(&octets[..octets.len().min(self.left)])?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The connection. Everything that goes wrong with it ends it: `None`.
pub(crate) struct Wire {
    stream: Stream,
    /// Received and not read yet, from `at` on.
    input: Vec<u8>,
    at: usize,
    output: Vec<u8>,
}

/// A certificate of its own, for a next hop with TLS.
pub(crate) fn tls_config() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["hop.test".to_owned()]).expect("a certificate");
    let certificate = CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).expect("made");
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).expect("made");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they fit");
    Arc::new(config)
}

/// A next hop's side of TLS with a certificate for `name` by an authority of its own, and the certificate of that in
/// PEM.
pub(crate) fn signed(name: &str) -> (Arc<ServerConfig>, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Authority of the test");
    let key = rcgen::KeyPair::generate().expect("a key");
    let root = authority.self_signed(&key).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(authority, key);
    let own_key = rcgen::KeyPair::generate().expect("a key");
    let own = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let own = own.signed_by(&own_key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(own_key.serialize_pem().as_bytes()).expect("made");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are some")
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key)
        .expect("they fit");
    (Arc::new(config), root)
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(SOON * 2)).expect("set");
        stream.set_write_timeout(Some(SOON * 2)).expect("set");
        stream.set_nodelay(true).expect("set");
        let stream = Stream::Plain(Socket { stream, left: usize::MAX });
        Self { stream, input: Vec::new(), at: 0, output: Vec::new() }
    }

    /// From here on under TLS, of which so many octets are sent; octets before the handshake are dropped.
    pub(crate) fn start_tls(&mut self, config: &Arc<ServerConfig>, octets: usize) {
        self.flush();
        (self.input, self.at) = (Vec::new(), 0);
        if let Stream::Plain(socket) = std::mem::replace(&mut self.stream, Stream::Gone) {
            let connection = ServerConnection::new(Arc::clone(config)).expect("made");
            self.stream = Stream::Tls(Box::new(StreamOwned::new(connection, Socket { left: octets, ..socket })));
        }
    }

    /// Reads the beginning of a handshake and refuses it.
    // RFC 8446 §6: a record with the alert handshake_failure
    pub(crate) fn break_handshake(&mut self) {
        drop(self.octets(1));
        self.output.extend_from_slice(b"\x15\x03\x03\x00\x02\x02\x28");
        self.flush();
    }

    /// The next line with its end. Sends the written replies before it waits.
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        let mut searched = self.at;
        loop {
            let rest = self.input.get(searched..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let end = searched + end + 1;
                let line = self.input[self.at..end].to_vec();
                self.at = end;
                return Some(line);
            }
            searched = self.fill()?;
        }
    }

    /// So many octets.
    pub(crate) fn octets(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.input.len() - self.at < count {
            self.fill()?;
        }
        let octets = self.input[self.at..self.at + count].to_vec();
        self.at += count;
        Some(octets)
    }

    /// Says a line, or several with line feeds between them.
    pub(crate) fn say(&mut self, reply: &str) {
        for line in reply.split('\n') {
            self.output.extend_from_slice(line.as_bytes());
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Says a part of a line at once; whether that worked.
    pub(crate) fn part(&mut self, part: &str) -> bool {
        self.output.extend_from_slice(part.as_bytes());
        self.flush()
    }

    /// Sends a text that is no reply, until the other side closes.
    pub(crate) fn flood(&mut self, line: &str) {
        let many = format!("{line}\r\n").repeat(100);
        self.output.extend_from_slice(many.as_bytes());
        while self.flush() {
            self.output.extend_from_slice(many.as_bytes());
        }
    }

    /// Limits the octets that leave the socket from now on, under TLS with its records; then it closes.
    pub(crate) fn cut_after(&mut self, octets: usize) {
        self.flush();
        if let Some(socket) = self.socket() {
            socket.left = octets;
        }
    }

    fn socket(&mut self) -> Option<&mut Socket> {
        match &mut self.stream {
            Stream::Plain(socket) => Some(socket),
            Stream::Tls(stream) => Some(&mut stream.sock),
            Stream::Gone => None,
        }
    }

    /// Closes the socket, also for other owners, without an alert of TLS.
    fn close(&mut self) {
        if let Some(socket) = self.socket() {
            drop(socket.stream.shutdown(Shutdown::Both));
        }
    }

    /// Waits until the other side closes.
    pub(crate) fn wait_for_end(&mut self) {
        self.flush();
        while self.fill().is_some() {
            (self.input, self.at) = (Vec::new(), 0);
        }
    }

    /// Sends the written replies, and returns whether that worked.
    pub(crate) fn flush(&mut self) -> bool {
        let output = std::mem::take(&mut self.output);
        let sent = match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(&output),
            Stream::Tls(stream) => stream.write_all(&output).and_then(|()| stream.flush()),
            Stream::Gone => Err(io::ErrorKind::NotConnected.into()),
        };
        sent.is_ok()
    }

    /// Reads more; where the unread part ended before.
    fn fill(&mut self) -> Option<usize> {
        if !self.output.is_empty() && !self.flush() {
            return None;
        }
        self.input.drain(..self.at);
        self.at = 0;
        let before = self.input.len();
        let mut piece = [0; 16 << 10];
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut piece),
            Stream::Tls(stream) => stream.read(&mut piece),
            Stream::Gone => Ok(0),
        };
        match read {
            Ok(octets) if octets > 0 => {
                self.input.extend_from_slice(&piece[..octets]);
                Some(before)
            }
            _ => None,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.close();
    }
}

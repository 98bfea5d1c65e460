//! A milter that answers each packet as its script says, octet by octet.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The reaction of a script to a packet.
pub(super) enum Act {
    /// Sends these octets.
    Send(Vec<u8>),
    /// Sends these octets and closes the connection.
    Close(Vec<u8>),
    /// Says nothing.
    Silence,
}

/// A packet of the MTA: its command, and its data as text.
pub(super) type Packet = (char, String);

type Script = dyn Fn(usize, char, &[u8]) -> Act + Send + Sync;

/// A milter on a port of its own.
pub(super) struct Milter {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Packet>>>,
}

/// Makes a packet.
pub(super) fn packet(command: u8, data: &[u8]) -> Vec<u8> {
    let bytes = u32::try_from(data.len() + 1).expect("it is short").to_be_bytes();
    [&bytes, std::slice::from_ref(&command), data].concat()
}

/// Says to go on.
pub(super) fn go_on() -> Act {
    Act::Send(packet(b'c', b""))
}

/// The answer to the negotiation: version 6, every change, every step with a reply.
pub(super) fn agreement() -> Vec<u8> {
    packet(b'O', &[6_u32, 0x1ff, 0].map(u32::to_be_bytes).concat())
}

impl Milter {
    /// A milter that agrees to everything; the script gets the number of the connection and each packet with a reply.
    pub(super) fn new(script: impl Fn(usize, char, &[u8]) -> Act + Send + Sync + 'static) -> Self {
        Self::raw(move |connection, command, data| match command {
            'O' => Act::Send(agreement()),
            'D' | 'A' | 'Q' | 'K' => Act::Silence,
            _ => script(connection, command, data),
        })
    }

    /// A milter whose script gets every packet.
    pub(super) fn raw(script: impl Fn(usize, char, &[u8]) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&all));
                std::thread::spawn(move || drop(serve(stream, number, &*script, &seen)));
            }
        });
        Self { address, seen }
    }

    /// Serves one connection on a socket of this machine, and says to go on at each step.
    pub(super) fn on_socket(path: &Path) -> Arc<Mutex<Vec<Packet>>> {
        let listener = UnixListener::bind(path).expect("the path is free");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let script = |_: usize, command: char, _: &[u8]| match command {
                'O' => Act::Send(agreement()),
                'D' | 'A' | 'Q' => Act::Silence,
                _ => go_on(),
            };
            drop(serve(stream, 0, &script, &all));
        });
        seen
    }

    /// The packets of all connections so far.
    pub(super) fn seen(&self) -> Vec<Packet> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The commands so far, macros left out.
    pub(super) fn commands(&self) -> String {
        self.seen().into_iter().map(|(command, _)| command).filter(|command| *command != 'D').collect()
    }
}

fn serve(
    mut stream: impl Read + Write,
    number: usize,
    script: &Script,
    seen: &Mutex<Vec<Packet>>,
) -> std::io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut data = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut data)?;
        let (command, data) = data.split_first().expect("a packet has a command");
        let command = char::from(*command);
        let text = data.escape_ascii().to_string();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push((command, text));
        match script(number, command, data) {
            Act::Send(octets) => stream.write_all(&octets)?,
            Act::Close(octets) => return stream.write_all(&octets),
            Act::Silence => {}
        }
    }
}

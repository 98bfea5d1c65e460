//! A filter that takes mail by SMTP or LMTP, and answers and gives back as its script says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use testkit::client::greeted;

/// A message that the filter has got.
#[derive(Clone, Debug, Default)]
pub(super) struct Got {
    /// The number of the message, from 0.
    pub(super) number: usize,
    /// All commands of its session.
    pub(super) commands: Vec<String>,
    pub(super) from: String,
    pub(super) to: Vec<String>,
    /// Dots unstuffed.
    pub(super) content: String,
}

impl Got {
    /// The content with this field on top, and this text at its end.
    pub(super) fn changed(&self, field: &str, end: &str) -> String {
        format!("{field}\r\n{}{end}", self.content)
    }

    /// Gives content back to a server, with the envelope that came. Returns the reply to it.
    pub(super) fn give_back(&self, server: SocketAddr, content: &str) -> String {
        let to: Vec<&str> = self.to.iter().map(String::as_str).collect();
        send_back(server, &self.from, &to, content)
    }
}

/// Sends content to a server. Returns the reply to it.
pub(super) fn send_back(server: SocketAddr, from: &str, to: &[&str], content: &str) -> String {
    let mut client = greeted(server);
    client.expect(&format!("MAIL FROM:<{from}>"), "250");
    for one in to {
        client.expect(&format!("RCPT TO:<{one}>"), "250");
    }
    client.expect("DATA", "354");
    client.send(content.replace("\r\n.", "\r\n..").as_bytes());
    client.send(b".\r\n");
    let reply = client.reply();
    client.quit();
    reply
}

/// The reaction to the end of a message.
pub(super) enum End {
    /// These lines.
    Say(String),
    /// Nothing, until the server closes.
    Hang,
    Close,
}

/// 250.
pub(super) fn ok() -> End {
    End::Say("250 2.0.0 Ok".to_owned())
}

type Script = dyn Fn(&Got) -> End + Send + Sync;
type RecipientReply = fn(&str) -> &'static str;

/// A filter on a port of its own.
pub(super) struct SmtpFilter {
    pub(super) address: SocketAddr,
    pub(super) got: Arc<Mutex<Vec<Got>>>,
}

impl SmtpFilter {
    /// A filter that accepts all recipients.
    pub(super) fn new(script: impl Fn(&Got) -> End + Send + Sync + 'static) -> Self {
        Self::picky(|_| "250 2.1.5 Ok", script)
    }

    /// A filter that answers each RCPT by itself.
    pub(super) fn picky(recipient: RecipientReply, script: impl Fn(&Got) -> End + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let got = Arc::new(Mutex::new(Vec::new()));
        let (script, all): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&got));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, all) = (Arc::clone(&script), Arc::clone(&all));
                std::thread::spawn(move || drop(serve(&stream, recipient, &*script, &all)));
            }
        });
        Self { address, got }
    }

    /// The messages so far.
    pub(super) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(
    mut stream: &TcpStream,
    recipient: RecipientReply,
    script: &Script,
    all: &Mutex<Vec<Got>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).split(b'\n');
    let mut line = || -> std::io::Result<String> {
        let line = lines.next().unwrap_or_else(|| Err(std::io::ErrorKind::UnexpectedEof.into()))?;
        Ok(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
    };
    let mut got = Got::default();
    stream.write_all(b"220 filter.test ESMTP\r\n")?;
    loop {
        let command = line()?;
        got.commands.push(command.clone());
        let address = || command.split(['<', '>']).nth(1).unwrap_or_default().to_owned();
        let word = command.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let reply = match word.as_str() {
            "EHLO" | "LHLO" => "250-filter.test\r\n250-8BITMIME\r\n250 XFORWARD NAME ADDR PORT PROTO HELO IDENT SOURCE",
            "MAIL" => {
                got.from = address();
                "250 2.1.0 Ok"
            }
            "RCPT" => {
                let reply = recipient(&address());
                if reply.starts_with('2') {
                    got.to.push(address());
                }
                reply
            }
            "DATA" => {
                stream.write_all(b"354 Go on\r\n")?;
                loop {
                    match line()?.as_str() {
                        "." => break,
                        text => got.content += &format!("{}\r\n", text.strip_prefix('.').unwrap_or(text)),
                    }
                }
                {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    got.number = all.len();
                    all.push(got.clone());
                }
                match script(&got) {
                    End::Say(text) => stream.write_all(format!("{text}\r\n").as_bytes())?,
                    End::Hang => drop(line()),
                    End::Close => return Ok(()),
                }
                continue;
            }
            "QUIT" => "221 2.0.0 Bye",
            _ => "250 2.0.0 Ok",
        };
        stream.write_all(format!("{reply}\r\n").as_bytes())?;
    }
}

//! A receiver that remembers: the next hop at the end of a relay under test, and of the one that `mailrace demo` kills.
//!
//! One thread, one task a connection ([`conversation`]). It takes every message, says 250 and counts it; asked to, it
//! also keeps which message of which storm it was, whole or not, for whom, and by which name the client had said hello.
//! The receiver records a message before its 250 leaves. The records live in this process: they survive
//! the server under test, which is another one and is killed, and nothing else.
//!
//! The protocol is written here once more, and not taken from the server's room, so that a witness is not the accused.

mod conversation;

use crate::clock;
use crate::storm::{Arrived, NotSent};
use conversation::Conversation;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A message that came in whole, be it the right one or not.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Which message of which storm it is, or why it is none.
    pub what: Result<Arrived, NotSent>,
    /// Addresses of the recipients of the transaction, as they were sent.
    pub recipients: Vec<String>,
    /// The argument of EHLO or HELO.
    pub hello: Arc<str>,
    /// When it was recorded; its 250 left after that.
    pub at: Instant,
}

/// How it treats its clients. May be changed while it runs; sessions see it at their next EHLO or message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manners {
    /// Offers BDAT.
    pub chunking: bool,
    /// Waits before it answers a content.
    pub delay: Duration,
}

/// A running receiver. Dropping it closes its connections.
#[derive(Debug)]
pub struct Receiver {
    at: SocketAddr,
    shared: Arc<ReceiverState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state that its connections share. No lock is held across an `await`.
#[derive(Debug)]
struct ReceiverState {
    count: AtomicU64,
    /// Whether messages are looked at and remembered, or counted only.
    keeps: bool,
    arrivals: Mutex<Vec<Arrival>>,
    manners: Mutex<Manners>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1. With `keeps` messages are looked at and remembered, else counted only.
    ///
    /// # Errors
    /// There is none, or no thread.
    pub fn start(keeps: bool, manners: Manners) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            socket.listen(BACKLOG)
        })?;
        let at = listener.local_addr()?;
        let shared = Arc::new(ReceiverState {
            count: AtomicU64::new(0),
            keeps,
            arrivals: Mutex::new(Vec::new()),
            manners: Mutex::new(manners),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                runtime.block_on(async {
                    // Accepting is cancel-safe; the end of the receiver drops connections that wait.
                    tokio::select! {
                        () = accept(&listener, &shared) => {}
                        _ = stopped => {}
                    }
                });
            }
        })?;
        Ok(Self { at, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Messages so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire)
    }

    /// Changes its manners.
    pub fn behave(&self, manners: Manners) {
        *self.shared.manners.lock().unwrap_or_else(PoisonError::into_inner) = manners;
    }

    /// Returns the arrivals since the last call, in the order of recording.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.shared.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there is a panic of the rig, and its tests or its missing arrivals say so.
            drop(thread.join());
        }
    }
}

impl ReceiverState {
    fn manners(&self) -> Manners {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, what: Option<Result<Arrived, NotSent>>, recipients: Vec<String>, hello: &Arc<str>) {
        if let Some(what) = what {
            let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            // The time is taken under the lock, so the order of the records is the order of the times.
            arrivals.push(Arrival { what, recipients, hello: Arc::clone(hello), at: clock::now() });
        }
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// Accepts for ever.
async fn accept(listener: &TcpListener, shared: &Arc<ReceiverState>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let conversation = Conversation::new(stream, Arc::clone(shared));
                // It ends with its connection, or with the runtime; how it ended says nothing that the records do not.
                drop(tokio::spawn(async move { drop(conversation.run().await) }));
            }
            // Out of files: the next connection to end gives one back.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm::{self, Plan, Sizes};
    use std::collections::BTreeSet;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    /// Every way of a storm to send arrives whole, once, and for its recipients.
    #[test]
    fn a_storm_arrives_exactly_once() {
        let receiver = Receiver::start(true, Manners { chunking: true, ..Manners::default() }).unwrap();
        for (pipelining, chunking, split_dot) in
            [(false, false, false), (true, false, false), (false, false, true), (true, true, false)]
        {
            let plan = Plan {
                messages: Some(60),
                sessions: 4,
                recipients: 2,
                sizes: Sizes { from: 1 << 10, to: 200 << 10 },
                pipelining,
                chunking,
                split_dot,
                run: "a/b".to_owned(),
                ..Plan::new(receiver.at())
            };
            let report = storm::run(&plan, &mut |_| {}).unwrap();
            assert_eq!(report.accepted, 60, "{:?}", report.errors);
            let arrivals = receiver.arrivals();
            let seen: BTreeSet<u64> = arrivals.iter().map(|arrival| arrival.what.as_ref().unwrap().seq).collect();
            assert_eq!((arrivals.len(), seen.len()), (60, 60));
            assert!(arrivals.iter().all(|arrival| arrival.recipients.len() == 2));
        }
        assert_eq!(receiver.count(), 240);
    }

    /// Says something and reads until the other side closes.
    fn say(receiver: &Receiver, what: &str) -> String {
        let mut stream = TcpStream::connect(receiver.at()).unwrap();
        stream.write_all(what.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn what_is_not_a_whole_message_is_no_arrival() {
        let receiver = Receiver::start(true, Manners::default()).unwrap();
        let begin = "EHLO me\r\nMAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\nDATA\r\n";
        let mut stream = TcpStream::connect(receiver.at()).unwrap();
        stream.write_all(format!("{begin}text\r\n").as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_string(&mut String::new()).unwrap();
        assert_eq!(receiver.count(), 0);
        // The dot alone ends it, and only between two line ends.
        let said = say(&receiver, &format!("{begin}X: y\r\n\r\n..\r\n.x\r\n\n.\n\r\n.\r\nQUIT\r\n"));
        assert!(said.contains("250 2.0.0 Recorded") && said.ends_with("221 2.0.0 Bye\r\n"), "{said}");
        let arrivals = receiver.arrivals();
        assert_eq!(arrivals.len(), 1);
        assert_eq!(arrivals[0].what, Err(NotSent::Foreign));
        assert_eq!((&*arrivals[0].hello, &arrivals[0].recipients[..]), ("me", &["a@b.example".to_owned()][..]));
    }

    #[test]
    fn commands_out_of_order_are_refused() {
        let receiver = Receiver::start(true, Manners::default()).unwrap();
        let said = say(&receiver, "DATA\r\nBDAT 3 LAST\r\nabcRSET\r\nNOOP\r\nWHAT\r\nQUIT\r\n");
        let codes: Vec<&str> = said.lines().filter_map(|line| line.get(..3)).collect();
        assert_eq!(codes, ["220", "503", "503", "250", "250", "500", "221"], "{said}");
        assert_eq!(receiver.count(), 0);
    }
}

//! The balancer of the demonstration: each connection goes to the next node in turn; one that refuses is passed over.
//!
//! A thread for each direction of a connection: a storm has a few dozen.

use crate::exit::Failure;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A running balancer. It ends with the process.
#[derive(Debug)]
pub(super) struct Balancer {
    address: SocketAddr,
}

impl Balancer {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none, or no thread.
    pub(super) fn start(nodes: Vec<SocketAddr>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io("starting the balancer", &error);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let nodes: Arc<[SocketAddr]> = nodes.into();
        let turn = Arc::new(AtomicUsize::new(0));
        std::thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || {
                for client in listener.incoming().flatten() {
                    let (nodes, turn) = (Arc::clone(&nodes), Arc::clone(&turn));
                    std::thread::spawn(move || serve(client, &nodes, &turn));
                }
            })
            .map_err(failed)?;
        Ok(Self { address })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves a connection until either side ends it.
fn serve(client: TcpStream, nodes: &[SocketAddr], turn: &AtomicUsize) {
    let first = turn.fetch_add(1, Ordering::Relaxed);
    let order = (0..nodes.len()).map(|step| (first + step) % nodes.len());
    let mut open = order.filter_map(|at| TcpStream::connect(nodes.get(at)?).ok());
    let Some(node) = open.next() else { return };
    let (Ok(from_client), Ok(to_client)) = (client.try_clone(), client.try_clone()) else { return };
    let Ok(from_node) = node.try_clone() else { return };
    drop((client.set_nodelay(true), node.set_nodelay(true)));
    std::thread::spawn(move || pass_on(from_node, to_client));
    pass_on(from_client, node);
}

/// Copies one direction, and closes both when it ends.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}

//! Sockets on loopback, with ports that the system chose.

use super::*;
use crate::config::{ListenProtocol, ListenTls, SenderFailure};
use os::test_deadline::TestDeadline;
use std::net::TcpStream as Client;

fn entry(address: &str) -> Listen {
    Listen {
        name: "MTA".into(),
        address: address.parse().unwrap(),
        protocol: ListenProtocol::Smtp,
        tls: ListenTls::None,
        tls_required: false,
        proxy_protocol: Vec::new(),
        connections_max: 0,
        auth_required: false,
        acknowledge: crate::config::Acknowledge::Durable,
        on_no_replica: crate::config::OnNoReplica::TempFail,
        bare_newline: smtp::server::BareNewline::Reject,
        filters: Vec::new(),
        auth_results: false,
        dmarc_reject: SenderFailure::None,
        dmarc_quarantine: SenderFailure::None,
        spf_fail: SenderFailure::None,
        iprev_fail: SenderFailure::None,
    }
}

fn read_all(client: &mut Client) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn several_sockets_on_one_address() {
    let bound = bind(&[entry("127.0.0.1:0"), entry("127.0.0.1:0")], Vec::new(), 64, 3).unwrap();
    assert_eq!(bound.listeners.len(), 2);
    assert_eq!(bound.notes, []);
    for listener in &bound.listeners {
        assert_eq!(listener.sockets.len(), 3);
        assert_ne!(listener.address.port(), 0);
        assert!(listener.sockets.iter().all(|socket| socket.local_addr().unwrap() == listener.address));
    }
    let note = bind(&[], Vec::new(), u32::MAX, 1).unwrap().notes;
    assert!(matches!(note.as_slice(), [BindNote::Backlog { .. }]), "{note:?}");
    assert!(note[0].to_string().contains("net.core.somaxconn"), "{}", note[0]);
}

#[test]
fn a_taken_address_names_its_holder() {
    let first = bind(&[entry("127.0.0.1:0")], Vec::new(), 64, 2).unwrap();
    let address = first.listeners[0].address;
    // Even our own kind of socket, with SO_REUSEPORT and of the same user.
    let errors = bind(&[entry(&address.to_string())], Vec::new(), 64, 2).unwrap_err();
    let text = errors[0].to_string();
    assert!(text.starts_with(&format!("cannot listen on {address}: ")), "{text}");
    assert!(text.contains(&format!("pid {}, listens there", std::process::id())), "{text}");
    drop(first);
    // A child that another test has just made may hold it for a moment.
    let patience = TestDeadline::new("the address is not free again");
    while bind(&[entry(&address.to_string())], Vec::new(), 64, 2).is_err() {
        patience.check();
    }
}

#[test]
fn errors_name_the_next_step() {
    let text = |kind: ErrorKind| {
        let address = "192.0.2.1:25".parse().unwrap();
        BindError { entry: 0, address, error: kind.into(), holder: None }.to_string()
    };
    assert!(text(ErrorKind::PermissionDenied).contains("systemd socket (ListenStream=25)"));
    assert!(text(ErrorKind::AddrInUse).contains("ss -ltnp 'sport = :25'"));
    let errors = bind(&[entry("240.0.0.1:0"), entry("240.0.0.2:0")], Vec::new(), 64, 1).unwrap_err();
    assert_eq!(errors.len(), 2, "all at once");
    assert!(errors[1].to_string().contains("240.0.0.2:0: this machine has no such address"), "{}", errors[1]);
}

#[test]
fn who_is_in_the_way_has_that_address() {
    let line = "   0: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1";
    let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
    // The file is in the order of octets of the machine.
    if cfg!(target_endian = "little") {
        assert_eq!(listening(line), Some((at("127.0.0.1:25"), "31337")));
        let six = line.replace("0100007F:", "00000000000000000000000001000000:");
        assert_eq!(listening(&six), Some((at("[::1]:25"), "31337")));
    }
    assert_eq!(listening(&line.replace(" 0A ", " 01 ")), None);
    for (own, wanted, is) in [
        ("127.0.0.1:25", "127.0.0.1:25", true),
        ("127.0.0.2:25", "127.0.0.1:25", false),
        ("127.0.0.1:26", "127.0.0.1:25", false),
        ("0.0.0.0:25", "127.0.0.1:25", true),
        ("127.0.0.1:25", "0.0.0.0:25", true),
        ("[::]:25", "127.0.0.1:25", true),
        ("0.0.0.0:25", "[::1]:25", false),
        ("[::1]:25", "127.0.0.1:25", false),
        ("[::1]:25", "0.0.0.0:25", false),
        ("[::1]:25", "[::]:25", true),
    ] {
        assert_eq!(is_in_the_way(at(own), at(wanted)), is, "{own} {wanted}");
    }
    // A process that listens on the port at another address is not named.
    let Ok(other) = std::net::TcpListener::bind("127.0.0.1:0") else { return };
    let port = other.local_addr().unwrap().port();
    assert_eq!(holder(SocketAddr::new(IpAddr::from([127, 0, 0, 77]), port)), None);
    assert!(holder(other.local_addr().unwrap()).is_some());
}

#[test]
fn sockets_from_systemd() {
    let ours = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ours.local_addr().unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other_address = other.local_addr().unwrap();
    let bound = bind(&[entry("127.0.0.1:0"), entry(&address.to_string())], vec![other, ours], 64, 4).unwrap();
    assert!(!bound.listeners[0].given);
    assert!(bound.listeners[1].given);
    assert_eq!((bound.listeners[1].address, bound.listeners[1].sockets.len()), (address, 1));
    assert_eq!(bound.notes, [BindNote::NotConfigured(other_address)]);
}

#[test]
fn one_socket_for_both_families() {
    let both = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
    both.set_only_v6(false).unwrap();
    let any: SocketAddr = "[::]:0".parse().unwrap();
    both.bind(&any.into()).unwrap();
    both.listen(8).unwrap();
    let both = std::net::TcpListener::from(both);
    let address = both.local_addr().unwrap();
    let v4: SocketAddr = format!("0.0.0.0:{}", address.port()).parse().unwrap();
    let bound = bind(&[entry(&address.to_string()), entry(&v4.to_string())], vec![both], 64, 2).unwrap();
    assert_eq!(bound.listeners[0].sockets.len(), 1);
    assert_eq!(bound.listeners[1].sockets.len(), 0);
    assert_eq!(bound.notes, [BindNote::Covered { address: v4, by: address }]);
}

#[tokio::test]
async fn options_come_with_the_connection() {
    let bound = bind(&[entry("127.0.0.1:0")], Vec::new(), 64, 1).unwrap();
    let [listener] = <[Listener; 1]>::try_from(bound.listeners).unwrap();
    let mut acceptor = ConnectionAcceptor::new(listener.sockets.into_iter().next().unwrap()).unwrap();
    let client = Client::connect(listener.address).unwrap();
    let Accepted::Connection(stream, peer) = acceptor.accept().await else { panic!("no connection") };
    assert_eq!(peer, client.local_addr().unwrap());
    let socket = SockRef::from(&stream);
    assert!(socket.tcp_nodelay().unwrap());
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
}

#[tokio::test]
async fn a_refused_client_reads_its_reply() {
    let bound = bind(&[entry("127.0.0.1:0")], Vec::new(), 64, 1).unwrap();
    let [listener] = <[Listener; 1]>::try_from(bound.listeners).unwrap();
    let mut acceptor = ConnectionAcceptor::new(listener.sockets.into_iter().next().unwrap()).unwrap();
    for early in [&b""[..], b"PROXY UNKNOWN\r\n", &[b'x'; 3_000]] {
        let mut client = Client::connect(listener.address).unwrap();
        client.write_all(early).unwrap();
        let Accepted::Connection(stream, _) = acceptor.accept().await else { panic!("no connection") };
        refuse(&SockRef::from(&stream), Limit::Connections.reply());
        drop(stream);
        assert_eq!(read_all(&mut client), "421 4.3.2 Too many connections, try again later\r\n");
    }
}

/// The limit of descriptors is one of the whole process, so this test runs in a process of its own.
#[test]
fn without_file_descriptors_the_port_answers() {
    const CHILD: &str = "MAILRACE_TEST_WITHOUT_FILES";
    if std::env::var_os(CHILD).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "accept::listener::tests::without_file_descriptors_the_port_answers", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bound = bind(&[entry("127.0.0.1:0")], Vec::new(), 64, 1).unwrap();
        let [listener] = <[Listener; 1]>::try_from(bound.listeners).unwrap();
        let mut acceptor = ConnectionAcceptor::new(listener.sockets.into_iter().next().unwrap()).unwrap();
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(listener.address).unwrap()).collect();
        // Take all descriptors that are left.
        let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        let mut files: Vec<File> = std::iter::from_fn(|| reserve().ok()).collect();
        for client in &mut clients[..2] {
            let Accepted::Refused(peer) = acceptor.accept().await else { panic!("not refused") };
            assert_eq!(peer, client.local_addr().unwrap());
            assert!(read_all(client).starts_with("421 4.3.2 "));
        }
        // The reserve gone too: a pause, and nothing lost.
        files.extend(acceptor.spare.take());
        let Accepted::Trouble { pause, .. } = acceptor.accept().await else { panic!("no trouble") };
        assert_eq!(pause, PAUSE_MIN);
        files.truncate(1);
        let Accepted::Connection(_, peer) = acceptor.accept().await else { panic!("no connection") };
        assert_eq!(peer, clients[2].local_addr().unwrap());
        assert!(acceptor.spare.is_some(), "there is a reserve again");
    });
}

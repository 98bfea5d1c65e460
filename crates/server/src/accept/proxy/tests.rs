//! Headers right and wrong, as bytes; the reader on a stream.

use super::*;
use proxy_header::{ProxiedAddress, SslInfo};
use std::net::Ipv4Addr;
use tokio::io::AsyncWriteExt as _;

/// Far longer than a header on loopback takes.
const SOON: Duration = Duration::from_secs(60);

#[track_caller]
fn header(input: &[u8]) -> Header {
    match read(input) {
        ProxyOutcome::Header(header) => header,
        other => panic!("{other:?} of {}", input.escape_ascii()),
    }
}

#[track_caller]
fn invalid(input: &[u8], why: Invalid) {
    assert_eq!(read(input), ProxyOutcome::Invalid(why), "{}", input.escape_ascii());
}

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
    bytes.extend(rest);
    bytes
}

fn addresses(source: &str, destination: &str) -> ProxiedAddress {
    ProxiedAddress::stream(source.parse().unwrap(), destination.parse().unwrap())
}

fn encoded(tlvs: Vec<Tlv<'_>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = ProxyHeader::with_tlvs(Some(addresses("[2001:db8::7]:4000", "[2001:db8::1]:25")), tlvs);
    bytes.resize(8_000, 0);
    let length = header.encode_to_slice_v2(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn version_1() {
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 4000 25\r\n";
    let mut input = line.to_vec();
    input.extend(b"EHLO x\r\n");
    let found = header(&input);
    assert_eq!(found.used, line.len());
    assert_eq!(found.client, Some("192.0.2.7:4000".parse().unwrap()));
    assert_eq!(found.local, Some("198.51.100.1:25".parse().unwrap()));
    let six = header(b"PROXY TCP6 2001:db8::7 2001:db8::1 4000 25\r\n");
    assert_eq!(six.client, Some("[2001:db8::7]:4000".parse().unwrap()));
    // One client is one client, however its proxy writes it.
    let mapped = header(b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 4000 25\r\n");
    assert_eq!(mapped.client, Some("192.0.2.7:4000".parse().unwrap()));
    for unknown in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN ffff:f... ffff 65535 65535\r\n"] {
        let found = header(unknown);
        assert_eq!((found.client, found.used), (None, unknown.len()));
    }
}

#[test]
fn version_1_malformed() {
    for line in [
        &b"PROXY TCP4 192.0.2.7 198.51.100.1 4000 25\n"[..],
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4000 25 \r\n",
        b"PROXY TCP4  192.0.2.7 198.51.100.1 4000 25\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 +4000 25\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4000 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4000\r\n",
        b"PROXY TCP4 2001:db8::7 2001:db8::1 4000 25\r\n",
        b"PROXY TCP6 192.0.2.7 198.51.100.1 4000 25\r\n",
        b"PROXY TCP4 192.0.2.7\r 198.51.100.1 4000 25\r\n",
        b"PROXY UDP4 192.0.2.7 198.51.100.1 4000 25\r\n",
        b"PROXY UNKNOWNX\r\n",
        b"PROXY \r\n",
    ] {
        invalid(line, Invalid::Line);
    }
    for garbage in [&b"EHLO x\r\n"[..], b"PROXYX", b"proxy TCP4", b"\x16\x03\x01", b"PRQ"] {
        invalid(garbage, Invalid::Signature);
    }
    invalid(b"PROXY TCP4 0.0.0.0 198.51.100.1 4000 25\r\n", Invalid::Address);
    let mut long = b"PROXY UNKNOWN ".to_vec();
    long.resize(107, b'x');
    invalid(&long, Invalid::TooLong);
    long.truncate(106);
    assert_eq!(read(&long), ProxyOutcome::NeedMore);
    long.truncate(105);
    long.extend(b"\r\n");
    assert_eq!(header(&long).used, 107);
}

#[test]
fn version_2() {
    let found = header(&v2(0x21, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0x0f, 0xa0, 0, 25]));
    assert_eq!((found.client, found.used), (Some("192.0.2.7:4000".parse().unwrap()), 28));
    // LOCAL, unspecified and Unix sockets: the connection's own address. LOCAL may hold anything.
    for (command, family, length) in [(0x20, 0, 0), (0x20, 0x11, 12), (0x20, 0x77, 3), (0x21, 0, 0), (0x21, 0x31, 216)]
    {
        let bytes = v2(command, family, &vec![0; length]);
        assert_eq!((header(&bytes).client, header(&bytes).used), (None, bytes.len()), "{command:x} {family:x}");
    }
    for (command, family, length) in
        [(0x22, 0x11, 12), (0x11, 0x11, 12), (0x21, 0x12, 12), (0x21, 0x22, 36), (0x21, 0x11, 11), (0x21, 0x41, 12)]
    {
        invalid(&v2(command, family, &vec![1; length]), Invalid::Fields);
    }
    // Wrong already before it is complete; too long before any of it has come.
    invalid(&v2(0x31, 0x11, &[])[..13], Invalid::Fields);
    invalid(&v2(0x21, 0x11, &[0; 4_081])[..16], Invalid::TooLong);
    assert_eq!(read(&v2(0x20, 0x11, &[0; 4_080])[..4_095]), ProxyOutcome::NeedMore);
    invalid(&v2(0x21, 0, &[5, 0, 9, 1]), Invalid::Tlv);
}

#[test]
fn tls_of_the_proxy() {
    let mut ssl = SslInfo::new(true, false, false, 1);
    ssl.append_tlv(Tlv::SslVersion("TLSv1.3".into()));
    ssl.append_tlv(Tlv::SslCipher("TLS_AES_256_GCM_SHA384".into()));
    let found = header(&encoded(vec![Tlv::Ssl(ssl), Tlv::Authority("mx.example".into())])).tls.unwrap();
    assert_eq!(&*found.version, "TLSv1.3");
    assert_eq!(found.cipher.as_deref(), Some("TLS_AES_256_GCM_SHA384"));
    assert_eq!(found.server_name.as_deref(), Some("mx.example"));
    // Text for log lines holds no line ends; without the flag there was no TLS.
    let mut ssl = SslInfo::new(true, false, false, 1);
    ssl.append_tlv(Tlv::SslCipher("a\r\nb".into()));
    let found = header(&encoded(vec![Tlv::Ssl(ssl)])).tls.unwrap();
    assert_eq!((&*found.version, found.cipher), ("", None));
    assert_eq!(header(&encoded(vec![Tlv::Ssl(SslInfo::new(false, false, false, 1))])).tls, None);
}

#[test]
fn checksum() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    let with = |sum| encoded(vec![Tlv::Noop(3), Tlv::Crc32c(sum), Tlv::UniqueId(b"x"[..].into())]);
    let right = crc32c(&with(0));
    assert_eq!(header(&with(right)).client, Some("[2001:db8::7]:4000".parse().unwrap()));
    invalid(&with(right ^ 1), Invalid::Checksum);
    let mut damaged = with(right);
    damaged[17] ^= 1;
    invalid(&damaged, Invalid::Checksum);
}

#[test]
fn who_is_believed() {
    let networks = ["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
    assert!(expected(&networks, Ipv4Addr::new(192, 0, 2, 9).into()));
    assert!(expected(&networks, Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped().into()));
    assert!(expected(&networks, "2001:db8::9".parse().unwrap()));
    assert!(!expected(&networks, Ipv4Addr::new(192, 0, 3, 9).into()));
    assert!(!expected(&[], Ipv4Addr::LOCALHOST.into()));
}

#[tokio::test]
async fn on_a_connection() {
    let (mut ours, mut theirs) = connection().await;
    let (found, ()) = tokio::join!(receive(&mut ours, SOON), async {
        theirs.write_all(b"PROXY TCP4 192.0.2.7 198.").await.unwrap();
        tokio::task::yield_now().await;
        theirs.write_all(b"51.100.1 4000 25\r\nEHLO").await.unwrap();
    });
    assert_eq!(found.unwrap().client, Some("192.0.2.7:4000".parse().unwrap()));
    let mut rest = [0; 4];
    ours.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b"EHLO", "the rest is the session's");

    let silent = receive(&mut ours, Duration::from_millis(1)).await;
    assert!(matches!(silent, Err(NoHeader::TimedOut)), "{silent:?}");

    theirs.write_all(b"PROXY").await.unwrap();
    drop(theirs);
    let closed = receive(&mut ours, SOON).await;
    assert!(matches!(closed, Err(NoHeader::Closed)), "{closed:?}");

    let (mut ours, mut theirs) = connection().await;
    theirs.write_all(b"EHLO x\r\n").await.unwrap();
    let garbage = receive(&mut ours, SOON).await;
    assert!(matches!(garbage, Err(NoHeader::Invalid(Invalid::Signature))), "{garbage:?}");
}

/// Both ends of a connection.
async fn connection() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, theirs)
}

#[test]
fn fuzz_body() {
    let seeds: Vec<Vec<u8>> = vec![
        b"PROXY TCP4 192.0.2.7 198.51.100.1 4000 25\r\nEHLO x\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::7 2001:db8::1 4000 25\r\nEHLO x\r\n".to_vec(),
        b"PROXY UNKNOWN x\r\n.".to_vec(),
        v2(0x21, 0x11, &[192, 0, 2, 7, 198, 51, 100, 1, 0x0f, 0xa0, 0, 25, 4, 0, 1, 9]),
        v2(0x20, 0x11, &[0; 12]),
        encoded(vec![Tlv::Ssl(SslInfo::new(true, true, true, 0)), Tlv::Crc32c(1), Tlv::Authority("a".into())]),
    ];
    for seed in seeds {
        crate::accept::fuzz::proxy(&seed);
        for at in 0..seed.len() {
            for byte in [0, b'\n', b'\r', b' ', b'9', 0x21, 0xff, seed[at] ^ 1] {
                let mut data = seed.clone();
                data[at] = byte;
                crate::accept::fuzz::proxy(&data);
                data.remove(at);
                crate::accept::fuzz::proxy(&data);
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn fuzz_body_on_anything(start in 0..4_usize, data in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..80)) {
        let starts = [&b""[..], b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", b"\r\n\r\n\0\r\nQUIT\n\x20"];
        let mut input = starts[start].to_vec();
        input.extend(data);
        crate::accept::fuzz::proxy(&input);
    }
}

//! Addresses in answers that lead no mail anywhere.

use super::*;

/// The DNS of another domain leads no mail to this machine, nor to addresses that it must not name. Hosts of the
/// configuration may be anywhere.
#[tokio::test]
async fn addresses_that_no_stranger_can_mean() {
    const IGNORED: [&str; 16] = [
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::192.0.2.1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "ff02::1",
        "64:ff9b::7f00:1",
        "64:ff9b::e000:1",
        "2002:7f00:1::1",
    ];
    let mut zone = zone();
    for (number, ip) in IGNORED.iter().enumerate() {
        let (alone, host) = (format!("alone{number}.example"), format!("host{number}.example"));
        zone.extend([
            a(&alone, ip),
            a(&host, ip),
            mx(&format!("only{number}.example"), 10, &host),
            mx(&format!("first{number}.example"), 10, &host),
            mx(&format!("first{number}.example"), 20, "mx.one.example"),
            mx(&format!("broken{number}.example"), 10, &host),
            mx(&format!("broken{number}.example"), 20, "broken.partbroken.example"),
            a(&format!("some{number}.example"), ip),
            a(&format!("some{number}.example"), "198.51.100.1"),
        ]);
    }
    zone.extend([
        mx("named.example", 10, "localhost"),
        a("private.example", "10.0.0.1"),
        a("private.example", "fc00::1"),
        a("good64.example", "64:ff9b::c633:6401"),
    ]);
    let server = Server::start(zone).await;
    let text = "dns.override = [{domain = 'host1.example', address = \
                ['127.0.0.2']}, {domain = 'only0.example', mx = ['host0.example']}]";
    let load =
        |text: &str| crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config.dns;
    let ignored_addresses = load("").ignored_addresses;
    let settings = settings(&[server.address], LONG);
    let resolver = resolver_of(&Dns { ignored_addresses: ignored_addresses.clone(), ..settings.clone() });
    for (number, ip) in IGNORED.iter().enumerate() {
        let shown = async |name: String| show(&ask(&resolver, &name, 1).await).split(':').next().unwrap().to_owned();
        let found = show(&ask(&resolver, &format!("first{number}.example"), 1).await);
        assert_eq!(found, "20 mx.one.example 192.0.2.1 2001:db8::1", "{ip}");
        let found = show(&ask(&resolver, &format!("some{number}.example"), 1).await);
        assert_eq!(found, format!("0 some{number}.example 198.51.100.1"), "{ip}");
        for name in ["alone", "only"] {
            assert_eq!(shown(format!("{name}{number}.example")).await, "5.4.4 Host unreachable (Name server", "{ip}");
        }
        // Another host may have an address: only the name server can tell.
        assert_eq!(shown(format!("broken{number}.example")).await, "4.4.3 Name server", "{ip}");
    }
    let alone = show(&ask(&resolver, "alone0.example", 1).await);
    let said = "5.4.4 Host unreachable (Name server: alone0.example: no mail goes to 127.0.0.1; see \
                dns.ignored_addresses)";
    assert_eq!(alone, said);
    assert!(show(&ask(&resolver, "named.example", 1).await).starts_with("5.4.4 Host unreachable"));
    for (name, hosts) in [
        ("private.example", "0 private.example 10.0.0.1 fc00::1"),
        ("good64.example", "0 good64.example 64:ff9b::c633:6401"),
    ] {
        assert_eq!(show(&ask(&resolver, name, 1).await), hosts);
    }
    // A host that the configuration names may be anywhere.
    assert_eq!(
        resolver.host_addresses("host0.example", Family::Any, 1).await.unwrap().addresses,
        ["127.0.0.1".parse::<IpAddr>().unwrap()]
    );
    let overrides = load(text).overrides;
    let resolver = resolver_of(&Dns { ignored_addresses, overrides, ..settings.clone() });
    let others = LocalIdentity::default();
    for (name, hosts) in
        [("only0.example", "0 host0.example 127.0.0.1"), ("only1.example", "10 host1.example 127.0.0.2")]
    {
        let found = resolver.mail_hosts(&domain(name), 25, &others, Family::Any, 1).await;
        assert_eq!(show(&found), hosts);
    }
    // Without the networks, all names of a zone count; tests of this kind are about that.
    let resolver = resolver_of(&settings);
    let found = resolver.mail_hosts(&domain("alone0.example"), 25, &others, Family::Any, 1).await;
    assert_eq!(show(&found), "0 alone0.example 127.0.0.1");
}

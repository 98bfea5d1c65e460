//! Files as administrators have them, statement by statement, and files that nobody has.

use super::{Imported, Language, Weight, import};
use proptest::prelude::*;

const LAB: &str = include_str!("tests/lab.mc");
const PACKAGED: &str = include_str!("tests/packaged.mc");
const LAB_CF: &str = include_str!("tests/lab.cf");

fn mc(text: &str) -> Imported {
    import("sendmail.mc", text, Language::Mc, &|_| false)
}

fn has(imported: &Imported, weight: Weight, line: usize, words: &str) -> bool {
    imported.notes.iter().any(|note| note.weight == weight && note.line == line && note.to_string().contains(words))
}

#[test]
fn one_statement_and_its_key() {
    let table = [
        ("define(`confMAX_MESSAGE_SIZE', `1000000')", "size_max = 1000000  # line 1"),
        ("define(`confMAX_RCPTS_PER_MESSAGE',`20')", "recipients_max = 20"),
        ("define(`confTO_QUEUERETURN', `3')", "give_up_after = \"3d\""),
        ("define(`confTO_QUEUEWARN', `90m')", "warn_after = \"90m\""),
        ("define(`confTO_CONNECT', `1m')", "connect_time = \"1m\""),
        ("define(`confMAX_HOP', `30')", "hops_max = 30"),
        ("define(`confDOMAIN_NAME', `MX.example.com')", "hostname = \"mx.example.com\""),
        ("define(`confDELIVERY_MODE', `queueonly')", "mode = \"queue\""),
        ("define(`confDELIVERY_MODE', `i')", "acknowledge = \"interactive\""),
        ("define(`confMAX_DAEMON_CHILDREN', `40')", "connections_max = 40"),
        ("define(`confCONNECTION_RATE_THROTTLE', `15')", "rate = 15"),
        ("define(`confCONNECTION_RATE_WINDOW_SIZE', `10m')", "[access]\nclient_rate_window = \"10m\""),
        ("define(`confPRIVACY_FLAGS', `goaway,nobodyreturn')", "verify = false"),
        ("define(`confAUTH_MECHANISMS', `DIGEST-MD5 PLAIN')", "mechanisms = [\"PLAIN\"]"),
        ("define(`confRUN_AS_USER', `smmta:smmsp')", "group = \"smmsp\""),
        ("define(`ALIAS_FILE', `hash:/etc/aliases, /etc/more')", "aliases = [\"/etc/aliases\", \"/etc/more\"]"),
        (
            "define(`SMART_HOST', `relay:[a.example]:[192.0.2.1]')",
            "smart_host = [\"a.example:25\", \"[192.0.2.1]:25\"]",
        ),
        ("define(`LUSER_RELAY', `hub.example.com')", "luser_relay = \"hub.example.com\""),
        ("FEATURE(`access_db', `hash -T<TMPF> /etc/mail/acc')", "access = [\"/etc/mail/acc\"]"),
        ("FEATURE(`access_db')\nFEATURE(`authinfo')", "access = [\"/etc/mail/access\", \"/etc/mail/authinfo\"]"),
        ("FEATURE(`mailertable')", "mailertable = [\"/etc/mail/mailertable\"]"),
        ("FEATURE(`delay_checks', `friend', `n')", "delay_checks = \"friend\""),
        ("FEATURE(`access_db')", "blocklist_recipients = false"),
        ("FEATURE(`access_db')\nFEATURE(`blocklist_recipients')", "blocklist_recipients = true"),
        ("FEATURE(`use_cw_file')", "domain_files = [\"/etc/mail/local-host-names\"]"),
        ("FEATURE(`nullclient', `hub.example.com')", "smart_host = [\"hub.example.com:25\"]"),
        ("FEATURE(`enhdnsbl', `zen.example', , `t')", "[[dnsbl.list]]\nzone = \"zen.example\""),
        ("FEATURE(`greet_pause', `5000')", "greet_pause = \"5000ms\""),
        ("FEATURE(`local_lmtp', `[IPC]', `FILE /run/dovecot/lmtp')", "mailbox = \"lmtp:unix:/run/dovecot/lmtp\""),
        ("RELAY_DOMAIN(`example.com 192.168.1')", "to = [\".example.com\"]"),
        ("RELAY_DOMAIN(`a.example')\nFEATURE(`relay_hosts_only')", "to = [\"a.example\"]"),
        ("RELAY_DOMAIN(`192.168.1')", "from = [\"127.0.0.0/8\", \"::1/128\", \"192.168.1.0/24\"]"),
        ("MASQUERADE_AS(`example.com')\nFEATURE(masquerade_envelope)", "masquerade = \"example.com\""),
        (
            "DAEMON_OPTIONS(`Family=inet6, Name=MTA-v6, Port=smtp')",
            "address = \"[::]:25\"  # line 1\nname = \"MTA-v6\"",
        ),
        ("LOCAL_DOMAIN(`a.example b.example')", "domains = [\"a.example\", \"b.example\"]"),
        ("GENERICS_DOMAIN(`a.example')", "domains = [\"a.example\"]"),
    ];
    for (text, expected) in table {
        let imported = mc(text);
        assert!(imported.toml.contains(expected), "{text}\n{}", imported.toml);
    }
}

#[test]
fn what_is_not_carried_over_is_said() {
    let table = [
        ("INPUT_MAIL_FILTER(`spam', `S=local:/run/x')", "milters are not called"),
        ("define(`MAIL_HUB', `hub')", "MAIL_HUB"),
        ("define(`confMAX_RCPTS_PER_MESSAGE', `0')", "message.recipients_max is from 1"),
        ("define(`confTO_CONNECT', `11m')", "delivery.connect_time is from 1s to 10m, not 11m"),
        ("define(`confNEW_THING', `1')", "there is no such option"),
        ("FEATURE(`promiscuous_relay')", "everybody send everywhere"),
        ("MASQUERADE_AS(`a b')", "this is no domain"),
        ("ifdef(`X', `FEATURE(`mailertable')')", "not decided"),
        ("QUEUE_GROUP(`slow', `P=/var/spool/mqueue/s*, r=5')", "group:slow"),
        ("FEATURE(`bcc')", "bcc:example.com"),
        ("FEATURE(`queuegroup', `slow')", "no group for all others"),
        ("define(`confDEF_AUTH_INFO', `/etc/mail/x')", "AuthInfo:"),
        ("CLIENT_OPTIONS(`Addr=192.0.2.1')", "destination.source"),
        ("FEATURE(`mailertable', `LDAP')", "class ldap"),
        ("MASQUERADE_AS(`example.com')", "header alone"),
        ("LOCAL_RULESETS\nR$*\t$@ x", "a line for sendmail.cf"),
        ("DAEMON_OPTIONS(`Port=587, M=Ea')", "demands AUTH"),
        ("DAEMON_OPTIONS(`Port=465, M=s')", "needs a certificate"),
        ("define(`confSERVER_CERT', `/c.pem')", "one of them is missing"),
        ("define(`confMAX_HOP', `30", "is not closed"),
        ("include(`/etc/mail/m4/dialup.m4')", "was not read"),
    ];
    for (text, expected) in table {
        let imported = mc(text);
        let is_said =
            imported.notes.iter().any(|note| note.weight == Weight::Missing && note.to_string().contains(expected));
        assert!(is_said, "{text}\n{:#?}", imported.notes);
    }
}

#[test]
fn nobody_relays_who_did_not_before() {
    for text in ["FEATURE(`promiscuous_relay')", "MASQUERADE_AS(`x.example')", LAB, PACKAGED] {
        assert!(!mc(text).toml.contains("\nfrom ="), "{text}");
    }
    let msa = mc("DAEMON_OPTIONS(`Name=MSA, Port=587, M=Ea')").toml;
    assert!(
        msa.contains("# [[listen]]\n# address = \"0.0.0.0:587\"") && !msa.contains("\naddress = \"0.0.0.0:587\""),
        "{msa}"
    );
}

#[test]
fn whole_files() {
    let lab = mc(LAB);
    for line in [
        "hostname = \"lab.example.test\"",
        "virtusertable = [\"/etc/mail/virtusertable\"]",
        "to = [\".example.test\"]",
        "aliases = [\"/etc/mail/aliases\"]",
        "address = \"127.0.0.1:2525\"",
    ] {
        assert!(lab.toml.contains(line), "{line}\n{}", lab.toml);
    }
    assert!(!lab.toml.contains(":587"), "{}", lab.toml);
    let packaged = mc(PACKAGED);
    assert!(packaged.toml.contains("greet_pause = \"1000ms\""), "{}", packaged.toml);
    assert!(packaged.toml.contains("\nreturn_bytes_max = 0"), "{}", packaged.toml);
    assert!(has(&packaged, Weight::Missing, 20, "dialup.m4"), "{:#?}", packaged.notes);
    let cf = import("sendmail.cf", LAB_CF, Language::Cf, &|path| path == "/etc/mail/relay-domains");
    for line in [
        "hostname = \"lab.example.test\"",
        "access = [\"/etc/mail/access\"]",
        "to_files = [\"/etc/mail/relay-domains\"]",
        "domain_files = [\"/etc/mail/local-host-names\"]",
        "smart_host = [\"smart.example.test:25\"]",
        "zone = \"zen.example.test\"",
        "size_max = 1000000",
        "address = \"127.0.0.1:2525\"",
    ] {
        assert!(cf.toml.contains(line), "{line}\n{}", cf.toml);
    }
}

#[test]
fn limits_of_the_access_map() {
    for name in ["ratecontrol", "conncontrol"] {
        let closed = mc(&format!("FEATURE(`{name}', `nodelay', `terminate')"));
        assert!(has(&closed, Weight::Needless, 1, "hold always, at once"), "{:#?}", closed.notes);
        let refused = mc(&format!("FEATURE(`{name}', `nodelay')"));
        assert!(has(&refused, Weight::Differs, 1, "hears 421"), "{:#?}", refused.notes);
    }
    let long = mc("define(`confCONNECTION_RATE_WINDOW_SIZE', `2h')");
    assert!(has(&long, Weight::Missing, 1, "access.client_rate_window is from 6s to 1h, not 2h"), "{:#?}", long.notes);
}

#[test]
fn who_vouches_for_clients() {
    let text = "define(`confCACERT', `/etc/mail/ca.pem')\n";
    let there = |path: &str| path == "/etc/mail/ca.pem";
    let imported = import("sendmail.mc", text, Language::Mc, &there);
    assert!(imported.toml.contains("[tls]\nclient_ca = [\"/etc/mail/ca.pem\"]"), "{}", imported.toml);
    // sendmail goes on without the file; a server here would not start.
    assert!(has(&mc(text), Weight::Missing, 1, "there is no such file"));
    let spared = import("x.mc", &format!("{text}define(`confTLS_SRV_OPTIONS', `V')"), Language::Mc, &there);
    assert!(!spared.toml.contains("client_ca"), "{}", spared.toml);
}

#[test]
fn what_is_undefined_is_gone() {
    let imported = mc("define(`SMART_HOST', `a.example')\nundefine(`SMART_HOST')\nundefine(`ALIAS_FILE')");
    assert!(!imported.toml.contains("smart_host"), "{}", imported.toml);
    assert!(has(&imported, Weight::Differs, 3, "our default holds"), "{:#?}", imported.notes);
}

#[test]
fn a_database_stands_in_for_a_text() {
    let there = |path: &str| path == "/etc/mail/access.db";
    let imported = import("sendmail.mc", "FEATURE(`access_db')", Language::Mc, &there);
    assert!(imported.toml.contains("access = [\"/etc/mail/access.db\"]"), "{}", imported.toml);
}

#[test]
fn a_value_cannot_leave_its_string() {
    let toml = mc("FEATURE(`mailertable', `hash /etc/\"]\nevil=\\1')").toml;
    assert!(toml.contains("[\"/etc/\\\"]\"]") && !toml.contains("\nevil"), "{toml}");
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,200}", lines in prop::collection::vec(
        "(define|FEATURE|DAEMON_OPTIONS|dnl|O |K|C|F|D|LOCAL_CONFIG)?[(`',)a-zA-Z_{}$ =:/.0-9\u{e4}\\[\\]-]{0,60}", 0..8)) {
        for text in [text, lines.join("\n")] {
            for language in [Language::Mc, Language::Cf] {
                let imported = import("x", &text, language, &|path| path.len() % 2 == 0);
                prop_assert!(!imported.toml.chars().any(|c| c.is_control() && c != '\n'));
            }
        }
    }
}

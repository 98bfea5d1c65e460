//! Files as administrators have them, statement by statement, and files that no administrator has.

use super::{Files, Imported, Language, Weight, import};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LAB: &str = include_str!("tests/lab.mc");
const PACKAGED: &str = include_str!("tests/packaged.mc");
const LAB_CF: &str = include_str!("tests/lab.cf");

fn mc(text: &str) -> Imported {
    import("sendmail.mc", text, Language::Mc, none())
}

/// No other file is there.
fn none() -> Files<'static> {
    Files { is_there: &|_| false, read: &|_| None }
}

/// An import of `/etc/mail/sendmail.mc` with these files beside it.
fn with_files(text: &str, others: &[(&str, &str)]) -> Imported {
    let others: BTreeMap<&str, &str> = others.iter().copied().collect();
    let files = Files {
        is_there: &|path| others.contains_key(path),
        read: &|path| others.get(path).map(|text| (*text).to_owned()),
    };
    import("/etc/mail/sendmail.mc", text, Language::Mc, files)
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
        ("MASQUERADE_AS(`example.com')", "envelope = false"),
        ("MASQUERADE_AS(`example.com')", "exposed_users = []"),
        (
            "MASQUERADE_AS(`example.com')\nEXPOSED_USER(`root Daemon')",
            "exposed_users = [\"root\", \"daemon\"]  # line 2",
        ),
        (
            "MASQUERADE_AS(`x.test')\nMASQUERADE_DOMAIN(`a.test b.test')",
            "masquerade_domains = [\"a.test\", \"b.test\"]",
        ),
        (
            "MASQUERADE_AS(`x.test')\nMASQUERADE_DOMAIN(`a.test')\nFEATURE(`masquerade_entire_domain')",
            "masquerade_domains = [\".a.test\"]",
        ),
        ("MASQUERADE_AS(`x.test')\nMASQUERADE_EXCEPTION(`a.test')", "masquerade_exceptions = [\".a.test\"]"),
        ("MASQUERADE_AS(`x.test')\nFEATURE(`limited_masquerade')", "masquerade_limited = true"),
        ("FEATURE(`genericstable')\nFEATURE(`allmasquerade')", "recipients = true"),
        ("FEATURE(`genericstable')\nFEATURE(`masquerade_envelope')", "envelope = true"),
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
        ("FEATURE(`mailertable', `LDAP')", "neither confDOMAIN_NAME nor confLDAP_CLUSTER"),
        ("FEATURE(`mailertable', `ldap:-k (mail=%0) -v x')", "no base (-b)"),
        ("FEATURE(`ldap_routing')", "no LDAPROUTE_DOMAIN"),
        ("LDAPROUTE_DOMAIN(`a.example')", "without FEATURE(`ldap_routing')"),
        ("FEATURE(`local_no_masquerade')", "users of this machine"),
        ("MASQUERADE_DOMAIN_FILE(`/etc/mail/masq')", "not read"),
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
    let cf = import(
        "sendmail.cf",
        LAB_CF,
        Language::Cf,
        Files { is_there: &|path| path == "/etc/mail/relay-domains", ..none() },
    );
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
fn masquerading_is_found_in_rules() {
    let head = "DMcorp.test\nC{M}a.test\nC{N}b.test\nC{E}root\n";
    let of_m = "R$* < @ $=M . > $*\t$: $1 < @ $2 . @ $M > $3\tconvert masqueraded doms\n";
    let of_w = "R$* < @ $=w . > $*\t$: $1 < @ $2 . @ $M > $3\n";
    let cf = |rules: &str| import("sendmail.cf", &format!("{head}{rules}"), Language::Cf, none()).toml;
    let usual = cf(&format!("{of_m}{of_w}"));
    for line in [
        "masquerade = \"corp.test\"",
        "masquerade_domains = [\"a.test\"]",
        "masquerade_exceptions = [\".b.test\"]",
        "exposed_users = [\"root\"]",
        "envelope = false",
    ] {
        assert!(usual.contains(line), "{line}\n{usual}");
    }
    assert!(!usual.contains("masquerade_limited") && !usual.contains("recipients = true"), "{usual}");
    assert!(cf(of_m).contains("masquerade_limited = true"));
    let below = "R$* < @ $* $=M . > $*\t$: $1 < @ $2 $3 . @ $M > $4\n";
    assert!(cf(&format!("{below}{of_w}")).contains("masquerade_domains = [\".a.test\"]"));
    assert!(cf("R$+\t\t\t$@ $>MasqHdr $1\n").contains("envelope = true"));
    assert!(
        cf("Mesmtp,\t\tP=[IPC], S=EnvFromSMTP/HdrFromSMTP, R=EnvToSMTP/HdrFromSMTP, E=\\r\\n\n")
            .contains("recipients = true")
    );
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
fn authorities_are_those_of_clients_and_of_servers() {
    let text = "define(`confCACERT', `/etc/mail/ca.pem')\n";
    let files = Files { is_there: &|path| path == "/etc/mail/ca.pem", read: &|_| None };
    let imported = import("sendmail.mc", text, Language::Mc, files);
    let both = "[tls]\nclient_ca = [\"/etc/mail/ca.pem\"]";
    assert!(imported.toml.contains(both), "{}", imported.toml);
    assert!(imported.toml.contains("\nca_files = [\"/etc/mail/ca.pem\"]"), "{}", imported.toml);
    // sendmail goes on without the file; a server here would not start.
    let gone = mc(text);
    assert!(has(&gone, Weight::Missing, 1, "there is no such file") && !gone.toml.contains("ca"), "{}", gone.toml);
    assert!(has(&gone, Weight::Missing, 1, "servers are judged by the CAs of the system"), "{:#?}", gone.notes);
    // Clients are asked for none; servers show theirs all the same.
    let spared = import("x.mc", &format!("{text}define(`confTLS_SRV_OPTIONS', `V')"), Language::Mc, files);
    assert!(!spared.toml.contains("client_ca") && spared.toml.contains("ca_files"), "{}", spared.toml);
    let path = mc("define(`confCACERT_PATH', `/etc/mail/certs')");
    assert!(has(&path, Weight::Missing, 1, "directory of CA certificates is not read"), "{:#?}", path.notes);
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
    let imported = import("sendmail.mc", "FEATURE(`access_db')", Language::Mc, Files { is_there: &there, ..none() });
    assert!(imported.toml.contains("access = [\"/etc/mail/access.db\"]"), "{}", imported.toml);
}

#[test]
fn a_value_cannot_leave_its_string() {
    let toml = mc("FEATURE(`mailertable', `hash /etc/\"]\nevil=\\1')").toml;
    assert!(toml.contains("[\"/etc/\\\"]\"]") && !toml.contains("\nevil"), "{toml}");
}

#[test]
fn directories_of_maps_and_of_routing() {
    let imported = mc(
        "define(`confLDAP_DEFAULT_SPEC', `-h \"ldap1.example.com ldap2.example.com\" -b \"dc=example,dc=com\" -d cn=mail,dc=example -M simple -P /etc/mail/ldap-secret')\n\
         FEATURE(`virtusertable', `ldap:-1 -k (&(objectClass=mailUser)(mail=%0)) -v maildrop')\n\
         FEATURE(`mailertable', `ldap -1 -H ldaps://far.example:6360 -b dc=far -k domain=%0 -v transport -l 7')\n\
         define(`ALIAS_FILE', `/etc/mail/aliases, ldap:-z, -k (cn=%0) -v member,other:DN:person')\n\
         FEATURE(`ldap_routing', , , `bounce', `preserve', `nodomain')\n\
         LDAPROUTE_DOMAIN(`example.com example.org')\nLDAPROUTE_EQUIVALENT(`mail.example.com')\nMASQUERADE_AS(`example.com')\n",
    );
    let bind =
        "base = \"dc=example,dc=com\"\nbind = \"cn=mail,dc=example\"\npassword_file = \"/etc/mail/ldap-secret\"\n";
    let servers = "servers = [\"ldap://ldap1.example.com\", \"ldap://ldap2.example.com\"]\n";
    for part in [
        "virtusertable = [\"ldap:virtusertable\"]",
        "mailertable = [\"ldap:mailertable\"]",
        "aliases = [\"/etc/mail/aliases\", \"ldap:aliases\"]",
        &format!(
            "name = \"virtusertable\"\n{servers}{bind}filter = \"(&(objectClass=mailUser)(mail=%k))\"\nattribute = \"maildrop\"\n"
        ),
        "servers = [\"ldaps://far.example:6360\"]\nbase = \"dc=far\"\n",
        "timeout = \"7s\"\nfilter = \"(domain=%k)\"\nattribute = \"transport\"\n",
        "attribute = \"member\"\nseparator = \",\"\n",
        &format!("name = \"routing\"\n{servers}{bind}routing_domains = [\"example.com\", \"example.org\"]\n"),
        "routing_equivalents = [\"mail.example.com\"]\nrouting_name = \"example.com\"\nbounce = true\ndetail = \"preserve\"\nno_domain = true\n",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
    assert!(has(&imported, Weight::Missing, 4, "other names other entries"), "{:#?}", imported.notes);
}

#[test]
fn what_a_directory_is_asked_is_never_guessed() {
    let base = "define(`confLDAP_DEFAULT_SPEC', `-h a.example -b dc=a')\n";
    for (text, words) in [
        ("FEATURE(`access_db', `ldap:-1 -k (a=%1) -v b')", "no filter that can be carried over"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=${client_addr}) -v b')", "no filter"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=%0 -v b')", "no filter"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=%0)')", "no single attribute"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=%0) -v b,c')", "one attribute is read"),
        ("FEATURE(`access_db', `ldap:-1 -m -k (a=%0) -v b')", "-m"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=%0) -v b -d cn=x')", "password"),
        ("FEATURE(`access_db', `ldap:-1 -k (a=%0) -v b -H http://x')", "no server that can be asked"),
        (
            "FEATURE(`ldap_routing', `ldap -v ourHost -k (a=%0)')\nLDAPROUTE_DOMAIN(`a.example')",
            "reads the attribute mailHost",
        ),
        ("FEATURE(`ldap_routing', , , `sendertoo')\nLDAPROUTE_DOMAIN(`a.example')", "senders are not looked up"),
        ("LDAPROUTE_DOMAIN_FILE(`/etc/mail/none')", "cannot be read"),
    ] {
        let imported = mc(&format!("{base}{text}"));
        let is_said =
            imported.notes.iter().any(|note| note.weight == Weight::Missing && note.to_string().contains(words));
        assert!(is_said, "{text}\n{:#?}", imported.notes);
        // A map that is named has its table.
        let has_table = imported.toml.contains("name = \"access\"\n");
        assert_eq!(imported.toml.contains("access = [\"ldap:access\"]"), has_table, "{}", imported.toml);
    }
}

#[test]
fn sendmails_own_schema_and_lists_of_domains() {
    let text = "define(`confDOMAIN_NAME', `mx.example.com')\ndefine(`confLDAP_CLUSTER', `Servers')\n\
                define(`confLDAP_DEFAULT_SPEC', `-H ldapi://%2Frun%2Fldapi -b dc=a')\nFEATURE(`genericstable', `LDAP')\n\
                define(`ALIAS_FILE', `ldap:')\nFEATURE(`ldap_routing')\nLDAPROUTE_DOMAIN_FILE(`/etc/mail/ldapdomains')\n";
    let imported = with_files(text, &[("/etc/mail/ldapdomains", "# ours\na.example\nb.example # too\n\n")]);
    let who = "(|(sendmailMTACluster=Servers)(sendmailMTAHost=mx.example.com))";
    for part in [
        format!(
            "filter = \"(&(objectClass=sendmailMTAMapObject){who}(sendmailMTAMapName=generics)(sendmailMTAKey=%k))\""
        ),
        "attribute = \"sendmailMTAAliasValue\"\nseparator = \",\"\n".to_owned(),
        "aliases = [\"ldap:aliases\"]".to_owned(),
        "servers = [\"ldapi://%2Frun%2Fldapi\"]".to_owned(),
        "routing_domains = [\"a.example\", \"b.example\"]".to_owned(),
    ] {
        assert!(imported.toml.contains(&part), "{part}\n{}", imported.toml);
    }
    assert!(has(&imported, Weight::Differs, 7, "not read again"), "{:#?}", imported.notes);
}

#[test]
fn directories_in_a_cf_file() {
    let text = "Djmx.example.com\nD{sendmailMTACluster}Servers\nO LDAPDefaultSpec=-h a.example -b dc=a\n\
                Kldapmh ldap -1 -T<TMPF> -v mailHost -k (&(objectClass=inetLocalMailRecipient)(mailLocalAddress=%0))\n\
                Kldapmra ldap -1 -T<TMPF> -v mailRoutingAddress -k (&(objectClass=inetLocalMailRecipient)(mailLocalAddress=%0))\n\
                C{LDAPRoute}a.example\nC{LDAPRoute}b.example\nKaccess ldap -1 -v value -k (&(x=${sendmailMTACluster})(y=$j)(z=%0))\n";
    let imported = import("sendmail.cf", text, Language::Cf, none());
    for part in [
        "name = \"routing\"\nservers = [\"ldap://a.example\"]\nbase = \"dc=a\"\nrouting_domains = [\"a.example\", \"b.example\"]\n",
        "filter = \"(&(x=Servers)(y=mx.example.com)(z=%k))\"\nattribute = \"value\"\n",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
    assert!(has(&imported, Weight::Differs, 4, "set ldap.bounce"), "{:#?}", imported.notes);
}

#[test]
fn files_that_are_included_count_in_their_place() {
    let text = "include(`/usr/share/sendmail-cf/m4/cf.m4')\nOSTYPE(`linux')\nDOMAIN(`site')\ninclude(`m4/more.m4')\nsinclude(`none')\n\
                define(`confMAX_HOP', `40')\n";
    let imported = with_files(
        text,
        &[
            (
                "/usr/share/sendmail-cf/ostype/linux.m4",
                "define(`confMAX_HOP', `20')\nifdef(`ALIAS_FILE', , `define(`ALIAS_FILE', `/etc/os-aliases')')\ndefine(`confODD', `1')\n",
            ),
            ("/usr/share/sendmail-cf/domain/site.m4", "\ndefine(`confMAX_HOP', `30')\nMASQUERADE_AS(`example.com')\n"),
            (
                "/etc/mail/m4/more.m4",
                "FEATURE(`masquerade_envelope')\nRELAY_DOMAIN(`a.example')\ndefine(`confODD', `1')\n",
            ),
        ],
    );
    for part in [
        "hops_max = 40  # line 6",
        "aliases = [\"/etc/os-aliases\"]  # /usr/share/sendmail-cf/ostype/linux.m4: line 2",
        "masquerade = \"example.com\"  # /usr/share/sendmail-cf/domain/site.m4: line 3",
        "to = [\".a.example\"]  # /etc/mail/m4/more.m4: line 2",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
    let odd: Vec<String> =
        imported.notes.iter().map(ToString::to_string).filter(|note| note.contains("confODD")).collect();
    assert_eq!(odd.len(), 1, "defaults of a system are quiet: {odd:?}");
    assert!(odd[0].starts_with("/etc/mail/m4/more.m4:3: missing: "), "{odd:?}");
    // The same from a source tree.
    let text = "include(`../m4/cf.m4')\nDOMAIN(`site')\n";
    let imported = with_files(text, &[("/etc/mail/../domain/site.m4", "define(`confMAX_HOP', `30')\n")]);
    assert!(imported.toml.contains("hops_max = 30"), "{}", imported.toml);
}

#[test]
fn files_and_macros_without_end_are_told_of() {
    for (text, others, words) in [
        (
            "include(`a.m4')",
            vec![("/etc/mail/a.m4", "include(`a.m4')\ninclude(`/etc/mail/sendmail.mc')\n")],
            "includes itself",
        ),
        (
            "include(`a.m4')",
            vec![("/etc/mail/a.m4", "include(`b.m4')"), ("/etc/mail/b.m4", "include(`a.m4')")],
            "includes itself",
        ),
        ("define(`SELF', `SELF(x)')\nSELF(y)", vec![], "macros within macros"),
        ("define(`TWO', `TWO(`$1$1')TWO(`$1$1')')\nTWO(`x')", vec![], "macros within macros"),
        ("define(`IT', `ifdef(`IT', `IT()')')\nIT()", vec![], "is not decided"),
    ] {
        let imported = with_files(text, &others);
        assert!(imported.notes.iter().any(|note| note.reason.contains(words)), "{text}\n{:#?}", imported.notes);
    }
}

#[test]
fn names_of_the_file_itself_are_known() {
    let text = "define(`MYDOMAIN', `example.com')\ndefine(`MYMAP', `FEATURE(`$1', `hash /srv/$1')')\ndefine(`NEVER', `x')\n\
                MYMAP(`mailertable')\nRELAY_DOMAIN(MYDOMAIN)\ndefine(`confDOMAIN_NAME', `mx.MYDOMAIN')\n\
                ifdef(`MYDOMAIN', `FEATURE(`virtusertable')', `FEATURE(`domaintable')')\n\
                ifelse(MYDOMAIN, `example.org', `define(`confMAX_HOP', `10')', `define(`confMAX_HOP', `11')')\n\
                ifdef(`confSOMETHING', `FEATURE(`smarttable')')\n";
    let imported = mc(text);
    for part in [
        "mailertable = [\"/srv/mailertable\"]",
        "to = [\".example.com\"]",
        "hostname = \"mx.example.com\"",
        "virtusertable = ",
        "hops_max = 11",
    ] {
        assert!(imported.toml.contains(part), "{part}\n{}", imported.toml);
    }
    assert!(!imported.toml.contains("domaintable") && !imported.toml.contains("smarttable"), "{}", imported.toml);
    let missing: Vec<usize> =
        imported.notes.iter().filter(|note| note.weight == Weight::Missing).map(|note| note.line).collect();
    assert_eq!(missing, [3, 9], "{:#?}", imported.notes);
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,200}", lines in prop::collection::vec(
        "(define|FEATURE|DAEMON_OPTIONS|dnl|O |K|C|F|D|LOCAL_CONFIG|ifdef|ifelse|include|DOMAIN|define\\(`AB|AB|FEATURE\\(`ldap_routing|LDAPROUTE_DOMAIN)?[(`',)a-zA-Z_{}$ =:/.0-9\u{e4}\\[\\]-]{0,60}", 0..8)) {
        for text in [text, lines.join("\n")] {
            for language in [Language::Mc, Language::Cf] {
                let files = Files { is_there: &|path| path.len() % 2 == 0, read: &|path| (path.len() % 3 == 0).then(|| text.clone()) };
                let imported = import("x", &text, language, files);
                prop_assert!(!imported.toml.chars().any(|c| c.is_control() && c != '\n'));
            }
        }
    }
}

#[test]
fn a_host_name_that_is_a_domain_widens_no_right_to_relay() {
    let of = |host: &str| mc(&format!("define(`confDOMAIN_NAME', `{host}')\nFEATURE(`relay_entire_domain')\n"));
    for (host, domain) in [
        ("mx.example.org", Some(".example.org")),
        ("mx.dept.example.co.uk", Some(".dept.example.co.uk")),
        ("mx.example.de", Some(".example.de")),
        ("mx", None),
        ("example.org", None),
        ("example.co.uk", None),
        ("example.com.au", None),
    ] {
        let imported = of(host);
        let is_missing = has(&imported, Weight::Missing, 2, "relay_entire_domain");
        assert_eq!(is_missing, domain.is_none(), "{host}");
        let text = &imported.toml;
        match domain {
            Some(domain) => assert!(text.contains(&format!("to = [\"{domain}\"]")), "{text}"),
            None => assert!(!text.contains("\nto = "), "{text}"),
        }
    }
}

//! `mailrace import`: its output passes `mailrace check`, and it overwrites no file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn mailrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mailrace")).args(arguments).output().expect("the program starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

const SOURCES: [(&str, &str); 8] = [
    ("lab.mc", include_str!("../../../route/src/import/tests/lab.mc")),
    ("packaged.mc", include_str!("../../../route/src/import/tests/packaged.mc")),
    ("lab.cf", include_str!("../../../route/src/import/tests/lab.cf")),
    ("debian.mc", DEBIAN),
    ("redhat.mc", REDHAT),
    (
        "ldap.mc",
        "define(`confDOMAIN_NAME', `mx.example.com')\ndefine(`confLDAP_CLUSTER', `Servers')\n\
         define(`confLDAP_DEFAULT_SPEC', `-h \"a.example b.example\" -p 3890 -b \"dc=example, dc=com\" -d \"cn=mail, dc=x\" -M simple -P /etc/mail/secret')\n\
         FEATURE(`access_db', `LDAP')\nFEATURE(`mailertable', `LDAP')\nFEATURE(`virtusertable', `ldap:-1 -k (&(objectClass=a)(|(mail=%0)(mail=*%s*))(!(x>=5))) -v b')\n\
         FEATURE(`genericstable', `ldap -k mail=%0 -v b -z\";\" -H \"ldaps://c.example ldapi://%2Frun%2Fldapi\" -l 400')\n\
         FEATURE(`domaintable', `ldap:-k (a=%0)(b=%0) -v c')\nFEATURE(`smarttable', `ldap:-k (a=%0) -v b -b \\\\\"x')\n\
         define(`ALIAS_FILE', `ldap:, hash:/etc/aliases')\nFEATURE(`ldap_routing', `ldap -1 -T<TMPF> -v mailHost -k (mail=%0)', \
         `ldap -1 -T<TMPF> -v mailRoutingAddress -k (mail=%0)', `bounce', `strip', , `queue')\nLDAPROUTE_DOMAIN(`a.example')\n\
         LDAPROUTE_DOMAIN(`b.example .c.example')\nLDAPROUTE_EQUIVALENT(`d.example')\n",
    ),
    (
        "odd.mc",
        "define(`confDOMAIN_NAME', `mx.DOM')\ndefine(`DOM', `example.com')\ndefine(`A', `A(A)')\nA(`A')\nifelse(DOM, DOM, `FEATURE(`access_db')')\n\
         ifdef(`DOM', `ifdef(`NONE', `x', `y')')\nundefine(`DOM')\nifdef(`DOM', , `define(`confMAX_HOP', `9')')\ninclude(`odd.mc')\n\
         LDAPROUTE_DOMAIN(`a.example')\nFEATURE(`ldap_routing')\ndefine(`confLDAP_DEFAULT_SPEC', `-b dc=a -H http://x -P secret -d x -q -y')\n\
         define(`ALIAS_FILE', `ldap:-k (x=%0) -v y,')\nLDAPROUTE_EQUIVALENT(`b.example')\nDOMAIN(`none')\nOSTYPE(`none')\n",
    ),
    (
        "busy.mc",
        "define(`confDOMAIN_NAME', `mx.example.com')\nMASQUERADE_AS(`example.com')\nFEATURE(`masquerade_envelope')\n\
         define(`SMART_HOST', `esmtp:[a.example]:[192.0.2.1],[192.0.2.2]')\ndefine(`RELAY_MAILER_ARGS', `TCP $h 2525')\n\
         FEATURE(`genericstable')\nGENERICS_DOMAIN(`a.example')\nFEATURE(`generics_entire_domain')\n\
         RELAY_DOMAIN(`example.org 10.1')\nFEATURE(`dnsbl', `zen.example')\nFEATURE(`dnsbl', `zen.example')\n\
         DAEMON_OPTIONS(`Name=A, Port=25')\nDAEMON_OPTIONS(`Name=B, Port=25')\nDAEMON_OPTIONS(`Name=S, Port=465, M=s')\n\
         define(`confRUN_AS_USER', `daemon:mail')\ndefine(`confDEF_USER_ID', `mail:mail')\ndefine(`LUSER_RELAY', `local:joe@hub.example')\n\
         define(`confDOUBLE_BOUNCE_ADDRESS', `joe@example.com')\ndefine(`confTRUSTED_USERS', `www-data')\n\
         define(`confAUTH_MECHANISMS', `PLAIN CRAM-MD5')\ndefine(`confAUTH_OPTIONS', `p')\ndefine(`confDELIVERY_MODE', `i')\n\
         define(`confMCI_CACHE_TIMEOUT', `2m')\ndefine(`confMIN_QUEUE_AGE', `27m')\ndefine(`confMAX_QUEUE_AGE', `2h')\n\
         define(`confLOG_LEVEL', `14')\ndefine(`confTO_COMMAND', `10m')\ndefine(`confTO_DATABLOCK', `1h')\n\
         define(`confMAX_HEADERS_LENGTH', `65536')\nFEATURE(`local_lmtp', `[IPC]', `FILE /run/lmtp')\n\
         FEATURE(`access_db')\nFEATURE(`delay_checks', `hater')\nFEATURE(`relay_hosts_only')\nFEATURE(`relay_mail_from')\n\
         FEATURE(`lookupdotdomain')\nFEATURE(`smarttable')\nFEATURE(`greet_pause', `3000')\n",
    ),
];

/// A file of the kind that Debian installs.
const DEBIAN: &str = "divert(-1)dnl
# Comments with `quotes' and (parentheses.
divert(0)dnl
define(`_USE_ETC_MAIL_')dnl
include(`/usr/share/sendmail/cf/m4/cf.m4')dnl
VERSIONID(`$Id: sendmail.mc, v 8.17.1.9-2 2022-08-14 00:00:00 cowboy Exp $')
OSTYPE(`debian')dnl
DOMAIN(`debian-mta')dnl
dnl # Items controlled by /etc/mail/sendmail.conf - DO NOT TOUCH HERE
undefine(`confHOST_STATUS_DIRECTORY')dnl        #DAEMON_HOSTSTATS=
FEATURE(`no_default_msa')dnl
dnl DAEMON_OPTIONS(`Family=inet6, Name=MTA-v6, Port=smtp, Addr=::1')dnl
DAEMON_OPTIONS(`Family=inet,  Name=MTA-v4, Port=smtp, Addr=127.0.0.1')dnl
DAEMON_OPTIONS(`Family=inet,  Name=MSP-v4, Port=submission, M=Ea, Addr=127.0.0.1')dnl
define(`confPRIVACY_FLAGS',dnl
`needmailhelo,needexpnhelo,needvrfyhelo,restrictqrun,restrictexpand,nobodyreturn,authwarnings')dnl
define(`confCONNECTION_RATE_THROTTLE', `15')dnl
define(`confCONNECTION_RATE_WINDOW_SIZE',`10m')dnl
FEATURE(`use_cw_file')dnl
FEATURE(`access_db', , `skip')dnl
FEATURE(`always_add_domain')dnl
MASQUERADE_AS(`example.com')dnl
FEATURE(`allmasquerade')dnl
FEATURE(`masquerade_envelope')dnl
FEATURE(`greet_pause', `1000')dnl 1 seconds
FEATURE(`delay_checks', `friend', `n')dnl
define(`confBAD_RCPT_THROTTLE',`3')dnl
FEATURE(`conncontrol', `nodelay', `terminate')dnl
FEATURE(`ratecontrol', `nodelay', `terminate')dnl
include(`/etc/mail/m4/dialup.m4')dnl
include(`/etc/mail/m4/provider.m4')dnl
dnl FEATURE(`lookupdotdomain')dnl
MAILER_DEFINITIONS
MAILER(`local')dnl
MAILER(`smtp')dnl

";

/// A file of the kind that Red Hat installs.
const REDHAT: &str = "divert(-1)dnl
dnl #
dnl # This is the sendmail macro config file for m4.
dnl #
include(`/usr/share/sendmail-cf/m4/cf.m4')dnl
VERSIONID(`setup for linux')dnl
OSTYPE(`linux')dnl
dnl define(`SMART_HOST', `smtp.your.provider')dnl
define(`confDEF_USER_ID', ``8:12'')dnl
dnl define(`confAUTO_REBUILD')dnl
define(`confTO_CONNECT', `1m')dnl
define(`confTRY_NULL_MX_LIST', `True')dnl
define(`confDONT_PROBE_INTERFACES', `True')dnl
define(`PROCMAIL_MAILER_PATH', `/usr/bin/procmail')dnl
define(`ALIAS_FILE', `/etc/aliases')dnl
define(`STATUS_FILE', `/var/log/mail/statistics')dnl
define(`UUCP_MAILER_MAX', `2000000')dnl
define(`confUSERDB_SPEC', `/etc/mail/userdb.db')dnl
define(`confPRIVACY_FLAGS', `authwarnings,novrfy,noexpn,restrictqrun')dnl
define(`confAUTH_OPTIONS', `A')dnl
define(`confTO_IDENT', `0')dnl
FEATURE(`no_default_msa', `dnl')dnl
FEATURE(`smrsh', `/usr/sbin/smrsh')dnl
FEATURE(`mailertable', `hash -o /etc/mail/mailertable.db')dnl
FEATURE(`virtusertable', `hash -o /etc/mail/virtusertable.db')dnl
FEATURE(redirect)dnl
FEATURE(always_add_domain)dnl
FEATURE(use_cw_file)dnl
FEATURE(use_ct_file)dnl
FEATURE(local_procmail, `', `procmail -t -Y -a $h -d $u')dnl
FEATURE(`access_db', `hash -T<TMPF> -o /etc/mail/access.db')dnl
FEATURE(`blacklist_recipients')dnl
EXPOSED_USER(`root')dnl
DAEMON_OPTIONS(`Port=smtp,Addr=127.0.0.1, Name=MTA')dnl
FEATURE(`accept_unresolvable_domains')dnl
LOCAL_DOMAIN(`localhost.localdomain')dnl
MAILER(smtp)dnl
MAILER(procmail)dnl
dnl MAILER(cyrusv2)dnl
";

/// Errors in a configuration, without those about files that this machine does not have.
fn errors(path: &Path) -> String {
    let shown = mailrace(&["config", "show", "--config", path.to_str().expect("a path of text")]);
    if shown.status.success() { String::new() } else { text(&shown.stderr) }
}

#[test]
fn what_is_written_can_be_loaded() {
    let directory = tempfile::tempdir().unwrap();
    for (name, source) in SOURCES {
        let (from, to) = (directory.path().join(name), directory.path().join(format!("{name}.toml")));
        fs::write(&from, source).unwrap();
        let done = mailrace(&["import", from.to_str().unwrap(), "-o", to.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert!(text(&done.stderr).contains("not carried over"), "{}", text(&done.stderr));
        assert_eq!(errors(&to), "", "{name}\n{}", fs::read_to_string(&to).unwrap());
    }
    // The control: a file with an error is seen as such.
    let wrong = directory.path().join("wrong.toml");
    fs::write(&wrong, "[message]\nhops_max = 0\n").unwrap();
    assert_ne!(errors(&wrong), "");
}

/// Statements that may stand beside each other in any order, right ones and wrong ones.
const STATEMENTS: &[&str] = &[
    "define(`confDOMAIN_NAME', `mx.example.com')",
    "define(`confDOMAIN_NAME', `$w.OWN')",
    "define(`OWN', `example.org')",
    "define(`confLDAP_CLUSTER', `Servers')",
    "define(`confLDAP_CLUSTER', `a)(b=*')",
    "define(`confLDAP_DEFAULT_SPEC', `-h a.example -b dc=a')",
    "define(`confLDAP_DEFAULT_SPEC', `-h \"a.example:99999 b_.example\" -p 0 -b \"\" -d cn=x')",
    "define(`confLDAP_DEFAULT_SPEC', `-H \"ldaps://a.example:636/ ldap://[::1] ldap://\" -b dc=a -d cn=x -P /x -l 9999')",
    "FEATURE(`access_db', `LDAP')",
    "FEATURE(`access_db', `ldap:-k (a=%0) -v b')",
    "FEATURE(`virtusertable', `ldap:-k (&(a=%0)(b=c)) -v b -z \"\\n\" -b \"ou=a b,dc=c\"')",
    "FEATURE(`genericstable', `ldap:-k a=%s -v b:NORMAL -1 -M none -d x')",
    "FEATURE(`mailertable', `ldap:-k (a=\"x y\"%0) -v b')",
    "FEATURE(`mailertable', `hash /etc/mail/mailertable')",
    "FEATURE(`domaintable', `ldap:-k (a=%0*\\2a) -v b')",
    "define(`ALIAS_FILE', `ldap:')",
    "define(`ALIAS_FILE', `ldap:-k (a=%0) -v b -z;, /etc/aliases, LDAP')",
    "FEATURE(`ldap_routing')",
    "FEATURE(`ldap_routing', , , `bounce', `strip', `nodomain', `queue')",
    "FEATURE(`ldap_routing', `ldap -v mailHost -k (x=%0)', `ldap -v mailRoutingAddress -k (x=%0)', `x', `y')",
    "LDAPROUTE_DOMAIN(`a.example b.example')",
    "LDAPROUTE_DOMAIN(`a..example OWN')",
    "LDAPROUTE_EQUIVALENT(`c.example')",
    "LDAPROUTE_EQUIVALENT_FILE(`/etc/mail/none')",
    "MASQUERADE_AS(`OWN')",
    "FEATURE(`masquerade_envelope')",
    "FEATURE(`generics_entire_domain')",
    "GENERICS_DOMAIN(`OWN')",
    "RELAY_DOMAIN(`OWN 10.1 x..y')",
    "FEATURE(`relay_entire_domain')",
    "FEATURE(`relay_hosts_only')",
    "define(`SMART_HOST', `esmtp:[a.example]:OWN')",
    "DAEMON_OPTIONS(`Port=465, M=s')",
    "DAEMON_OPTIONS(`Port=2525, Addr=127.0.0.1, Name=MTA')",
    "FEATURE(`no_default_msa')",
    "ifdef(`OWN', `FEATURE(`dnsbl', `zen.OWN')', `FEATURE(`smarttable')')",
    "ifelse(OWN, `example.org', `FEATURE(`greet_pause', `5000')')",
    "undefine(`OWN')",
    "FEATURE(`access_db')",
    "FEATURE(`delay_checks', `friend')",
    "define(`confDELIVERY_MODE', `i')",
    "define(`LUSER_RELAY', `local:joe@OWN')",
];

/// Subsets of the statements in other orders, as a generator of numbers has them.
#[test]
fn whatever_statements_stand_together_can_be_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let mut state = 1_u64;
    let mut next = |most: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % most
    };
    for number in 0..24 {
        let source: String = (0..20).map(|_| format!("{}dnl\n", STATEMENTS[next(STATEMENTS.len())])).collect();
        let (from, to) =
            (directory.path().join(format!("{number}.mc")), directory.path().join(format!("{number}.toml")));
        fs::write(&from, &source).unwrap();
        let done = mailrace(&["import", from.to_str().unwrap(), "-o", to.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_eq!(errors(&to), "", "{source}\n{}", fs::read_to_string(&to).unwrap());
    }
}

#[test]
fn a_configuration_without_maps_passes_the_whole_check() {
    let directory = tempfile::tempdir().unwrap();
    let aliases = directory.path().join("aliases");
    fs::write(&aliases, "postmaster: root\n").unwrap();
    let spool = directory.path().join("spool");
    let source = format!(
        "define(`confDOMAIN_NAME', `mx.example.com')\ndefine(`ALIAS_FILE', `{}')\nDAEMON_OPTIONS(`Port=2525, Addr=127.0.0.1')\nFEATURE(`no_default_msa')\n",
        aliases.display()
    );
    fs::write(directory.path().join("sendmail.mc"), source).unwrap();
    let to = directory.path().join("mailrace.toml");
    let done = mailrace(&["import", directory.path().to_str().unwrap(), "-o", to.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let spool = format!("spool.path={}", spool.display());
    let checked = mailrace(&["check", "--config", to.to_str().unwrap(), "--set", &spool]);
    assert_eq!(checked.status.code(), Some(0), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

#[test]
fn nothing_is_written_over_and_failures_have_their_status() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("sendmail.mc"), "define(`confMAX_HOP', `30')\nINPUT_MAIL_FILTER(`x', `S=local:/x')\n").unwrap();
    fs::write(at("there.toml"), "mine").unwrap();
    let over = mailrace(&["import", &at("sendmail.mc"), "-o", &at("there.toml")]);
    assert_eq!((over.status.code(), fs::read_to_string(at("there.toml")).unwrap().as_str()), (Some(73), "mine"));
    assert_eq!(mailrace(&["import", &at("none.mc")]).status.code(), Some(66));
    fs::create_dir(at("empty")).unwrap();
    assert_eq!(mailrace(&["import", &at("empty")]).status.code(), Some(66));
    fs::write(at("sendmail.cf"), [0, 1, 2]).unwrap();
    assert_eq!(mailrace(&["import", &at("sendmail.cf")]).status.code(), Some(65));
    assert_eq!(mailrace(&["import"]).status.code(), Some(64));
    // In a directory, sendmail.mc is read.
    let done = mailrace(&["import", directory.path().to_str().unwrap()]);
    assert!(text(&done.stdout).contains("hops_max = 30"), "{}", text(&done.stdout));
    assert!(
        text(&done.stderr).contains("sendmail.mc:2: missing: INPUT_MAIL_FILTER(x, S=local:/x): milters"),
        "{}",
        text(&done.stderr)
    );
    let json = text(&mailrace(&["import", &at("sendmail.mc"), "--json"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let is_there =
        json["notes"].as_array().unwrap().iter().any(|note| note["line"] == 2 && note["weight"] == "missing");
    assert!(is_there && json["toml"].as_str().unwrap().contains("hops_max = 30"), "{json}");
}

//! `mailrace import`: what it writes passes `mailrace check`, and it writes over nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn mailrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mailrace")).args(arguments).output().expect("the program starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

const SOURCES: [(&str, &str); 4] = [
    ("lab.mc", include_str!("../../route/src/import/tests/lab.mc")),
    ("packaged.mc", include_str!("../../route/src/import/tests/packaged.mc")),
    ("lab.cf", include_str!("../../route/src/import/tests/lab.cf")),
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
    // Of the directory, sendmail.mc is read.
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

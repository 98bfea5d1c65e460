//! `mailrace check` and `mailrace config` as a user meets them.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the program without a configuration of this machine; returns its output, standard error last.
#[track_caller]
fn run(arguments: &[&str], variable: &Path, exit: i32) -> String {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_mailrace"))
        .args(arguments)
        .env("MAILRACE_CONFIG", variable)
        .output()
        .expect("the program runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

/// A file for one test.
fn file(test: &str, text: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&dir).expect("a place");
    let file = dir.join("mailrace.toml");
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn check_says_everything() {
    let good = file("config_good", "hostname = \"mx.example.com\"\nlog.level = 3\n");
    let said = run(&["check"], &good, 0);
    assert!(said.ends_with("mailrace.toml: ok, 2 keys set, 0 warnings\n") || said.contains("stay root"), "{said}");
    let bad = file("config_bad", "hostnam = 1\n[log]\nlevel = 99\n");
    let said = run(&["check", "--config", bad.to_str().expect("UTF-8")], &good, 78);
    assert!(
        said.contains("did you mean \"hostname\"?") && said.contains("mailrace.toml:3:9") && said.contains("2 errors"),
        "{said}"
    );
    let json: Value = serde_json::from_str(&run(&["check", "--json"], &bad, 78)).expect("JSON");
    assert_eq!((&json["ok"], &json["errors"]), (&false.into(), &2.into()));
    let files = file("config_files", "[tls]\ncertificate = \"none.pem\"\nkey = \"none.key\"\n");
    assert!(run(&["check"], &files, 78).contains("tls.key: there is no file"));
    let said = run(&["check"], Path::new("/nowhere/mailrace.toml"), 78);
    assert!(said.contains("/nowhere/mailrace.toml: there is no such file"), "{said}");
}

#[test]
fn config_shows_and_explains() {
    let path = file("config_show", "log.level = 3\n");
    let said = run(&["config", "show", "log.level", "--set", "log.level=4"], &path, 0);
    assert!(said.starts_with("log.level = 4 ") && said.ends_with("# --set; default 9\n"), "{said}");
    let again = file("config_again", &run(&["config", "show"], &path, 0));
    let of = |path| run(&["config", "show", "--json"], path, 0).replace("config_again", "config_show");
    let values = |text: &str| -> Vec<Value> {
        let list: Vec<Value> = serde_json::from_str(text).expect("JSON");
        list.iter().map(|one| one["value"].clone()).collect()
    };
    assert_eq!(values(&of(&path)), values(&of(&again)));
    assert!(run(&["config", "show", "log.lvl"], &path, 64).contains("did you mean \"log.level\"?"));
    assert!(run(&["config", "explain", "spool"], &path, 0).contains("spool.size_max"));
    assert!(run(&["config", "explain", "nothing"], &path, 64).contains("unknown key"));
    assert!(run(&["config", "defaults"], &path, 0).contains("#[[listen]]"));
    let bad = file("config_show_bad", "log.level = \"x\"\n");
    assert!(run(&["config", "show"], &bad, 78).contains("log.level: \"x\" is text"));
}

/// Returns the output of `mailrace route` for one recipient.
#[track_caller]
fn route(path: &Path, recipient: &str) -> String {
    run(&["route", recipient], path, 0)
}

#[test]
fn mail_for_our_own_name_is_local_where_somebody_named_us() {
    let here = "\n  => <root@mx.w.example> by local:\n";
    for text in [
        "hostname = \"mx.w.example\"\n[local]\nmailbox = \"mbox:/var/mail/%u\"\n",
        "hostname = \"mx.w.example\"\n",
        "hostname = \"mx.w.example\"\n[local]\nunknown = \"defer\"\n[route]\nsmart_host = \"hub.example:25\"\n",
    ] {
        let path = file("config_own_name", text);
        let said = route(&path, "root@mx.w.example");
        assert!(said.contains(here) && !said.contains("relay.to"), "{text}{said}");
    }
    let relay = "hostname = \"mx.w.example\"\n[route]\nsmart_host = \"hub.example:25\"\n";
    let sends_on = format!("{relay}[local]\nown_name = false\nunknown = \"defer\"\n");
    for text in [relay, &sends_on] {
        let said = route(&file("config_own_name", text), "root@mx.w.example");
        assert!(!said.contains(here) && !said.contains("relay.to"), "{text}{said}");
        assert!(said.contains("mx.w.example is our hostname"), "{text}{said}");
    }
}

#[test]
fn check_looks_into_files_as_the_server_does() {
    let no_pem = file("config_no_pem", "").with_file_name("words");
    fs::write(&no_pem, "no certificate\n").expect("written");
    let text = "[tls]\ncertificate = \"words\"\nkey = \"words\"\n";
    let said = run(&["check"], &file("config_no_pem", text), 78);
    assert!(said.contains("tls.certificate: ") && said.contains("words: ") && said.contains("toml:2:15"), "{said}");
    let said = run(&["check"], &file("config_no_maps", "maps.directory = \"/nonexistent\"\n"), 0);
    assert!(
        said.contains("maps.directory: there is no directory /nonexistent") && said.contains("toml:1:18"),
        "{said}"
    );
}

#[test]
fn what_maps_and_rules_lack_has_its_line() {
    let missing = file("config_places", "log.level = 3\n[maps]\naccess = \"/nonexistent/access\"\n");
    let said = run(&["check"], &missing, 78);
    assert!(said.contains("maps.access: ") && said.contains("mailrace.toml:3:10"), "{said}");
    let text = "[[route.rule]]\nrecipient = [\"a.example\"]\nhold = \"x\"\n[[route.rule]]\nrecipient = [\"b.example\"]\n\
                reject = \"no\"\n";
    let said = run(&["check"], &file("config_rule_reject", text), 78);
    assert!(said.contains("route.rule[2].reject: \"no\" is no reply") && said.contains("mailrace.toml:6:10"), "{said}");
    let text = "[[route.rule]]\nrecipient = [\"b.example\"]\n";
    let said = run(&["check"], &file("config_rule_idle", text), 0);
    assert!(said.contains("does nothing") && said.contains("mailrace.toml:1:1"), "{said}");
    let said = run(&["check"], &file("config_masquerade", "generics.masquerade = \"a b\"\n"), 78);
    assert!(said.contains("generics.masquerade: ") && said.contains("mailrace.toml:1:23"), "{said}");
    let said = run(&["check"], &file("config_ldap", "[[ldap]]\nname = \"a\"\nbase = \"dc=x\"\n"), 78);
    assert!(said.contains("ldap://") && !said.contains("each item text"), "{said}");
}

#[test]
fn tables_are_counted_from_one() {
    let text = "[[destination]]\nmatch = [\"a.example\"]\n[[destination]]\nmatch = [\"b.example\"]\nconnections = 0\n";
    let said = run(&["check", "--json"], &file("config_count", text), 78);
    assert!(said.contains("destination[2].connections"), "{said}");
}

#[test]
fn route_names_the_hosts_and_limits_of_the_configuration() {
    let text = "hostname = \"mx.w.example\"\n[[dns.override]]\ndomain = \"a.example\"\nmx = [\"hub.example\"]\n\
                [[destination]]\nmatch = [\"b.example\"]\n[[destination]]\nmatch = [\"a.example\"]\nconnections = 3\n";
    let path = file("config_route_hosts", text);
    let said = route(&path, "joe@a.example");
    assert!(said.contains("dns.override[1]: a.example => hub.example"), "{said}");
    assert!(said.contains("destination[2]: 3 connections"), "{said}");
    let said = route(&path, "joe@c.example");
    assert!(!said.contains("dns.override") && !said.contains("destination["), "{said}");
    let json: Value = serde_json::from_str(&run(&["route", "--json", "joe@a.example"], &path, 0)).expect("JSON");
    assert_eq!(json["deliveries"][0]["next_hop"]["override"], 1, "{json}");
    assert_eq!(json["deliveries"][0]["next_hop"]["destination"], 2, "{json}");
}

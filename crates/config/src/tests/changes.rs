//! Changes that a reload would make, and changes that it refuses.

use super::super::{Config, Machine, differences, load, refuses_reload};

fn config(text: &str) -> Config {
    load(text, None, &[], &Machine::default())
        .unwrap_or_else(|problems| panic!("{}", super::super::render(&problems)))
        .config
}

#[track_caller]
fn check(old: &str, new: &str, wanted: &[&str]) {
    let found: Vec<String> = differences(&config(old), &config(new)).iter().map(ToString::to_string).collect();
    assert_eq!(found, wanted);
}

#[test]
fn values() {
    check("", "", &[]);
    check("", "message.size_max = 52428800", &[]);
    check("", "message.size_max = '1M'", &["message.size_max changed from \"50MiB\" to \"1MiB\""]);
    check(
        "spool.path = '/a'",
        "spool.path = '/b'\nhostname = 'mx.example'",
        &[
            "hostname changed from \"localhost\" to \"mx.example\"",
            "spool.path changed from \"/a\" to \"/b\": takes effect after a restart",
            "local.own_name changed from false to true",
            "submit.directory changed from \"/a-pickup\" to \"/b-pickup\": takes effect after a restart",
            "auth_results.id changed from \"localhost\" to \"mx.example\"",
        ],
    );
}

#[test]
fn lists_of_tables() {
    let one = "listen = [{ address = '127.0.0.1:25' }]";
    let two = "listen = [{ address = '127.0.0.1:26', connections_max = 3 }, { address = '127.0.0.1:25' }]";
    check(one, two, &["listen added: { address = \"127.0.0.1:26\", connections_max = 3 }"]);
    check(two, one, &["listen removed: { address = \"127.0.0.1:26\", connections_max = 3 }"]);
    let order = |a: &str, b: &str| format!("dnsbl.list = [{{ zone = '{a}' }}, {{ zone = '{b}' }}]");
    check(
        &order("a", "b"),
        &order("b", "a"),
        &["dnsbl.list changed from { zone = \"a\" }, { zone = \"b\" } to { zone = \"b\" }, { zone = \"a\" }"],
    );
}

#[test]
fn a_change_of_the_cluster_needs_a_restart() {
    let cluster = "[cluster]\nid = '00112233445566778899aabbccddeeff'\nnode = 3\nengines = '127.0.0.1'\ncopies = 1\n";
    let found = differences(&config(""), &config(cluster));
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found.iter().all(|difference| difference.needs_restart), "{found:?}");
    check(
        cluster,
        &cluster.replace("copies = 1", "copies = 1\nmonitor = '127.0.0.1:8223'"),
        &["cluster.monitor changed from \"127.0.0.1:8222\" to \"127.0.0.1:8223\": takes effect after a restart"],
    );
    check(
        "listen = [{ address = '127.0.0.1:25' }]",
        "listen = [{ address = '127.0.0.1:25', on_no_replica = 'accept_local' }]",
        &[
            "listen removed: { address = \"127.0.0.1:25\" }",
            "listen added: { address = \"127.0.0.1:25\", on_no_replica = \"accept_local\" }",
        ],
    );
}

#[test]
fn the_query_of_a_webhook_is_not_shown() {
    let text = "[[webhook]]\nname = 'ops'\nurl = 'https://ops.test/hook?key=secret'\nsecret_file = '/ops.secret'\n";
    let found: Vec<String> = differences(&config(""), &config(text)).iter().map(ToString::to_string).collect();
    let [added] = found.as_slice() else { panic!("{found:?}") };
    assert!(added.contains("\"https://ops.test/hook?...\"") && added.contains("/ops.secret"), "{added}");
    assert!(!added.contains("key=secret"), "{added}");
    // It is compared all the same.
    assert_eq!(differences(&config(text), &config(&text.replace("secret'\nsecret", "other'\nsecret"))).len(), 2);
}

#[test]
fn a_reload_is_whole_or_not_at_all() {
    let live = differences(&config(""), &config("hostname = 'mx.example'"));
    assert_eq!(refuses_reload(&live), None);
    let both = differences(&config(""), &config("hostname = 'mx.example'\nserver.threads = 3"));
    assert_eq!(
        refuses_reload(&both).as_deref(),
        Some(
            "server.threads changed from 0 to 3: takes effect after a restart; nothing was changed: restart the server, \
             or take this back"
        )
    );
}

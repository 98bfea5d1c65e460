//! Findings of `mailrace cluster verify`: engines that are fit, and each kind of engine that is not.

use super::*;
use crate::cluster::{EngineFinding, check_engines};
use crate::config;
use testkit::nats::Options;

/// The section of node `node` with these engines.
fn section(node: u16, engines: &[String], monitor_port: u16, lines: &str) -> config::Cluster {
    let text = format!(
        "[cluster]\nid = '000102030405060708090a0b0c0d0e0f'\nnode = {node}\nengines = {engines:?}\ncopies = 1\n\
         monitor = '127.0.0.1:{monitor_port}'\n{lines}\n"
    );
    let loaded = config::load(&text, None, &[], &config::Machine::default());
    loaded.unwrap_or_else(|problems| panic!("{}", config::render(&problems))).config.cluster
}

/// Checks the state and the words of findings, in any order, and that there are no others that are not ok.
#[track_caller]
fn check(section: &config::Cluster, wanted: &[(&str, &str, &[&str])]) {
    let found = check_engines(section).unwrap();
    let is = |one: &EngineFinding, (state, check, words): &(&str, &str, &[&str])| {
        one.state.word() == *state && one.check == *check && words.iter().all(|word| one.text.contains(word))
    };
    for one in wanted {
        assert!(found.iter().any(|finding| is(finding, one)), "{one:?}\n{found:#?}");
    }
    for finding in found.iter().filter(|one| one.state.word() != "ok") {
        assert!(wanted.iter().any(|one| is(finding, one)), "{finding:?}");
    }
}

#[test]
fn a_fit_engine() {
    let Some(server) = Nats::start(&Options::default()) else { return };
    let section = section(1, &[server.address()], server.monitor_port, "");
    check(
        &section,
        &[
            ("ok", "connect", &["engine1"]),
            ("ok", "version", &["2.15"]),
            ("ok", "jetstream", &[]),
            ("ok", "name", &["without others"]),
            ("ok", "sync", &["before the answer"]),
            ("ok", "tags", &["node:1"]),
            ("unknown", "id", &["no node has run yet"]),
        ],
    );
}

#[test]
fn engines_of_three_nodes() {
    let Some(servers) = Nats::cluster(3, &Options::default()) else { return };
    let addresses: Vec<String> = servers.iter().map(Nats::address).collect();
    let section = section(1, &addresses, servers[0].monitor_port, "");
    check(
        &section,
        &[
            ("ok", "name", &["\"tests\""]),
            ("ok", "leader", &["leads 3 servers"]),
            ("unknown", "sync", &["only its monitor tells"]),
            ("unknown", "id", &["no node has run yet"]),
        ],
    );
    let members = async {
        let store = Coordination::new(engine(&servers).await);
        store.make_bucket(&settings(&servers)).await.unwrap();
        let value = "mailrace-node-1 cluster=ff0102030405060708090a0b0c0d0e0f node=2 name=mx2 incarnation=1 start=1 drain=0 clock=1";
        put_new(&store, "node/2", value).await;
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(members);
    check(
        &section,
        &[
            ("unknown", "sync", &["only its monitor tells"]),
            ("wrong", "id", &["the engine holds cluster ff01", "join"]),
        ],
    );
}

#[test]
fn an_engine_without_sync_interval_and_with_the_tag_of_another_node() {
    let Some(server) = Nats::start(&Options { sync_interval: None, ..Options::default() }) else { return };
    check(
        &section(2, &[server.address()], server.monitor_port, ""),
        &[
            ("wrong", "sync", &["sync_interval: always", "restart it"]),
            ("wrong", "tags", &["node:1", "server_tags: [\"node:2\"]"]),
            ("unknown", "id", &[]),
        ],
    );
}

#[test]
fn a_wrong_password_and_engines_that_are_away() {
    let lines = "authorization { user: mailrace, password: right }\n".to_owned();
    let Some(server) = Nats::start(&Options { lines, ..Options::default() }) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, "wrong\n").unwrap();
    let login = format!("user = 'mailrace'\npassword_file = {:?}", file.display().to_string());
    let engines = [server.address(), "127.0.0.1:1".to_owned()];
    let section = section(1, &engines, server.monitor_port, &login);
    check(
        &section,
        &[
            ("refused", "connect", &["refuses the login", "user and secret"]),
            ("away", "connect", &["127.0.0.1:1", "start"]),
        ],
    );
    std::fs::write(&file, "right\n").unwrap();
    check(
        &section,
        &[
            ("ok", "sync", &[]),
            ("wrong", "name", &["none", "cluster { name }"]),
            ("away", "connect", &["127.0.0.1:1"]),
            ("unknown", "id", &[]),
        ],
    );
    std::fs::remove_file(&file).unwrap();
    check(&section, &[("wrong", "connect", &["secret", "No such file"])]);
}

#[test]
fn a_user_of_the_system_account_and_one_that_is_none() {
    let lines = "authorization { users: [ { user: other, password: right } ] }\n\
                 accounts { $SYS { users: [ { user: system, password: right } ] } }\n";
    let Some(server) = Nats::start(&Options { lines: lines.to_owned(), ..Options::default() }) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [right, wrong] = ["right", "wrong"].map(|password| {
        let file = dir.path().join(password);
        std::fs::write(&file, format!("{password}\n")).unwrap();
        file.display().to_string()
    });
    let section = |user: &str, file: &str| {
        let lines = format!(
            "user = 'other'\npassword_file = {right:?}\nsystem_user = '{user}'\nsystem_password_file = {file:?}"
        );
        section(1, &[server.address()], server.monitor_port, &lines)
    };
    check(&section("system", &right), &[("ok", "system", &["system account"]), ("unknown", "id", &[])]);
    check(&section("system", &wrong), &[("refused", "system", &["refuses the login"]), ("unknown", "id", &[])]);
    let mut none = section("system", &right);
    "other".clone_into(&mut none.system_user);
    check(&none, &[("wrong", "system", &["no user of the system account", "accounts {"]), ("unknown", "id", &[])]);
}

#[test]
fn a_monitor_that_does_not_speak_for_the_engine() {
    let Some(server) = Nats::start(&Options { monitor: false, ..Options::default() }) else { return };
    check(
        &section(1, &[server.address()], 1, ""),
        &[("wrong", "sync", &["its monitor 127.0.0.1:1 does not say", "http: "]), ("unknown", "id", &[])],
    );
}

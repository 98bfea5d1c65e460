//! `mailrace cluster leave --node` with the files of `init` and `join`: the engine of a dead node is taken out of the
//! majority by the user of the system account, and stays in it where there is none.

use crate::cluster::{Machine, both};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Output;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, poll, program};
use testkit::nats;

/// Three machines with the files of `init` and `join`.
fn three_machines() -> Vec<Machine> {
    let machines: Vec<Machine> = std::iter::repeat_with(Machine::new).take(3).collect();
    machines.iter().for_each(|machine| machine.write("mailrace.toml", ""));
    let mut init = ["init", "--name", "mail"].map(str::to_owned).to_vec();
    for other in &machines[1..] {
        init.extend(["--route".to_owned(), format!("127.0.0.1:{}", other.route)]);
        init.extend(["--engine".to_owned(), format!("127.0.0.1:{}", other.port)]);
    }
    machines[0].make(1, &init.iter().map(String::as_str).collect::<Vec<_>>());
    let file = machines[0].path("cluster.join").display().to_string();
    for (machine, node) in machines.iter().zip(1..).skip(1) {
        machine.make(node, &["join", "--file", &file]);
    }
    machines
}

/// The server of a machine, with the section that `init` or `join` has printed.
fn server(machine: &Machine, node: u16) -> Server {
    let section = machine.text("mailrace.toml");
    let lines = section.lines().filter_map(|line| line.split_once(" = "));
    let setup = Setup::new().set("hostname", format!("\"mx{node}.test\""));
    lines.fold(setup, |setup, (key, value)| setup.set(&format!("cluster.{key}"), value)).start()
}

/// The engines that elect the leader, as those that run tell it to their monitors.
fn names(machines: &[Machine]) -> Vec<String> {
    let groups =
        machines.iter().filter_map(|machine| nats::ask_monitor(machine.monitor, "/jsz")?.get("meta_cluster").cloned());
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names = |group: &Value| -> Vec<String> {
        let others = group["replicas"].as_array().into_iter().flatten().filter_map(|peer| name(&peer["name"]));
        others.chain(name(&group["leader"])).collect()
    };
    groups
        .flat_map(|group| names(&group))
        .filter(|name| !name.is_empty())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn leave(machine: &Machine, arguments: &[&str]) -> Output {
    let mut command = program();
    command.args(["cluster", "leave", "--node", "3", "--config"]).arg(machine.path("mailrace.toml")).args(arguments);
    command.output().expect("it runs")
}

/// Exit status and answer.
fn leave_json(machine: &Machine) -> (Option<i32>, Value) {
    let output = leave(machine, &["--json"]);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", both(&output)));
    (output.status.code(), answer)
}

fn takes_mail(server: &Server) -> bool {
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    client.send(b"Subject: x\r\n\r\nbody\r\n.\r\n");
    client.reply().starts_with("250")
}

#[test]
fn the_engine_of_a_dead_node_is_taken_out_of_the_majority() {
    let Some(engine) = nats::program() else { return };
    let mut machines = three_machines();
    machines.iter_mut().for_each(|machine| machine.start(&engine));
    let all = ["mail-1", "mail-2", "mail-3"].map(str::to_owned);
    poll("the engines have a leader", || (names(&machines) == all).then_some(()));
    let mut servers: Vec<Server> = machines.iter().zip(1..).map(|(machine, node)| server(machine, node)).collect();
    for server in &servers {
        poll("a node that copies mail", || takes_mail(server).then_some(()));
    }
    // Mail of node 3 is with the others. Its engine runs on, and others may need the copies in it.
    let mut dead = servers.remove(2);
    dead.kill();
    let (_, answer) = poll("the node can be removed", || {
        let (exit, answer) = leave_json(&machines[0]);
        match exit {
            Some(0) => Some((exit, answer)),
            Some(75) => None,
            _ => panic!("{answer}"),
        }
    });
    assert_eq!((&answer["engine"], &answer["removed"]), (&"runs".into(), &true.into()), "{answer}");
    // The engines may be without a leader for a moment. One that was taken out would not come back.
    poll("an engine that runs stays", || (names(&machines) == all).then_some(()));
    machines[2].stop();
    // It may have been the leader.
    poll("the engines have a leader again", || (names(&machines) == all).then_some(()));

    // A cluster of an older mailrace has no such account: what is to be done by hand is said.
    let section = machines[1].text("mailrace.toml");
    let without: String =
        section.lines().filter(|line| !line.starts_with("system_")).flat_map(|line| [line, "\n"]).collect();
    assert_ne!(section, without);
    machines[1].write("mailrace.toml", &without);
    let output = leave(&machines[1], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(both(&output).contains("\"nats server cluster peer-remove\" with its server_name"), "{}", both(&output));
    assert_eq!(leave_json(&machines[1]).1["engine"], "no account");
    machines[1].write("mailrace.toml", &section);
    // A login that the engines refuse.
    let secret = machines[0].text("cluster.system.secret");
    machines[0].write("cluster.system.secret", "wrong\n");
    let output = leave(&machines[0], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    for part in ["not done: cluster.system_user \"system\": ", "refuses the login", "peer-remove"] {
        assert!(both(&output).contains(part), "{part}: {}", both(&output));
    }
    machines[0].write("cluster.system.secret", &secret);
    poll("nothing of this has taken it out", || (names(&machines) == all).then_some(()));

    let (exit, answer) = leave_json(&machines[0]);
    assert_eq!((exit, &answer["engine"], &answer["had_left"]), (Some(0), &"removed".into(), &true.into()), "{answer}");
    poll("it is gone", || (names(&machines) == all[..2]).then_some(()));
    let output = leave(&machines[1], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert!(both(&output).contains("nats-server mail-3: it does not count for the majority"), "{}", both(&output));
    for server in &servers {
        poll("mail goes on", || takes_mail(server).then_some(()));
    }
    // Also at a start before cluster.engines names one less.
    let again = servers.remove(0).stop_for_setup().start();
    poll("a node that starts copies mail", || takes_mail(&again).then_some(()));
    servers.push(again);
    // The server has no use for the account, and nobody shows its password.
    for server in servers {
        let log = server.stop().log.join("\n");
        assert!(!log.contains(secret.trim()), "{log}");
    }
    assert!(!both(&output).contains(secret.trim()));
}

//! How fast mail is put into mailboxes: a measurement, alternated with other builds of the program.
//!
//! `MAILRACE_BESIDE` names other builds, `:` between them; `MAILRACE_MESSAGES` how many messages each round has. Where
//! `TMPDIR` is a file system in memory, the cost of a sync is not measured.

use crate::office::{As, NOBODY, give, is_skipped, stored, with_boxes};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use testkit::harness::{Server, program};

const ROUNDS: usize = 3;

/// A round: messages a second.
#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn round(with: &PathBuf, who: As, kind: &str, users: usize, messages: usize) -> f64 {
    let setup = with_boxes(NOBODY);
    let boxes = setup.path("boxes");
    let owner = if matches!(who, As::Nobody) { NOBODY } else { 0 };
    give(setup.dir.path(), owner);
    let mut passwd = format!("nobody:x:{NOBODY}:{NOBODY}::/:/bin/false\n");
    for user in 0..users {
        let uid = if users == 1 { NOBODY } else { 20_000 + u32::try_from(user).expect("small") };
        writeln!(passwd, "user{user}:x:{uid}:{uid}::/:/bin/false").expect("a string takes everything");
    }
    std::fs::write(setup.path("passwd"), passwd).expect("written");
    std::fs::set_permissions(setup.path("passwd"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("set");
    std::fs::set_permissions(&boxes, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("set");
    let accounts = format!("{:?}", setup.path("passwd"));
    let setup = setup
        .set("local.accounts", accounts)
        .set("local.mailbox", format!("\"{kind}:{}/%u\"", boxes.display()))
        .set("spool.size_max", "\"256MiB\"");
    let names: Vec<String> = (0..users).map(|user| format!("user{user}@x.test")).collect();
    let mail: Vec<(&str, String)> =
        (0..messages).map(|number| (names[number % users].as_str(), "local:".to_owned())).collect();
    let content =
        format!("Subject: x\r\n\r\n{}", "A line of the usual length, as people write them in mail.\r\n".repeat(30));
    let setup = stored(setup, who, owner, &mail, content.as_bytes()).set("delivery.mode", "\"background\"");
    let mut command = Command::new(with);
    command.arg("serve").arg("--config").arg(setup.write());
    if let As::Nobody = who {
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
        std::os::unix::process::CommandExt::gid(&mut command, NOBODY);
        std::fs::set_permissions(setup.path("mailrace.toml"), std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .expect("set");
    }
    let began = std::time::Instant::now();
    let mut server = Server::start(setup, command);
    for _ in 0..messages {
        server.wait_log("stat=Sent");
    }
    let took = began.elapsed().as_secs_f64();
    assert!(server.stop().status.success());
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = messages as f64 / took;
    rate
}

#[test]
#[ignore = "a measurement"]
fn deliveries_a_second() {
    if is_skipped() {
        return;
    }
    let beside = std::env::var("MAILRACE_BESIDE").unwrap_or_default();
    let mut programs = vec![PathBuf::from(program().get_program())];
    programs.extend(beside.split(':').filter(|path| !path.is_empty()).map(PathBuf::from));
    let messages = std::env::var("MAILRACE_MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let mut all: BTreeMap<(String, PathBuf), Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (how, who) in [("as users", As::Us), ("as itself", As::Nobody)] {
            for (kind, users) in [("mbox", 1), ("maildir", 1), ("mbox", 100), ("maildir", 100)] {
                if users > 1 && how == "as itself" {
                    continue;
                }
                for with in &programs {
                    let rate = round(with, who, kind, users, messages);
                    all.entry((format!("{how}, {kind}, users: {users}"), with.clone())).or_default().push(rate);
                }
            }
        }
    }
    for ((what, with), mut rates) in all {
        rates.sort_by(f64::total_cmp);
        println!(
            "{what}: {:.0} [{:.0}-{:.0}] messages a second, {}",
            rates[ROUNDS / 2],
            rates[0],
            rates[ROUNDS - 1],
            with.display()
        );
    }
}

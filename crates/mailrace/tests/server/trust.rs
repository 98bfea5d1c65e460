//! The trust of the server: clients that may relay, files that count, and the secrets that a process of it keeps from
//! others of its machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::client::{Plain, connect, greeted};
use testkit::harness::{Server, Setup, control, failed, needs, poll, program};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that has a domain of its own, and lets no client relay.
pub(crate) fn closed() -> Setup {
    Setup::new()
        .set("relay.from", "[]")
        .set("local.domains", "[\"ours.test\", \"localhost.localdomain\"]")
        .set("accept.reverse_dns", "true")
        .set("dns.servers", "[\"127.0.0.1:1\"]")
        .set("dns.timeout", "\"200ms\"")
}

/// Returns the reply to a client that relays.
fn relays(client: &mut Plain) -> String {
    client.expect("MAIL FROM:<root@mx.test>", "250");
    client.command("RCPT TO:<victim@elsewhere.test>")
}

/// Returns the output of `mailrace route` for a client at this address.
fn routed(config: &Path, client: &str) -> (Option<i32>, String) {
    let output = program()
        .args(["route", "--client", client, "--from", "root@mx.test", "victim@elsewhere.test", "--config"])
        .arg(config)
        .output()
        .expect("it runs");
    (output.status.code(), text(&output.stdout))
}

#[test]
fn loopback_relays_only_if_relay_from_says_so() {
    let proxied = ", proxy_protocol = [\"127.0.0.1\"]";
    let listen = format!("[{{address = \"127.0.0.1:0\"}}, {{address = \"127.0.0.1:0\"{proxied}}}]");
    let setup = closed().set("listen", listen).set("accept.xclient", "[\"127.0.0.1\"]");
    let config = setup.write();
    let server = setup.start();
    let denied = "550 5.7.1 <victim@elsewhere.test>... Relaying denied";
    let mut direct = greeted(server.address());
    assert_eq!(relays(&mut direct), denied);
    direct.expect("RSET", "250");
    direct.expect("MAIL FROM:<a@b.test>", "250");
    direct.expect("RCPT TO:<postmaster@mx.test>", "250");
    // A PROXY header that claims an address of this machine gives no relay rights, and neither does the own address of
    // the proxy.
    for claim in ["TCP4 127.0.0.1 127.0.0.1", "TCP4 127.0.0.2 127.0.0.1", "TCP6 ::1 ::1", "TCP6 ::ffff:127.0.0.1 ::1"] {
        let mut client = connect(server.addresses[1]);
        client.send(format!("PROXY {claim} 4660 25\r\n").as_bytes());
        client.hello();
        assert_eq!(relays(&mut client), denied, "{claim}");
    }
    let mut unknown = connect(server.addresses[1]);
    unknown.send(b"PROXY UNKNOWN\r\n");
    unknown.hello();
    assert_eq!(relays(&mut unknown), denied, "the proxy itself");
    for claim in ["ADDR=127.0.0.1 NAME=localhost", "NAME=mx.test", "ADDR=198.51.100.7 NAME=localhost.localdomain"] {
        let mut client = greeted(server.address());
        client.expect(&format!("XCLIENT {claim}"), "220");
        client.expect("EHLO front.test", "250");
        assert_eq!(relays(&mut client), denied, "{claim}");
    }
    // `mailrace route` gives the same answer, and says why.
    for client in ["127.0.0.1", "127.0.0.9", "::1", "::ffff:127.0.0.1"] {
        let (status, told) = routed(&config, client);
        assert_eq!(status, Some(67), "{told}");
        assert!(told.contains("is this machine, which may relay only if relay.from"), "{told}");
    }
}

#[test]
fn loopback_relays_where_the_operator_says_so() {
    let access = |setup: Setup| {
        let path = setup.path("access");
        fs::write(&path, "Connect:localhost RELAY\n").expect("written");
        setup.set("maps.access", format!("[{path:?}]"))
    };
    let setups = [
        (closed().set("relay.from", "[\"127.0.0.0/8\"]"), "127.0.0.1 is in class R"),
        (access(closed()), "Connect:localhost RELAY => RELAY"),
    ];
    for (setup, why) in setups {
        let config = setup.write();
        let server = setup.start();
        assert_eq!(
            relays(&mut greeted(server.address())),
            "250 2.1.5 <victim@elsewhere.test>... Recipient ok",
            "{why}"
        );
        let (status, told) = routed(&config, "127.0.0.1");
        assert!(status == Some(0) && told.contains(why), "{told}");
    }
}

/// Maps of which each is given a mode.
struct Maps {
    aliases: PathBuf,
    domains: PathBuf,
}

impl Maps {
    fn of(setup: Setup) -> (Self, Setup) {
        let etc = setup.path("etc");
        fs::create_dir(&etc).expect("made");
        let maps = Self { aliases: etc.join("aliases"), domains: etc.join("local-host-names") };
        fs::write(&maps.aliases, "info: root@before.test\n").expect("written");
        fs::write(&maps.domains, "ours.test\n").expect("written");
        let setup = setup
            .set("maps.aliases", format!("[{:?}]", maps.aliases))
            .set("local.domain_files", format!("[{:?}]", maps.domains))
            .set("local.luser_relay", "\"\"");
        (maps, setup)
    }

    fn modes(&self, aliases: u32, domains: u32, directory: u32) {
        mode(&self.aliases, aliases);
        mode(&self.domains, domains);
        mode(self.aliases.parent().expect("a directory"), directory);
    }
}

fn check(config: &Path) -> (Option<i32>, String) {
    let output = program().arg("check").arg("--config").arg(config).output().expect("it runs");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn maps_that_others_can_write_start_no_server() {
    let (maps, setup) = Maps::of(closed());
    for (aliases, domains, directory, key, object) in [
        (0o646, 0o644, 0o755, "maps.aliases", "/etc/aliases"),
        (0o664, 0o644, 0o755, "maps.aliases", "/etc/aliases"),
        (0o644, 0o666, 0o755, "local.domain_files", "/etc/local-host-names"),
        (0o644, 0o644, 0o777, "maps.aliases", "the directory "),
    ] {
        maps.modes(aliases, domains, directory);
        let (status, told) = setup.fails();
        assert_eq!(status, Some(78), "{told}");
        for part in [key, object, "run \"chmod g", "owner "] {
            assert!(told.contains(part), "{part}: {told}");
        }
        let (status, told) = check(&setup.write());
        assert!(status == Some(78) && told.contains(key) && told.contains("run \"chmod g"), "{told}");
    }
    // The controls: as it should be, a group that is trusted, and a directory as /tmp.
    maps.modes(0o644, 0o644, 0o755);
    assert_eq!(check(&setup.write()).0, Some(0));
    maps.modes(0o664, 0o664, 0o775);
    let setup = setup.set("maps.group_writable", "true");
    assert_eq!(check(&setup.write()).0, Some(0));
    maps.modes(0o640, 0o600, 0o1777);
    drop(setup.start());
}

#[test]
fn maps_of_somebody_else_start_no_server() {
    if !needs::root() {
        return;
    }
    let (maps, setup) = Maps::of(closed());
    maps.modes(0o644, 0o644, 0o755);
    let give = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None).expect("root can");
    for path in [&maps.aliases, &maps.domains, maps.aliases.parent().expect("a directory")].map(Path::to_owned) {
        give(&path, 65_534);
        let (status, told) = setup.fails();
        assert!(status == Some(78) && told.contains("chown root ") && told.contains("65534"), "{told}");
        give(&path, 0);
    }
    // The user of the server may own them.
    give(&maps.aliases, 1);
    assert_eq!(setup.fails().0, Some(78), "the control");
    let setup = setup.set("server.user", "\"daemon\"");
    mode(setup.dir.path(), 0o755);
    assert_eq!(check(&setup.write()).0, Some(0));
}

/// Where mail for info goes.
fn expanded(server: &Server) -> String {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<info@ours.test>", "250");
    client.expect("DATA", "354");
    client.send(b"Subject: x\r\n\r\nx\r\n");
    client.expect(".", "250");
    let output = server.control(&["queue", "list", "--json"], b"");
    let told = text(&output.stdout);
    let deleted = server.control(&["queue", "delete", "--all"], b"");
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    told
}

#[test]
fn a_running_server_keeps_the_maps_of_before() {
    // It looks by itself within a second, and at a reload.
    for interval in ["\"1s\"", "0"] {
        let (maps, setup) = Maps::of(closed());
        maps.modes(0o644, 0o644, 0o755);
        let mut server = setup.set("maps.interval", interval).start();
        let reload = |server: &Server| {
            if interval == "0" {
                let output = server.control(&["reload"], b"");
                assert!(output.status.success(), "{}", text(&output.stderr));
            }
        };
        // At once: the server may look at any time, and a moment with the new text and the old mode would be right.
        let new = maps.aliases.with_extension("new");
        fs::write(&new, "info: thief@after.test\n").expect("written");
        mode(&new, 0o666);
        rustix::fs::rename(&new, &maps.aliases).expect("renamed");
        reload(&server);
        let line = server.wait_log("SECURITY: file not read: maps.aliases: ");
        for part in ["mode 0666", "can be written by everybody", "chmod go-w ", "the map stays as it was"] {
            assert!(line.contains(part), "{line}");
        }
        let told = expanded(&server);
        assert!(told.contains("root@before.test") && !told.contains("thief@"), "{told}");
        // Right again, it counts.
        fs::write(&maps.aliases, "info: root@later.test\n").expect("written");
        mode(&maps.aliases, 0o644);
        reload(&server);
        server.wait_log("reloaded: file=");
        poll("the map never counts again", || expanded(&server).contains("root@later.test").then_some(()));
        // A directory on the way that others may write to makes it count for nothing more.
        mode(maps.aliases.parent().expect("a directory"), 0o777);
        reload(&server);
        server.wait_log("the directory ");
        assert!(expanded(&server).contains("root@later.test"));
    }
}

#[test]
fn passwords_and_the_configuration_itself() {
    let setup = Setup::new();
    let users = setup.path("users");
    fs::write(&users, "anna:$5$x$y\n").expect("written");
    let setup = setup.set("auth.file", format!("{users:?}"));
    for (of_users, of_directory) in [(0o642, 0o700), (0o666, 0o700), (0o640, 0o702)] {
        mode(&users, of_users);
        mode(setup.dir.path(), of_directory);
        let (status, told) = setup.fails();
        assert!(status == Some(78) && told.contains("can be written by everybody"), "{of_users:o}: {told}");
        assert_eq!(check(&setup.write()).0, Some(78));
    }
    mode(setup.dir.path(), 0o700);
    mode(&users, 0o640);
    let config = setup.write();
    assert_eq!(check(&config).0, Some(0), "the control");
    mode(&config, 0o666);
    let (status, told) = check(&config);
    assert!(status == Some(78) && told.contains("the configuration does not count: "), "{told}");
    let mut command = program();
    command.arg("serve").arg("--config").arg(&config);
    assert_eq!(failed(command).0, Some(78));
    // At a reload the old one stays.
    mode(&config, 0o644);
    let mut command = program();
    command.arg("serve").arg("--config").arg(&config);
    let mut server = Server::start(setup, command);
    mode(&config, 0o646);
    let output = server.control(&["reload"], b"");
    assert!(!output.status.success() && text(&output.stderr).contains("can be written by everybody"), "{output:?}");
    server.wait_log("configuration not reloaded");
}

/// Whether other processes of its user can look into a process: the kernel gives what `/proc` has of it to root then.
fn is_sealed(pid: u32, uid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}/environ")).expect("it lives").uid();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it lives");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    let words: Vec<&str> = core.split_ascii_whitespace().collect();
    assert_ne!(uid, 0, "root's looks so anyway");
    owner == 0 && words.get(4..6) == Some(&["0", "0"])
}

/// Files that a process has open, of those that the shell below passed to it.
fn passed(pid: u32) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").filter_map(Result::ok);
    files.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|to| to.ends_with("secret")).collect()
}

/// A command that is started with descriptors of others.
fn with_descriptors(secret: &Path, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "secret=$1; shift; exec 5<\"$secret\" 9<\"$secret\"; exec \"$@\"", "sh"]).arg(secret);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

#[test]
fn every_start_seals_its_memory_and_closes_what_is_not_its_own() {
    if !needs::root() {
        return;
    }
    const NOBODY: u32 = 65_534;
    let setup = Setup::new();
    let (secret, config) = (setup.path("secret"), setup.write());
    fs::write(&secret, "x").expect("written");
    for path in [setup.dir.path(), &config] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("root can");
    }
    let mut serve = program();
    serve.arg("serve").arg("--config").arg(&config);
    let mut command = with_descriptors(&secret, &serve);
    // The shell opens them as root would pass them.
    mode(&secret, 0o644);
    command.uid(NOBODY).gid(NOBODY);
    let mut server = Server::start(setup, command);
    assert!(is_sealed(server.pid(), NOBODY));
    assert_eq!(passed(server.pid()), Vec::<PathBuf>::new());
    let line = server.wait_log("starting daemon");
    assert!(line.contains(", user=nobody, uid=65534, gid=65534"), "{line}");
    // The server can still use /proc/self and its own files.
    let mut client = greeted(server.address());
    client.message(b"Subject: x\r\n\r\nx\r\n");
    assert!(control(&server.setup.path("control"), &["status"], b"").status.success());
    // A sink keeps nothing, but has keys and passwords of clients.
    let mut sink = program();
    sink.args(["sink", "--listen", "127.0.0.1:0"]);
    let mut command = with_descriptors(&secret_of(&server), &sink);
    command.uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let pid = child.id();
    poll("the sink is never ready", || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (line.windows(4).any(|word| word == b"sink") && !line.starts_with(b"sh\0") && passed(pid).is_empty())
            .then_some(())
    });
    poll("the sink is never sealed", || is_sealed(pid, NOBODY).then_some(()));
    child.kill().expect("it lives");
    child.wait().expect("it ends");
}

fn secret_of(server: &Server) -> PathBuf {
    server.setup.path("secret")
}

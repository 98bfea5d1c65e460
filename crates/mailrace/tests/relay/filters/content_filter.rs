//! amavisd-new, as Debian has it, which takes mail by SMTP and gives it back by SMTP: as a `[[filter]]` before and
//! after the 250, with ClamAV behind it, and as a next hop to which a rule sends mail.

use super::programs::{Running, free_port, run, run_on_socket, write};
use crate::hop::Hop;
use crate::world::{any_line, ends_empty, relay, send};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use testkit::client::greeted;
use testkit::harness::{needs, poll, text as text_of};

/// The user that the package makes; amavisd refuses to run as root.
const USER: &str = "amavis";

/// Settings for amavisd without scanners, which refuses attachments with names of programs.
fn settings(home: &Path, address: SocketAddr, back: SocketAddr, scanner: &str) -> String {
    let home = home.display();
    let (ip, port, back_ip, back_port) = (address.ip(), address.port(), back.ip(), back.port());
    format!(
        r#"use strict;
$daemon_user = '{USER}'; $daemon_group = '{USER}'; $daemonize = 0; $max_servers = 1;
$MYHOME = '{home}'; $TEMPBASE = '{home}'; $QUARANTINEDIR = undef; $db_home = undef;
$enable_db = 0; $enable_zmq = 0; $do_syslog = 0; $log_level = 0;
$pid_file = '{home}/pid'; $lock_file = '{home}/lock';
$mydomain = 'mx.test'; $myhostname = 'amavis.mx.test'; @local_domains_maps = (1);
$inet_socket_bind = '{ip}'; $inet_socket_port = [{port}]; $unix_socketname = undef;
$forward_method = 'smtp:[{back_ip}]:{back_port}'; $notify_method = $forward_method;
$final_banned_destiny = D_REJECT; $final_bad_header_destiny = D_PASS; $final_virus_destiny = D_REJECT;
$banned_filename_re = new_RE(qr'\.exe$'i);
@bypass_spam_checks_maps = (1);
{scanner}
$enable_dkim_verification = 0; $enable_dkim_signing = 0;
1;
"#
    )
}

/// Runs amavisd, which gives mail back to this address; `None`: that is not possible here.
fn amavisd(directory: &Path, back: SocketAddr, scanner: &str) -> Option<(Running, SocketAddr)> {
    let program = needs::program("amavisd")?;
    if !needs::root() {
        return None;
    }
    let home = directory.join("home");
    std::fs::create_dir(&home).expect("made");
    let is_owned = Command::new("chown").arg(USER).arg(&home).status().expect("chown runs").success();
    let open = Command::new("chmod").arg("755").arg(directory).status();
    assert!(is_owned && open.expect("chmod runs").success());
    let address = free_port();
    let config = write(directory, "amavisd.conf", &settings(&home, address, back, scanner));
    Some((run(Command::new(program).args(["-c", &config, "foreground"]), address), address))
}

/// No scanner.
const UNSCANNED: &str = "@bypass_virus_checks_maps = (1);";

/// The file that scanners take for a virus. In two parts, so that no scanner takes this file for one.
fn eicar() -> String {
    [r"X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD", "-ANTIVIRUS-TEST-FILE!$H+H*"].concat()
}

/// Runs clamd, which knows one virus; `None`: it is not installed.
fn clamd(directory: &Path) -> Option<(Running, String)> {
    let program = needs::program("clamd")?;
    let at = |name: &str| directory.join(name).display().to_string();
    std::fs::create_dir(at("db")).expect("made");
    let pattern: String = eicar().bytes().map(|octet| format!("{octet:02x}")).collect();
    write(directory, "db/test.ndb", &format!("Eicar-Test-Signature:0:*:{pattern}\n"));
    let socket = directory.join("clamd.ctl");
    let settings = format!(
        "DatabaseDirectory {}\nLocalSocket {}\nLocalSocketMode 666\nForeground yes\nLogFile {}\n",
        at("db"),
        socket.display(),
        at("clamd.log"),
    );
    let config = write(directory, "clamd.conf", &settings);
    let running = run_on_socket(Command::new(program).args(["-c", &config]), &socket);
    let scanner = format!(
        "@av_scanners = (['ClamAV-clamd', \\&ask_daemon, [\"CONTSCAN {{}}\\n\", '{}'], qr/\\bOK$/m, \
         qr/\\bFOUND$/m, qr/^.*?: (?!Infected Archive)(.*) FOUND$/m]); @av_scanners_backup = ();",
        socket.display()
    );
    Some((running, scanner))
}

#[test]
fn amavisd_with_clamd_judges_before_and_after_the_250() {
    for when in ["before-250", "after-250"] {
        let (directory, scanners) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
        let open = Command::new("chmod").arg("755").arg(scanners.path()).status();
        assert!(open.expect("chmod runs").success());
        let Some((_clamd, scanner)) = clamd(scanners.path()) else { return };
        let back = free_port();
        let Some((_amavisd, address)) = amavisd(directory.path(), back, &scanner) else { return };
        let hop = Hop::good();
        let listeners = format!(
            "[{{address = \"127.0.0.1:0\", name = \"mx\", filters = [\"amavis\"]}}, \
             {{address = \"{back}\", name = \"filtered\"}}]"
        );
        let table = format!("[{{name = \"amavis\", kind = \"smtp\", address = \"{address}\", when = \"{when}\"}}]");
        let mut server = relay(&[&hop]).set("listen", listeners).set("filter", table).start();
        let clean = b"From: a@client.test\r\nSubject: x\r\n\r\nhello\r\n";
        let id = send(&server, "a@client.test", &["b@d.test", "c@d.test"], clean);
        let mail = hop.wait(1).remove(0);
        let text = mail.text();
        assert!(text.contains("(amavis.mx.test ") && text.ends_with("\r\n\r\nhello\r\n"), "{text}");
        assert!(text.contains(&format!("with ESMTP id {id}")) && !text.contains("X-Mailrace-Trace"), "{text}");
        assert_eq!(mail.all_to(), ["b@d.test", "c@d.test"]);
        any_line(&mut server, &["screen=edit", "by=amavis", "given back changed"]);
        let virus = format!("From: a@client.test\r\nSubject: y\r\n\r\n{}\r\n", eicar());
        let mut client = greeted(server.address());
        client.envelope();
        client.expect("DATA", "354");
        client.send(format!("{virus}.\r\n").as_bytes());
        let said = client.reply();
        client.quit();
        if when == "before-250" {
            assert!(said.starts_with("554 5.7.0") && said.contains("INFECTED: Eicar-Test-Signature"), "{said}");
            ends_empty(server);
        } else {
            assert!(said.starts_with("250"), "{said}");
            let list = || text_of(&server.control(&["quarantine", "list"], b""));
            poll("it is in quarantine", || list().contains("INFECTED: Eicar-Test-Signature").then_some(()));
            server.stop();
        }
        assert_eq!(hop.count(), 1);
    }
}

#[test]
fn amavisd_gives_mail_back_to_another_listener() {
    let directory = tempfile::tempdir().expect("a directory");
    let back = free_port();
    let Some((_running, address)) = amavisd(directory.path(), back, UNSCANNED) else { return };
    let (ip, port) = (address.ip(), address.port());
    let rules = format!("rule to_the_filter {{\n  for listener mx\n  route \"smtp:[{ip}]:{port}\"\n}}\n");
    let rules = write(directory.path(), "filter.rules", &rules);
    let hop = Hop::good();
    let listeners =
        format!("[{{address = \"127.0.0.1:0\", name = \"mx\"}}, {{address = \"{back}\", name = \"filtered\"}}]");
    let setup = relay(&[&hop]).set("listen", listeners).set("screen.rules", format!("[{rules:?}]"));
    let mut server = setup.start();
    send(&server, "a@client.test", &["b@d.test"], b"From: a@client.test\r\nSubject: x\r\n\r\nhello\r\n");
    let text = hop.wait(1)[0].text();
    assert!(text.contains("\r\nReceived: from mx.test ") || text.contains("by amavis.mx.test"), "{text}");
    assert!(text.matches("\r\nReceived: ").count() + usize::from(text.starts_with("Received: ")) >= 3, "{text}");
    assert!(text.ends_with("\r\n\r\nhello\r\n"), "{text}");
    server.wait_log("daemon=filtered");
    // The sender hears from this server that the filter has refused a message.
    let program = b"From: a@client.test\r\nSubject: y\r\nMIME-Version: 1.0\r\nContent-Type: application/octet-stream; \
        name=a.exe\r\nContent-Disposition: attachment; filename=a.exe\r\n\r\nhello\r\n";
    send(&server, "a@client.test", &["b@d.test"], program);
    let report = hop.wait(2)[1].text();
    assert!(report.contains("\r\nTo: a@client.test") || report.contains("a@client.test"), "{report}");
    assert!(report.contains("554 5.7.0") && report.contains("amavisd") || report.contains("BANNED"), "{report}");
    ends_empty(server);
}

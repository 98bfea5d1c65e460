//! A content filter behind the queue that takes and gives back mail by SMTP: amavisd-new, as Debian has it. A rule of
//! one listener sends mail there, and it comes back to another one.

use super::programs::{free_port, run, write};
use crate::hop::Hop;
use crate::world::{ends_empty, relay, send};
use std::path::Path;
use std::process::Command;
use testkit::harness::needs;

/// The user that the package makes; amavisd refuses to run as root.
const USER: &str = "amavis";

/// Settings for amavisd without scanners, which refuses attachments with names of programs.
fn settings(home: &Path, port: u16, back: u16) -> String {
    let home = home.display();
    format!(
        r#"use strict;
$daemon_user = '{USER}'; $daemon_group = '{USER}'; $daemonize = 0; $max_servers = 1;
$MYHOME = '{home}'; $TEMPBASE = '{home}'; $QUARANTINEDIR = undef; $db_home = undef;
$enable_db = 0; $enable_zmq = 0; $do_syslog = 0; $log_level = 0;
$pid_file = '{home}/pid'; $lock_file = '{home}/lock';
$mydomain = 'mx.test'; $myhostname = 'amavis.mx.test'; @local_domains_maps = (1);
$inet_socket_bind = '127.0.0.1'; $inet_socket_port = [{port}]; $unix_socketname = undef;
$forward_method = 'smtp:[127.0.0.1]:{back}'; $notify_method = $forward_method;
$final_banned_destiny = D_REJECT; $final_bad_header_destiny = D_PASS;
$banned_filename_re = new_RE(qr'\.exe$'i);
@bypass_virus_checks_maps = (1); @bypass_spam_checks_maps = (1);
$enable_dkim_verification = 0; $enable_dkim_signing = 0;
1;
"#
    )
}

#[test]
fn amavisd_gives_mail_back_to_another_listener() {
    let Some(program) = needs::program("amavisd") else { return };
    if !needs::root() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path().join("home");
    std::fs::create_dir(&home).expect("made");
    let is_owned = Command::new("chown").arg(USER).arg(&home).status().expect("chown runs").success();
    let open = Command::new("chmod").arg("755").arg(directory.path()).status();
    assert!(is_owned && open.expect("chmod runs").success());
    let (address, back) = (free_port(), free_port());
    let config = write(directory.path(), "amavisd.conf", &settings(&home, address.port(), back.port()));
    let _running = run(Command::new(program).args(["-c", &config, "foreground"]), address);
    let rules =
        format!("rule to_the_filter {{\n  for listener mx\n  route \"smtp:[127.0.0.1]:{}\"\n}}\n", address.port());
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

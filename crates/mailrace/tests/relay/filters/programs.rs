//! The filters that people use, as Debian has them: opendkim, a filter on libmilter by way of Python, clamd,
//! SpamAssassin, rspamd, postgrey. Each runs with a configuration and a directory of its own.

use super::{filtered, milter};
use crate::hop::{Hop, own_ip};
use crate::world::{ends_empty, lines, send};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{needs, pause, poll, program, text};

/// A program that ends with the test.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Its children end with it.
        drop(Command::new("kill").arg(self.0.id().to_string()).status());
        drop(self.0.wait());
    }
}

/// A port that is free now, at an address of its own: nothing else takes the port until a program listens there.
pub(super) fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((own_ip(), 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// Runs a program until it listens.
#[track_caller]
pub(super) fn run(command: &mut Command, address: SocketAddr) -> Running {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let running = Running(child);
    poll("the filter does not listen", || TcpStream::connect(address).ok());
    running
}

/// Runs a program until it listens on a UNIX socket.
#[track_caller]
pub(super) fn run_on_socket(command: &mut Command, path: &Path) -> Running {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let running = Running(child);
    poll("the filter does not listen", || UnixStream::connect(path).ok());
    running
}

pub(super) fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[test]
fn opendkim_signs() {
    let (Some(program), Some(openssl)) = (needs::program("opendkim"), needs::program("openssl")) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let made = Command::new(openssl).args(["genrsa", "-out", &at("key"), "2048"]).stderr(Stdio::null()).status();
    assert!(made.expect("openssl runs").success());
    let address = free_port();
    let text = format!(
        "Socket inet:{}@{}\nMode s\nDomain client.test\nSelector s1\nKeyFile {}\nInternalHosts 127.0.0.1\n\
         Canonicalization relaxed/simple\nRequireSafeKeys no\nBackground no\nSyslog no\n",
        address.port(),
        address.ip(),
        at("key"),
    );
    let config = write(directory.path(), "conf", &text);
    let _running = run(Command::new(program).args(["-f", "-x", &config]), address);
    let hop = Hop::good();
    let server = filtered(&hop, &[("dkim", milter(address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com"], b"From: a@client.test\r\nSubject: x\r\n\r\nhello\r\n..dot\r\n");
    let text = hop.wait(1)[0].text();
    let signature = text.split("DKIM-Signature:").nth(1).unwrap_or_else(|| panic!("not signed: {text}"));
    assert!(signature.contains("d=client.test; s=s1;"), "{signature}");
    // SHA-256 of "hello\r\n.dot\r\n": the filter saw the body without the dots of SMTP.
    assert!(signature.contains("bh=uREeX0YCBH7w5ITIbWaJZLj5VDKfozdfhxU+a7W96g8="), "{signature}");
    ends_empty(server);
}

const LIBMILTER: &str = r#"
import sys, Milter

class Filter(Milter.Base):
    def envrcpt(self, to, *params):
        if to.startswith('<no@'):
            self.setreply('550', '5.7.1', 'Not', 'at all')
            return Milter.REJECT
        return Milter.CONTINUE
    def eom(self):
        self.addheader('X-Client', '%s %s' % (self.getsymval('j'), self.getsymval('{client_addr}')))
        self.chgheader('Subject', 1, 'changed')
        self.addrcpt('<d@example.com>')
        self.delrcpt('<c@example.com>')
        self.chgfrom('<other@client.test>')
        self.replacebody('new body\r\n')
        self.progress()
        return Milter.ACCEPT

Milter.factory = Filter
Milter.set_flags(Milter.ADDHDRS | Milter.CHGHDRS | Milter.CHGBODY | Milter.ADDRCPT | Milter.DELRCPT | Milter.CHGFROM)
Milter.runmilter('probe', sys.argv[1], 5)
"#;

#[test]
fn a_filter_on_libmilter_changes_the_message() {
    let python = "/usr/bin/python3";
    if !needs::has("python3-milter", "/usr/lib/python3/dist-packages/Milter") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = write(directory.path(), "filter.py", LIBMILTER);
    let address = free_port();
    let socket = format!("inet:{}@{}", address.port(), address.ip());
    let _running = run(Command::new(python).args([&script, &socket]), address);
    let hop = Hop::good();
    let server = filtered(&hop, &[("python", milter(address, ""))]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    assert_eq!(client.command("RCPT TO:<no@example.com>"), "550-5.7.1 Not\n550 5.7.1 at all");
    client.expect("RCPT TO:<b@example.com>", "250 2.1.5");
    client.expect("RCPT TO:<c@example.com>", "250 2.1.5");
    client.data(b"Subject: old\r\n\r\nhello\r\n");
    client.quit();
    let mails = hop.wait(1);
    let text = mails[0].text();
    let rest = text.split_once("\r\nSubject:").unwrap_or_else(|| panic!("{text}")).1;
    assert_eq!(rest, " changed\r\nX-Client: mx.test 127.0.0.1\r\n\r\nnew body\r\n");
    assert_eq!(mails[0].all_to(), ["b@example.com", "d@example.com"]);
    assert!(mails[0].mail.starts_with("MAIL FROM:<other@client.test>"), "{}", mails[0].mail);
    ends_empty(server);
}

#[test]
fn clamd_finds_and_says_what_it_did_not_scan() {
    let Some(clamd) = needs::program("clamd") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    std::fs::create_dir(at("db")).expect("made");
    let pattern: String = b"a test pattern of clamd".iter().map(|octet| format!("{octet:02x}")).collect();
    write(directory.path(), "db/test.ndb", &format!("Test.Pattern:0:*:{pattern}\n"));
    let address = free_port();
    let settings = format!(
        "DatabaseDirectory {}\nTCPSocket {}\nTCPAddr {}\nForeground yes\nStreamMaxLength 100K\nLogFile {}\n",
        at("db"),
        address.port(),
        address.ip(),
        at("log"),
    );
    let config = write(directory.path(), "conf", &settings);
    let _running = run(Command::new(clamd).args(["-c", &config]), address);
    let hop = Hop::good();
    let setup = |size_max: &str| {
        let filter = format!("kind = \"clamd\", address = \"{address}\", size_max = \"{size_max}\"");
        filtered(&hop, &[("clam", filter)]).set("message.size_max", "\"14MiB\"")
    };
    for (size_max, refused) in [("10MiB", Some("10MiB")), ("100KiB", None), ("40MiB", Some("14MiB"))] {
        let output = program().args(["check", "--config"]).arg(setup(size_max).write()).output().expect("it runs");
        let text = text(&output);
        let said = format!("filter \"clam\": the scanner refuses a message of {}", refused.unwrap_or_default());
        assert_eq!(text.contains(&said), refused.is_some(), "{size_max}: {text}");
        let said = format!("messages over {size_max} (filter.size_max) pass it unscanned, and 14MiB");
        assert_eq!(text.contains(&said), size_max != "40MiB", "{size_max}: {text}");
    }
    let server = setup("25MiB").start();
    send(&server, "a@client.test", &["clean@example.com"], b"Subject: x\r\n\r\nhello\r\n");
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    client.send(b"Subject: x\r\n\r\nthis is a test pattern of clamd\r\n.\r\n");
    let reply = client.reply();
    assert!(reply.starts_with("550 5.7.1 Message contains Test.Pattern"), "{reply}");
    // Neither clean nor a failure.
    let line = b"0123456789abcdef0123456789abcdef0123456789abcdef01234567890abc\r\n";
    let large = [b"Subject: large\r\n\r\n".as_slice(), &line.repeat(5_000)].concat();
    let id = client.message(&large);
    client.quit();
    hop.wait(2);
    // All of it over one connection, which clamd closes behind a stream that is too large.
    let counts = &server.whole_status()["filters"][0];
    assert!(counts["opened"] == 1 && counts["reused"] == 2 || counts["stale"] == 1, "{counts}");
    assert_eq!(counts["idle"], 0, "{counts}");
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &[&id, "screen=accept", "by=clam", "not scanned: too large"]).len(), 1, "{log:#?}");
    assert_eq!(lines(&log, &["screen=reject", "by=clam", "Test.Pattern"]).len(), 1, "{log:#?}");
    let filter = format!("kind = \"clamd\", address = \"{address}\", when = \"after-250\"");
    let server = filtered(&hop, &[("clam", filter)]).start();
    let infected = b"Subject: x\r\n\r\nthis is a test pattern of clamd\r\n";
    let id = send(&server, "a@client.test", &["b@example.com"], infected);
    let list = || text(&server.control(&["quarantine", "list"], b""));
    poll("it is in quarantine", || list().contains("Message contains Test.Pattern").then_some(()));
    send(&server, "a@client.test", &["clean@example.com"], b"Subject: x\r\n\r\nhello\r\n");
    assert!(hop.wait(3)[2].to_is("clean@example.com"));
    assert!(server.control(&["quarantine", "delete", &id], b"").status.success());
    ends_empty(server);
}

/// Runs spamd with one rule; `None`: it is not installed.
#[track_caller]
pub(super) fn spamd(directory: &Path) -> Option<(Running, SocketAddr)> {
    let program = needs::program("spamd")?;
    let at = |name: &str| directory.join(name).display().to_string();
    for name in ["rules", "site"] {
        std::fs::create_dir(at(name)).expect("made");
    }
    let plugin = "loadplugin Mail::SpamAssassin::Plugin::Check\n";
    write(directory, "site/v320.pre", plugin);
    write(directory, "rules/test.pre", plugin);
    let rules = "required_score 5\nuse_bayes 0\nbody T_PATTERN /a test pattern of spamd/\nscore T_PATTERN 7.5\n\
                 report_safe 0\nadd_header spam Flag _YESNOCAPS_\n\
                 add_header all Status \"_YESNO_, score=_SCORE_ required=_REQD_ tests=_TESTS_\"\n";
    write(directory, "rules/test.cf", rules);
    let address = free_port();
    let mut command = Command::new(program);
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-L", "-x", "-m", "1", "-i", &ip, "-p", &port, "-u", "nobody"]);
    command.args(["-s", "null", "-C", &at("rules"), &format!("--siteconfigpath={}", at("site"))]);
    // It reads its rules as another user.
    let open = Command::new("chmod").args(["-R", "a+rX", &directory.display().to_string()]).status();
    assert!(open.expect("chmod runs").success());
    Some((run(&mut command, address), address))
}

#[test]
fn spamassassin_marks_spam() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some((_running, address)) = spamd(directory.path()) else { return };
    for when in ["before-250", "after-250"] {
        let hop = Hop::good();
        let server =
            filtered(&hop, &[("spam", format!("kind = \"spamd\", address = \"{address}\", when = {when:?}"))]).start();
        send(
            &server,
            "a@client.test",
            &["b@example.com"],
            b"X-Spam-Flag: NO\r\nSubject: x\r\n\r\na test pattern of spamd\r\n",
        );
        send(&server, "a@client.test", &["b@example.com"], b"X-Spam-Flag: YES\r\nSubject: y\r\n\r\nhello\r\n");
        let mails = hop.wait(2);
        let of =
            |subject: &str| mails.iter().map(|mail| mail.text()).find(|text| text.contains(subject)).expect("it came");
        let spam = of("Subject: x");
        assert!(spam.contains("\r\nX-Spam-Flag: YES\r\n") && !spam.contains("X-Spam-Flag: NO"), "{spam}");
        assert!(spam.contains("X-Spam-Status: Yes, score=7.5 required=5.0\r\n\ttests=T_PATTERN\r\n"), "{spam}");
        let ham = of("Subject: y");
        assert!(!ham.contains("X-Spam-Flag") && ham.contains("X-Spam-Status: No, "), "{ham}");
        let log = ends_empty(server).log;
        assert_eq!(lines(&log, &["by=spam", "tag, score 7.5/5.0"]).len(), 1, "{log:#?}");
    }
}

const RSPAMD_LUA: &str = r#"
rspamd_config:register_symbol{ name = 'T_PATTERN', type = 'normal', score = 7.0, callback = function(task)
  local subject = task:get_header('Subject') or ''
  local from = task:get_from('smtp')[1].addr
  if subject:find('pattern') and tostring(task:get_ip()) == '127.0.0.1' and from == 'a@client.test' then
    task:set_milter_reply({
      add_headers = { ['X-Test'] = { value = 'yes', order = 1 } },
      remove_headers = { ['X-Old'] = 0 },
    })
    return true, 1.0
  end
end }
"#;

#[test]
fn rspamd_marks_and_rejects_spam() {
    let Some(program) = needs::program("rspamd") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let lua = write(directory.path(), "rspamd.lua", RSPAMD_LUA);
    let address = free_port();
    let (d, domains) = (directory.path().display(), "/usr/share/rspamd/effective_tld_names.dat");
    let text = format!(
        "options {{ pidfile = \"{d}/pid\"; cache_file = \"{d}/cache\"; hs_cache_dir = \"{d}\"; history_file = \"{d}/h\"; \
         filters = [\"regexp\"]; dns {{ nameserver = [\"127.0.0.1:9\"]; }} local_addrs = [\"10.0.0.0/8\"]; \
         control_socket = \"{d}/control mode=0600\"; url_tld = \"{domains}\"; }}\n\
         logging {{ type = \"file\"; filename = \"{d}/log\"; }}\n\
         worker \"normal\" {{ bind_socket = \"{address}\"; count = 1; }}\n\
         metric \"default\" {{ actions {{ reject = 15; \"add header\" = 6; greylist = 4; }} }}\n\
         lua = \"{lua}\";\n"
    );
    let config = write(directory.path(), "conf", &text);
    let mut command = Command::new(program);
    command.args(["-f", "-i", "-c", &config]);
    let _running = run(&mut command, address);
    let hop = Hop::good();
    let server = filtered(&hop, &[("rspamd", format!("kind = \"rspamd\", address = \"{address}\""))]).start();
    let header = "From: a@client.test\r\nMessage-ID: <1@client.test>\r\nDate: Fri, 27 Nov 2026 03:00:00 +0000\r\n";
    let content = format!("X-Old: 1\r\n{header}Subject: a pattern\r\n\r\nhello\r\n");
    send(&server, "a@client.test", &["b@example.com"], content.as_bytes());
    let text = String::from_utf8_lossy(hop.wait(1)[0].own_content()).into_owned();
    assert_eq!(text, format!("X-Test: yes\r\n{header}Subject: a pattern\r\nX-Spam: Yes\r\n\r\nhello\r\n"));
    let mut client = greeted(server.address());
    client.envelope();
    client.expect("DATA", "354");
    let gtube = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X";
    client.send(format!("{header}Subject: x\r\n\r\n{gtube}\r\n.\r\n").as_bytes());
    assert_eq!(client.reply(), "550 5.7.1 Gtube pattern");
    client.quit();
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["by=rspamd", "tag, score 7.0/15.0"]).len(), 1, "{log:#?}");
}

#[test]
fn postgrey_defers_what_it_does_not_know() {
    let Some(program) = needs::program("postgrey") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_port();
    let mut command = Command::new(program);
    command.args([&format!("--inet={address}"), "--delay=1", "--user=root", "--group=root"]);
    command.arg(format!("--dbdir={}", directory.path().display()));
    let _running = run(&mut command, address);
    let hop = Hop::good();
    let server = filtered(&hop, &[("grey", format!("kind = \"policy\", address = \"{address}\""))]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    let reply = client.command("RCPT TO:<b@example.com>");
    assert!(reply.starts_with("450 4.2.0 ") || reply.starts_with("450 4.7.1 "), "{reply}");
    assert!(reply.contains("Greylisted"), "{reply}");
    // Its clock has whole seconds.
    poll("it is deferred for ever", || {
        pause(Duration::from_millis(200));
        client.command("RCPT TO:<b@example.com>").starts_with("250 2.1.5").then_some(())
    });
    client.data(b"Subject: x\r\n\r\nhello\r\n");
    client.quit();
    let text = hop.wait(1)[0].text();
    assert!(text.contains("\r\nX-Greylist: delayed "), "{text}");
    let log = ends_empty(server).log;
    assert!(!lines(&log, &["screen=defer", "by=grey", "Greylisted"]).is_empty(), "{log:#?}");
}

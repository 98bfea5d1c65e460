//! A server with the files of a case: `case.toml` as mailrace's configuration.

use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::harness::Setup;
use testkit::oracle::corpus::Case;

/// Where sendmail finds the files of a case.
const THEIR_DIRECTORY: &str = "/etc/mail/";
/// Where sendmail finds the homes of its users.
const THEIR_HOMES: &str = "/run/home/";

/// The configuration for a case, and the words of its `case.toml` that mailrace has none for.
pub(crate) struct Setting {
    pub(crate) setup: Setup,
    pub(crate) without: Vec<String>,
    /// Names include the names below.
    is_entire: bool,
}

/// Makes the files and the configuration. `names` is the address of a DNS server that knows the zone of the case.
pub(crate) fn setting(case: &Case, names: &str) -> Setting {
    let mut setup = Setup::new();
    let etc = setup.path("etc");
    copy(&case.dir, &etc, &etc);
    let accounts = accounts(&setup, &etc);
    setup = setup
        .set("hostname", quoted("oracle.example"))
        .set("listen", "[{address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.0/8\"]}]")
        .set("maps.directory", quoted(&etc.display().to_string()))
        .set("local.accounts", quoted(&accounts.display().to_string()))
        .set("dns.servers", format!("[{}]", quoted(names)))
        .set("dns.ignored_addresses", "[]")
        .set("accept.reverse_dns", "true")
        // Hundreds of connections of one client in a second.
        .set("accept.exempt", "[\"0.0.0.0/0\", \"::/0\"]")
        // These are sendmail's defaults.
        .set("relay.from", "[\"127.0.0.1\", \"::1\"]")
        .set("access.blocklist_recipients", "false")
        .set("generics.envelope", "false")
        .set("generics.exposed_users", "[]");
    let is_entire = case.options.contains_key("masquerade_entire_domain");
    let mut setting = Setting { setup, without: Vec::new(), is_entire };
    for (word, value) in &case.options {
        setting.say(word, value);
    }
    setting
}

impl Setting {
    /// Adds one word of `case.toml`.
    fn say(&mut self, word: &str, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        let etc = self.setup.path("etc");
        let set = |setting: &mut Self, key: &str, value: String| {
            let setup = std::mem::replace(&mut setting.setup, Setup::new());
            setting.setup = setup.set(key, value);
        };
        match word {
            // Settings for people, and behaviour that mailrace has anyway.
            "about" | "accept_unresolvable_domains" | "always_add_domain" => {}
            // Where the oracle lets its mail go.
            "mc" if text.starts_with("define(`SMTP8_MAILER_ARGS'") => {}
            "blocklist_recipients" => set(self, "access.blocklist_recipients", "true".to_owned()),
            "delay_checks" => set(self, "access.delay_checks", quoted(if text.is_empty() { "yes" } else { text })),
            "access" => {
                for feature in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    match feature {
                        "lookupdotdomain" => set(self, "access.lookup_dot_domain", "true".to_owned()),
                        "relaytofulladdress" => set(self, "access.relay_to_full_address", "true".to_owned()),
                        // SKIP needs no word.
                        "skip" => {}
                        other => self.without.push(other.to_owned()),
                    }
                }
            }
            "relay_hosts_only" => set(self, "access.relay_hosts_only", "true".to_owned()),
            "relay_mail_from" | "relay_mail_from_domain" => set(self, "access.relay_mail_from", "true".to_owned()),
            "relay_entire_domain" => set(self, "relay.to", "[\".example\"]".to_owned()),
            "promiscuous_relay" => set(self, "relay.from", "[\"0.0.0.0/0\", \"::/0\"]".to_owned()),
            "smart_host" => set(self, "route.smart_host", hosts(text)),
            "luser_relay" => set(self, "local.luser_relay", quoted(text)),
            "generics_entire_domain" => {
                let names = fs::read_to_string(etc.join("generics-domains")).unwrap_or_default();
                let names: Vec<String> = names.lines().map(|name| quoted(&format!(".{name}"))).collect();
                set(self, "generics.domains", format!("[{}]", names.join(", ")));
            }
            "masquerade_as" => set(self, "generics.masquerade", quoted(text)),
            "masquerade_envelope" => set(self, "generics.envelope", "true".to_owned()),
            "masquerade_domain" => {
                let domains = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                let dot = if self.is_entire { "." } else { "" };
                let domains: Vec<String> = domains.map(|name| quoted(&format!("{dot}{name}"))).collect();
                set(self, "generics.masquerade_domains", format!("[{}]", domains.join(", ")));
            }
            "masquerade_entire_domain" => {}
            "exposed_user" => set(self, "generics.exposed_users", format!("[{}]", quoted(text))),
            "limited_masquerade" => set(self, "generics.masquerade_limited", "true".to_owned()),
            "allmasquerade" => set(self, "generics.recipients", "true".to_owned()),
            other => self.without.push(other.to_owned()),
        }
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// `esmtp:[a]:[b]` as `route.smart_host` has it.
fn hosts(text: &str) -> String {
    let hosts = text.split_once(":[").map_or_else(|| text.to_owned(), |(_, rest)| format!("[{rest}"));
    let hosts: Vec<String> = hosts.split("]:[").map(|host| quoted(host.trim_matches(['[', ']']))).collect();
    format!("[{}]", hosts.join(", "))
}

/// Copies files; names of sendmail's directories in them become those of the copies.
fn copy(from: &Path, to: &Path, etc: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let inside = |directory: &str| format!("{}/", etc.join(directory).display());
    for entry in fs::read_dir(from).expect("a case") {
        let entry = entry.expect("a directory entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &target, etc);
            continue;
        }
        let text = fs::read_to_string(entry.path()).expect("a text");
        fs::write(target, text.replace(THEIR_DIRECTORY, &inside("")).replace(THEIR_HOMES, &inside("home")))
            .expect("written");
    }
}

/// A file as /etc/passwd: the system users of every machine, and the users of the case.
fn accounts(setup: &Setup, etc: &Path) -> PathBuf {
    let mut text = String::from(
        "root:x:0:0:root:/root:/bin/sh\n\
         daemon:x:1:1:daemon:/nonexistent:/usr/sbin/nologin\n\
         mail:x:8:8:mail:/nonexistent:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    );
    // Files of aliases may name programs if their owner has an account, which is the user that runs this.
    let own = rustix::process::getuid().as_raw();
    if own != 0 {
        writeln!(text, "tester:x:{own}:100:tester:/nonexistent:/bin/sh").expect("a string takes everything");
    }
    let users = fs::read_to_string(etc.join("users")).unwrap_or_default();
    for (position, user) in users.lines().filter(|line| !line.is_empty()).enumerate() {
        let home = etc.join("home").join(user);
        fs::create_dir_all(&home).expect("a home");
        writeln!(text, "{user}:x:{}:100:{user}:{}:/bin/sh", 1_000 + position, home.display())
            .expect("a string takes everything");
    }
    let path = setup.path("passwd");
    fs::write(&path, text).expect("written");
    path
}

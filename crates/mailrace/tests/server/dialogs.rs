//! The dialog files of `smtp`, played over TCP to the running server, and the spool compared with them.
//!
//! Left out are steps that cannot be set up from outside: verdicts laid down in the file, limits below those that the
//! configuration allows, the passing of minutes.

use crate::tls::with_certificate;
use server::auth::{Scheme, hash_password};
use smtp::dialog::{Dialog, DialogStep, fits};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use testkit::client::{Client, connect, tls};
use testkit::harness::{SOON, Server, Setup};

/// The expected content of an accepted message, if the dialog says it.
type Accepted = BTreeMap<String, Option<Vec<u8>>>;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The key and value of the configuration, `None` where there is none, `Err` where the value is out of range there.
fn setting(name: &str, value: &str) -> Result<Option<(&'static str, String)>, ()> {
    let flag = || (value == "yes").to_string();
    let at_least = |min: u64| match value.parse::<u64>() {
        Ok(number) if number >= min => Ok(value.to_owned()),
        _ => Err(()),
    };
    Ok(Some(match name {
        "bare_newline" => ("smtp.bare_newline", format!("{value:?}")),
        "forgiving" => ("smtp.forgiving", format!("{value:?}")),
        "verify" => ("smtp.verify", flag()),
        "auth.mechanisms" => {
            let names: Vec<String> = value.split(' ').map(|name| format!("{name:?}")).collect();
            ("auth.mechanisms", format!("[{}]", names.join(", ")))
        }
        "auth.without_tls" => ("auth.without_tls", flag()),
        "limits.message_bytes" => ("message.size_max", at_least(1_024)?),
        "limits.recipients" => ("message.recipients_max", at_least(1)?),
        "limits.transactions" => ("smtp.transactions_max", at_least(1)?),
        "limits.command_line_bytes" => ("smtp.command_line_bytes_max", at_least(512)?),
        "limits.auth_line_bytes" => ("smtp.auth_line_bytes_max", at_least(512)?),
        "limits.content_line_bytes" => ("message.line_bytes_max", at_least(1)?),
        "limits.header_fields" => ("message.header_fields_max", at_least(1)?),
        "limits.header_bytes" => ("message.header_bytes_max", at_least(1_024)?),
        "limits.hops" => ("message.hops_max", at_least(1)?),
        "limits.errors" => ("smtp.errors_max", at_least(1)?),
        "limits.refused_recipients" => ("smtp.refused_recipients_max", at_least(1)?),
        "limits.idle_commands" => ("smtp.idle_commands_max", at_least(1)?),
        // Together they are one key, see `extensions`.
        "deliver_by" if value != "0s" => return Err(()),
        "mt_priority" | "deliver_by" => return Ok(None),
        "future_release" => ("message.hold_max", format!("{value:?}")),
        // Settings of the listener, and steps that the wire does not show.
        "dialect" if value == "stdin" => return Err(()),
        "dialect" | "starttls" | "tls_required" | "auth.required" | "limits.content_piece_bytes" => return Ok(None),
        _ => return Err(()),
    }))
}

fn value<'a>(dialog: &'a Dialog, name: &str) -> Option<&'a str> {
    dialog.sets.iter().find(|(_, set, _)| set == name).map(|(_, _, value)| value.as_str())
}

fn has(dialog: &Dialog, step: &DialogStep) -> bool {
    dialog.steps.iter().any(|(_, other)| other == step)
}

/// The server that a dialog wants, or `None` where it cannot be had.
fn setup(dialog: &Dialog) -> Option<Setup> {
    let is_out_of_reach =
        |step: &DialogStep| matches!(step, DialogStep::Wait(_) | DialogStep::Pause | DialogStep::ShutDown);
    if !dialog.rules.is_empty() || dialog.steps.iter().any(|(_, step)| is_out_of_reach(step)) {
        return None;
    }
    let mut setup = Setup::new().set("smtp.forgiving", "\"none\"").set("smtp.bare_newline", "\"reject\"");
    // A dialog about own clients says whether its client is one; all others need the right to relay.
    let tells_own = dialog.sets.iter().any(|(_, _, value)| value == "own");
    setup = if tells_own && !has(dialog, &DialogStep::TrustClient) {
        setup.set("relay.from", "[]").set("relay.to", "[\"d.test\"]")
    } else {
        setup.set("relay.from", "[\"192.0.2.0/24\"]")
    };
    setup = setup.set("spool.size_max", "\"128MiB\"").set("message.size_max", "\"50MiB\"");
    for (_, name, value) in &dialog.sets {
        if let Some((key, value)) = setting(name, value).ok()? {
            setup = setup.set(key, value);
        }
    }
    let offered = [("mt_priority", "MT-PRIORITY"), ("deliver_by", "DELIVERBY"), ("future_release", "FUTURERELEASE")];
    let offered = offered.iter().filter(|(name, _)| value(dialog, name).is_some_and(|value| value != "no"));
    let offered: Vec<String> = offered.map(|(_, extension)| format!("{extension:?}")).collect();
    setup = setup.set("smtp.extensions", format!("[{}]", offered.join(", ")));
    let is = |name| value(dialog, name) == Some("yes");
    let protocol = value(dialog, "dialect").unwrap_or("smtp");
    let entry = format!(
        "protocol = \"{protocol}\", proxy_protocol = [\"127.0.0.1\"], auth_required = {}, tls_required = {}",
        is("auth.required"),
        is("tls_required")
    );
    setup = setup.listen(&entry);
    if is("starttls") || is("tls_required") {
        setup = with_certificate(setup);
    }
    if value(dialog, "auth.mechanisms").is_some() {
        let path = setup.path("users");
        let line = |(name, password): &(String, String)| {
            format!("{name}:{}\n", hash_password(password, Scheme::ScramSha256).expect("a hash"))
        };
        // Without a user with such keys SCRAM is not offered.
        let somebody = [("somebody".to_owned(), "secret".to_owned())];
        let lines: String = somebody.iter().chain(&dialog.users).map(line).collect();
        std::fs::write(&path, lines).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        setup = setup.set("auth.file", format!("{path:?}"));
    }
    if has(dialog, &DialogStep::TrustXclient) {
        setup = setup.set("accept.xclient", "[\"192.0.2.1\"]");
    }
    Some(setup)
}

struct Player<'a> {
    client: Client<Box<dyn Stream>>,
    raw: TcpStream,
    certificate: &'a Path,
    pending: Vec<u8>,
    /// The ids of accepted messages, oldest first.
    ids: Vec<String>,
    accepted: &'a mut Accepted,
}

impl Player<'_> {
    fn play(&mut self, step: &DialogStep) -> Result<(), String> {
        if let DialogStep::Send(bytes) = step {
            self.pending.extend_from_slice(bytes);
            return Ok(());
        }
        let input = std::mem::take(&mut self.pending);
        if !input.is_empty() {
            self.client.send(&input);
        }
        match step {
            DialogStep::Expect(pattern) => return self.expect(pattern),
            DialogStep::Tls => {
                let raw = self.raw.try_clone().expect("open");
                self.client = Client::over(Box::new(tls(raw, self.certificate).stream));
            }
            DialogStep::Closed => {
                if let Some(line) = self.client.line() {
                    return Err(format!("instead of closing it said: {line}"));
                }
            }
            DialogStep::Stored(count) if self.ids.len() != *count => {
                return Err(format!("accepted are {:?}", self.ids));
            }
            DialogStep::Content(content) => {
                let last = self.ids.last().ok_or("nothing is accepted")?;
                self.accepted.insert(last.clone(), Some(content.clone()));
            }
            _ => {}
        }
        Ok(())
    }

    fn expect(&mut self, pattern: &str) -> Result<(), String> {
        let Some(mut line) = self.client.line() else { return Err("the server has closed".to_owned()) };
        let id = line.strip_prefix("250 2.0.0 ").and_then(|rest| rest.strip_suffix(" Message accepted for delivery"));
        if let Some(id) = id.map(str::to_owned) {
            // The reply has the queue id, which dialogs cannot know.
            line = "250 2.0.0 Message accepted for delivery".to_owned();
            if self.ids.last() != Some(&id) {
                self.accepted.entry(id.clone()).or_default();
                self.ids.push(id);
            }
        }
        if fits(pattern, &line) { Ok(()) } else { Err(format!("the server said: {line}")) }
    }
}

fn play(dialog: &Dialog, server: &Server, accepted: &mut Accepted) -> Result<(), String> {
    let mut plain = connect(server.address());
    plain.send(b"PROXY TCP4 192.0.2.1 192.0.2.9 1025 25\r\n");
    // A short limit for a server that sends too little; none for one that sends the expected reply.
    plain.stream.set_read_timeout(Some(SOON)).expect("set");
    let raw = plain.stream.try_clone().expect("open");
    let certificate = server.setup.path("certificate.pem");
    let client = Client::over(Box::new(plain.stream) as Box<dyn Stream>);
    let mut player = Player { client, raw, certificate: &certificate, pending: Vec::new(), ids: Vec::new(), accepted };
    for (number, step) in &dialog.steps {
        player.play(step).map_err(|why| format!("line {number}: {step:?}: {why}"))?;
    }
    if !player.pending.is_empty() {
        player.client.send(&std::mem::take(&mut player.pending));
    }
    drop(player.raw.shutdown(std::net::Shutdown::Write));
    match player.client.line() {
        None => Ok(()),
        Some(line) => Err(format!("at the end it said: {line}")),
    }
}

#[test]
fn dialogs_over_tcp() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../smtp/tests/dialogs");
    let mut groups: BTreeMap<String, Vec<(String, Dialog)>> = BTreeMap::new();
    let mut played = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let dialog = Dialog::parse(&testkit::harness::read(&path)).expect("a dialog");
        let sets: Vec<_> = dialog.sets.iter().map(|(_, name, value)| (name, value)).collect();
        let machine = [DialogStep::TrustXclient, DialogStep::TrustClient].map(|step| has(&dialog, &step));
        groups.entry(format!("{sets:?} {:?} {machine:?}", dialog.users)).or_default().push((name, dialog));
    }
    let mut failures = Vec::new();
    for dialogs in groups.into_values() {
        let dialogs: Vec<_> = dialogs.into_iter().filter(|(_, dialog)| setup(dialog).is_some()).collect();
        let Some(server) = dialogs.first().and_then(|(_, dialog)| setup(dialog)).map(Setup::start) else { continue };
        let mut accepted = Accepted::new();
        for (name, dialog) in &dialogs {
            played += 1;
            if let Err(why) = play(dialog, &server, &mut accepted) {
                failures.push(format!("{name}: {why}"));
            }
        }
        let letters = server.letters_after_kill();
        let names: Vec<String> = letters.iter().map(|letter| letter.id.to_string()).collect();
        let mut said: Vec<String> = accepted.keys().cloned().collect();
        said.sort_by_key(|id| names.iter().position(|name| name == id));
        if names != said {
            failures.push(format!("{:?}: accepted {said:?}, stored {names:?}", dialogs.first().map(|(name, _)| name)));
        }
        for letter in &letters {
            if let Some(Some(content)) = accepted.get(&letter.id.to_string())
                && letter.own_content() != content
            {
                failures.push(format!("{}: stored is {}", letter.id, letter.content.escape_ascii()));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(played >= 45, "only {played} dialogs could be played");
}

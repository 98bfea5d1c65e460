//! `mailrace dkim`: makes keys for signatures, prints their DNS records, and compares the records in the DNS with the
//! keys.

mod verify;

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use filter::dkim::key_record::{RecordState, compare, record_name, record_text, strings, zone_line};
use mail::DomainName;
use serde_json::json;
use server::config::{Config, DkimKey, Dns, render};
use server::dns::Resolver;
use server::signing::{NewKey, PrivateKey};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
A new key: generate it, publish the record that is printed, wait until \"mailrace dkim check\" finds it, and name the
key in [[dkim.key]].

Examples:
  mailrace dkim generate --domain example.com --selector s2026 --out /etc/mailrace/dkim/s2026.pem
  mailrace dkim dns --domain example.com --selector s2026 /etc/mailrace/dkim/s2026.pem
  mailrace dkim check
  mailrace dkim verify --client 192.0.2.1 --helo mx.example.com --sender a@example.com message.eml

Exit status:
   0  done; every key that signs is in the DNS
  64  wrong arguments
  65  the DNS has no record for a key that signs, or another one
  73  the file of a new key is there already, or cannot be written
  74  reading or writing failed
  75  the DNS gives no answer now
  78  the configuration or a key has an error";

/// A process that can read a key signs in the name of the domain: only owner and group may.
const KEY_MODE: u32 = 0o640;

#[derive(Debug, Subcommand)]
pub(crate) enum DkimCommand {
    /// Make a key, write it to a file, and print its DNS record
    Generate(GenerateArguments),
    /// Print the DNS record of a key, as a line of a zone file
    Dns(DnsArguments),
    /// Compare the keys of the configuration with their DNS records
    Check(DkimCheckArguments),
    /// Verify the signatures of messages, with SPF and DMARC
    Verify(verify::VerifyArguments),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Domain whose mail is signed
    #[arg(long)]
    domain: String,
    /// Name of the key in the DNS: SELECTOR._domainkey.DOMAIN
    #[arg(long)]
    selector: String,
    /// File for the private key; it must not be there
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Kind of key; few verifiers know ed25519 so far
    #[arg(long, value_enum, default_value_t)]
    algorithm: KeyAlgorithm,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum KeyAlgorithm {
    #[default]
    Rsa2048,
    Ed25519,
}

#[derive(Debug, Args)]
pub(crate) struct DnsArguments {
    /// File with the private key
    file: PathBuf,
    /// Domain whose mail is signed; without, as the configuration names the file
    #[arg(long, requires = "selector")]
    domain: Option<String>,
    /// Name of the key in the DNS; without, as the configuration names the file
    #[arg(long, requires = "domain")]
    selector: Option<String>,
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DkimCheckArguments {
    #[command(flatten)]
    source: Source,
    /// Print JSON, one line for each key
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace dkim`.
pub(crate) fn run(command: DkimCommand) -> Result<Exit, Failure> {
    match command {
        DkimCommand::Generate(arguments) => generate(&arguments),
        DkimCommand::Dns(arguments) => dns(&arguments),
        DkimCommand::Check(arguments) => check(&arguments),
        DkimCommand::Verify(arguments) => verify::run(&arguments),
    }
}

fn domain(text: &str) -> Result<DomainName, Failure> {
    DomainName::new(text).map_err(|error| Failure::new(Exit::Usage, format!("--domain: {error}")))
}

fn generate(arguments: &GenerateArguments) -> Result<Exit, Failure> {
    let domain = domain(&arguments.domain)?;
    let name = record_name(&arguments.selector, domain.ascii());
    DomainName::new(&name.replace("_domainkey", "domainkey"))
        .map_err(|error| Failure::new(Exit::Usage, format!("--selector \"{}\": {error}", arguments.selector)))?;
    let kind = match arguments.algorithm {
        KeyAlgorithm::Rsa2048 => NewKey::Rsa2048,
        KeyAlgorithm::Ed25519 => NewKey::Ed25519,
    };
    let failed = |error: server::signing::GenerateError| Failure::new(Exit::Io, error.to_string());
    let key = PrivateKey::generate(kind).map_err(failed)?;
    let pem = key.to_pem().map_err(failed)?;
    write_new(&arguments.out, pem.as_bytes())?;
    let record = Record::of(&key, &arguments.selector, domain.ascii())?;
    let mut output = Output::new();
    record.print(&mut output, arguments.json, &arguments.out);
    output.finish()?;
    Ok(Exit::Ok)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, octets: &[u8]) -> Result<(), Failure> {
    let refuse = |error: io::Error| {
        let hint =
            if error.kind() == io::ErrorKind::AlreadyExists { "; name a new file, or move the old one" } else { "" };
        let why = os::error::words(&error);
        Failure::new(Exit::CannotCreate, format!("{}: the key cannot be written: {why}{hint}", path.display()))
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(KEY_MODE).open(path).map_err(refuse)?;
    file.write_all(octets).and_then(|()| file.sync_all()).map_err(refuse)
}

/// The DNS record of a key.
struct Record {
    name: String,
    text: String,
}

impl Record {
    fn of(key: &PrivateKey, selector: &str, domain: &str) -> Result<Self, Failure> {
        let public = key.public_text().map_err(|error| Failure::new(Exit::Io, error.to_string()))?;
        Ok(Self { name: record_name(selector, domain), text: record_text(key.algorithm(), &public) })
    }

    fn print(&self, output: &mut Output, is_json: bool, file: &Path) {
        if is_json {
            let strings: Vec<&str> = strings(&self.text).collect();
            let file = file.display().to_string();
            output.print_json(
                &json!({"file": file, "name": self.name, "type": "TXT", "text": self.text, "strings": strings}),
            );
        } else {
            output.print_line(zone_line(&self.name, &self.text));
        }
    }
}

fn dns(arguments: &DnsArguments) -> Result<Exit, Failure> {
    let key = PrivateKey::read(&arguments.file).map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    let mut output = Output::new();
    match (&arguments.domain, &arguments.selector) {
        (Some(name), Some(selector)) => {
            Record::of(&key, selector, domain(name)?.ascii())?.print(&mut output, arguments.json, &arguments.file);
        }
        _ => {
            let keys = keys_of(&arguments.source)?.0;
            let is_it = |one: &&DkimKey| {
                one.file == arguments.file
                    || one.file.canonicalize().ok().is_some_and(|it| Some(it) == arguments.file.canonicalize().ok())
            };
            let named: Vec<&DkimKey> = keys.iter().filter(is_it).collect();
            if named.is_empty() {
                let text = format!(
                    "{}: no [[dkim.key]] of the configuration names it; give --domain and --selector",
                    arguments.file.display()
                );
                return Err(Failure::new(Exit::Usage, text));
            }
            for one in named {
                let record = Record::of(&key, &one.selector, one.domain.ascii())?;
                record.print(&mut output, arguments.json, &arguments.file);
            }
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns the keys of the configuration, and how names are looked up.
fn keys_of(source: &Source) -> Result<(Vec<DkimKey>, Dns), Failure> {
    let config = config_of(source)?;
    Ok((config.dkim.keys, config.dns))
}

/// Returns the name of this host, and how names are looked up.
fn settings_of(source: &Source) -> Result<(String, Dns), Failure> {
    let config = config_of(source)?;
    Ok((config.hostname, config.dns))
}

fn config_of(source: &Source) -> Result<Config, Failure> {
    match source.open()? {
        Ok(loaded) => Ok(loaded.config),
        Err(problems) => {
            eprint!("{}", render(&problems));
            Err(Failure::new(Exit::Config, "the configuration has errors; correct them first"))
        }
    }
}

/// Makes a resolver, and what drives it.
fn resolver(settings: &Dns) -> Result<(tokio::runtime::Runtime, Resolver), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the runtime", &error))?;
    let resolver = {
        let _inside = runtime.enter();
        Resolver::new(settings).map_err(|error| Failure::new(Exit::Config, error.to_string()))?
    };
    Ok((runtime, resolver))
}

fn check(arguments: &DkimCheckArguments) -> Result<Exit, Failure> {
    let (keys, settings) = keys_of(&arguments.source)?;
    let (runtime, resolver) = resolver(&settings)?;
    let (mut output, mut exit) = (Output::new(), Exit::Ok);
    if keys.is_empty() && !arguments.json {
        output.print_line("no [[dkim.key]] in the configuration: nothing is signed");
    }
    for one in &keys {
        let found = check_key(one, |name| runtime.block_on(resolver.texts(name)).map_err(|error| error.to_string()));
        // A key that signs nothing need not be in the DNS.
        if (one.sign || found.exit == Exit::Config) && severity(found.exit) > severity(exit) {
            exit = found.exit;
        }
        let name = record_name(&one.selector, one.domain.ascii());
        if arguments.json {
            let file = one.file.display().to_string();
            let CheckedKey { state, text, algorithm, bits, .. } = &found;
            output.print_json(&json!({
                "name": name, "file": file, "sign": one.sign, "algorithm": algorithm, "bits": bits,
                "state": state, "text": text,
            }));
        } else {
            let use_ = if one.sign { "" } else { " (does not sign)" };
            output.print_line(format!("{name}{use_}: {}", found.text));
        }
    }
    output.finish()?;
    Ok(exit)
}

/// Returns the order in which the status of one key hides that of another.
const fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Config => 3,
        Exit::Damaged => 2,
        Exit::TryLater => 1,
        _ => 0,
    }
}

/// The result for one key.
struct CheckedKey {
    /// A word for programs.
    state: &'static str,
    text: String,
    algorithm: &'static str,
    bits: usize,
    exit: Exit,
}

fn check_key(one: &DkimKey, ask: impl FnOnce(&str) -> Result<Vec<String>, String>) -> CheckedKey {
    let unread = |text: String| CheckedKey { state: "unreadable", text, algorithm: "", bits: 0, exit: Exit::Config };
    let key = match PrivateKey::read(&one.file) {
        Ok(key) => key,
        Err(error) => return unread(error.to_string()),
    };
    let public = match key.public_text() {
        Ok(public) => public,
        Err(error) => return unread(format!("{}: {error}", one.file.display())),
    };
    let (algorithm, bits) = (key.algorithm().key_type(), key.bits());
    let result = |state, exit, text: String| CheckedKey { state, text, algorithm, bits, exit };
    let records = match ask(&record_name(&one.selector, one.domain.ascii())) {
        Ok(records) => records,
        Err(why) => return result("unknown", Exit::TryLater, format!("{why}; try again later")),
    };
    let publish = format!("publish what \"mailrace dkim dns {}\" prints", one.file.display());
    match compare(&records, key.algorithm(), &public) {
        RecordState::Matches => result("ok", Exit::Ok, format!("ok, {algorithm} of {bits} bits")),
        RecordState::Missing => result("missing", Exit::Damaged, format!("no record in the DNS; {publish}")),
        RecordState::Several => {
            result("several", Exit::Damaged, "several key records, of which verifiers take any; leave one".to_owned())
        }
        RecordState::Revoked => result("revoked", Exit::Damaged, format!("the record revokes the key; {publish}")),
        RecordState::Differs(why) => result(
            "differs",
            Exit::Damaged,
            format!("the record is not that of {}: {why}; {publish}", one.file.display()),
        ),
        RecordState::Broken => result("broken", Exit::Damaged, format!("the record cannot be read; {publish}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_record_has_a_word_and_a_next_step() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("key.pem");
        let key = PrivateKey::generate(NewKey::Ed25519).unwrap();
        write_new(&file, key.to_pem().unwrap().as_bytes()).unwrap();
        assert!(write_new(&file, b"").is_err(), "a key is never written over");
        let public = key.public_text().unwrap();
        let domain = DomainName::new("example.org").unwrap();
        let one = DkimKey { domain, selector: "s".to_owned(), file, sign: true };
        let right = record_text(key.algorithm(), &public);
        let other = record_text(key.algorithm(), &public.replace(&public[..4], "AAAA"));
        for (records, state, exit) in [
            (Ok(vec![right.clone()]), "ok", Exit::Ok),
            (Ok(vec![]), "missing", Exit::Damaged),
            (Ok(vec![right.clone(), right]), "several", Exit::Damaged),
            (Ok(vec![other]), "differs", Exit::Damaged),
            (Ok(vec!["v=DKIM1; k=ed25519; p=".to_owned()]), "revoked", Exit::Damaged),
            (Err("no answer".to_owned()), "unknown", Exit::TryLater),
        ] {
            let found = check_key(&one, |name| {
                assert_eq!(name, "s._domainkey.example.org");
                records
            });
            assert_eq!((found.state, found.exit), (state, exit), "{}", found.text);
        }
        let gone = DkimKey { file: place.path().join("none"), ..one };
        assert_eq!(check_key(&gone, |_| Ok(Vec::new())).state, "unreadable");
    }
}

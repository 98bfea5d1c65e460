//! `-bt`: questions about maps, names and routes, one a line, as in sendmail's test mode. There are no rulesets here: a
//! question for one gets the decision itself.

use super::exit;
use super::site::Site;
use super::verify::{as_given, open_explainer, verify};
use mail::DomainName;
use route::map::{MapFile, Table};
use server::config::{Config, MapSource};
use server::dns::{Family, LocalIdentity, Resolver};
use server::explain::aliases::AliasLintContext;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

const HELP: &str = "\
?                this text
3,0 ADDRESS      where mail for an address goes (any ruleset: the decision is the same)
/parse ADDRESS   the same
/try MAILER ADDRESS   the address as a mailer gets it
/mx DOMAIN       the hosts that take mail for a domain
/map NAME KEY    the value of a key: aliases, access, mailertable, virtusertable, genericstable, domaintable, smarttable
$=w              names of this host
/quit            the end
";

/// Answers until the input ends; the exit status.
pub(super) fn run(site: &Site) -> u8 {
    super::say(format_args!(
        "ADDRESS TEST MODE (there are no rulesets: the decision is shown)\nEnter <ruleset> <address>\n"
    ));
    for line in io::stdin().lock().lines() {
        super::say(format_args!("> "));
        let Ok(line) = line else { break };
        match answer(&line, site) {
            Some(text) => super::say(format_args!("{text}")),
            None => break,
        }
        if io::stdout().flush().is_err() {
            break;
        }
    }
    super::say(
        "
",
    );
    exit::OK
}

/// The answer to a line; `None` ends it.
fn answer(line: &str, site: &Site) -> Option<String> {
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let text = match (first, rest.as_slice()) {
        ("", _) => String::new(),
        ("/quit", _) => return None,
        ("?" | "/help", _) => HELP.to_owned(),
        ("/mx", [domain]) => mx(domain, site),
        ("/map", [name, key @ ..]) if !key.is_empty() => map(name, &key.join(" "), &site.config),
        ("/parse", [_, ..]) => route(&rest.join(" "), site),
        ("/try", [mailer, _, ..]) => tried(mailer, &rest.get(1..).unwrap_or_default().join(" "), site),
        ("/tryflags" | "/canon", _) => {
            "nothing is rewritten here: addresses go as they are, with a domain\n".to_owned()
        }
        ("$=w" | "$=W", _) => format!("{}\nlocalhost\n", site.host),
        (class, _) if class.starts_with("$=") => {
            format!("{class}: there are no classes here but w; \"mailrace config show\" has what is configured\n")
        }
        (ruleset, _) if ruleset.starts_with("=S") || ruleset.starts_with("=M") => {
            format!(
                "{ruleset}: there are no rulesets and mailers to show; \"mailrace config show route\" has the rules, 3,0 ADDRESS the decision\n"
            )
        }
        (macro_name, _) if macro_name.starts_with('$') => match macro_name {
            "$j" | "$w" => format!("{}\n", site.host),
            _ => format!(
                "{macro_name}: there are no macros here but $j; \"mailrace config show\" has what is configured\n"
            ),
        },
        (command, _) if command.starts_with(['/', '-', '.', '=']) => {
            format!("Undefined test mode command {command}; ? lists them\n")
        }
        (rulesets, [_, ..])
            if rulesets.split(',').all(|one| one.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) =>
        {
            route(&rest.join(" "), site)
        }
        _ => "No address! Enter <ruleset> <address>; ? lists commands\n".to_owned(),
    };
    Some(text)
}

/// In the words of sendmail's last line of a parse.
fn route(text: &str, site: &Site) -> String {
    let addresses = match mail::submission::named(text, &site.host) {
        Ok(addresses) => addresses,
        Err(error) => return format!("{text}... {error}\n"),
    };
    let mut out = String::new();
    for address in addresses {
        let lines = open_explainer(site).and_then(|explainer| verify(&address, site, &explainer));
        for line in lines.unwrap_or_else(|(_, line)| vec![line]) {
            let line = line.split_once("... deliverable: ").map_or(&*line, |(_, place)| place);
            writeln!(out, "{}: {line}", as_given(&address, site)).expect("a string takes everything");
        }
    }
    out
}

fn tried(mailer: &str, text: &str, site: &Site) -> String {
    match mail::submission::named(text, &site.host) {
        Ok(addresses) => {
            let lines = addresses.iter().map(|address| {
                format!("Trying envelope recipient address {text} for mailer {mailer}\nRcode = 0, addr = {address}\n")
            });
            lines.collect()
        }
        Err(error) => format!("{text}... {error}\n"),
    }
}

fn mx(domain: &str, site: &Site) -> String {
    let Ok(name) = DomainName::new(domain) else { return format!("getmxrr({domain}): not a domain\n") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let _in = runtime.enter();
        let resolver = Resolver::new(&site.config.dns).map_err(|error| error.to_string())?;
        let us = LocalIdentity { names: Vec::new(), listeners: Vec::new(), addresses: Vec::new() };
        let asked = resolver.mail_hosts(&name, site.config.route.port, &us, Family::Any, 0);
        runtime.block_on(asked).map_err(|none| none.text)
    });
    match asked {
        Ok(found) => {
            let mut out = format!("getmxrr({domain}) returns {} value(s):\n", found.hosts.len());
            for host in &found.hosts {
                writeln!(out, "\t{} (preference {})", host.name, host.preference).expect("a string takes everything");
            }
            out
        }
        Err(why) => format!("getmxrr({domain}) returns 0 value(s): {why}\n"),
    }
}

fn map(name: &str, key: &str, config: &Config) -> String {
    let maps = &config.maps;
    let sources = match name {
        "aliases" => &maps.aliases,
        "access" => &maps.access,
        "mailertable" => &maps.mailertable,
        "virtusertable" | "virtuser" => &maps.virtusertable,
        "genericstable" | "generics" => &maps.genericstable,
        "domaintable" => &maps.domaintable,
        "smarttable" => &maps.smarttable,
        _ => return format!("Map named \"{name}\" not found\n"),
    };
    for source in sources {
        let MapSource::File(path) = source else {
            return format!("map_lookup: {name} ({key}): {source} is asked by the server alone\n");
        };
        match look_up(name, path, key, config) {
            Ok(Some(value)) => return format!("map_lookup: {name} ({key}) returns {value} (0)\n"),
            Ok(None) => {}
            Err(why) => return format!("map_lookup: {name} ({key}): {why}\n"),
        }
    }
    format!("map_lookup: {name} ({key}) no match (0)\n")
}

fn look_up(name: &str, path: &Path, key: &str, config: &Config) -> Result<Option<String>, String> {
    let file = path.display().to_string();
    if name == route::alias::NAME {
        let read = AliasLintContext::new(config).read(path).map_err(|error| format!("{file}: {error}"))?;
        return Ok(read.table.get(key).map(|hit| hit.value.to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("{file}: {error}"))?;
    let loaded = Table::read(MapFile { name, file: &file, bytes, fold: true }).map_err(|error| error.to_string())?;
    Ok(loaded.table.get(key).map(|hit| hit.value.to_owned()))
}

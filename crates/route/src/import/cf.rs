//! The lines of a `.cf` file: options, classes, macros, maps. Of rules only those of masquerading are known, and a note
//! says so.

use super::ldap_statements::LdapRoutingStatement;
use super::settings::{ImportedSettings, Listener};
use super::values::domain;
use super::{ldap, maps, mc, options};

/// Reads a file.
pub(super) fn read(settings: &mut ImportedSettings<'_>, text: &str) {
    for (line, text) in logical(text) {
        statement(settings, &text, line);
    }
    settings.note(
        super::Weight::Differs,
        0,
        "rules",
        "lines S and R are not read but for masquerading, and features that are made of them (delay_checks, relay_hosts_only, \
         blocklist_recipients, dnsbl with its texts) are not seen",
        "import sendmail.mc instead, if it is still there",
    );
    if settings.listeners.is_empty() {
        let (address, name) = (":25".to_owned(), Some("MTA".to_owned()));
        settings.listeners.push(Listener { address, name, is_comment: false, is_implicit_tls: false, line: 0 });
    }
    settings.said.has_relay_domains = true;
}

/// Lines with those that go on, and where each begins.
fn logical(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        match lines.last_mut() {
            Some((_, last)) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push((at + 1, line.trim_end().to_owned())),
        }
    }
    lines.retain(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
}

fn statement(settings: &mut ImportedSettings<'_>, text: &str, line: usize) {
    let Some(kind) = text.chars().next() else { return };
    let rest = text.get(kind.len_utf8()..).unwrap_or_default();
    match kind {
        'O' => option(settings, rest, text, line),
        'C' => {
            let (class, words) = name(rest);
            for word in words.split_whitespace().filter(|word| !word.starts_with('$')) {
                class_word(settings, class, word, text, line);
            }
        }
        'F' => class_file(settings, rest, text, line),
        'D' => {
            let (name, value) = name(rest);
            define(settings, name, value.trim(), line);
        }
        'K' => {
            let (name, argument) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            let is_built_in = matches!(
                argument.split_whitespace().next(),
                Some(
                    "host"
                        | "dequote"
                        | "macro"
                        | "arith"
                        | "syslog"
                        | "regex"
                        | "dns"
                        | "null"
                        | "bestmx"
                        | "user"
                        | "sequence"
                )
            );
            let at = ["ldapmh", "ldapmra"].iter().position(|one| *one == name);
            if let (Some(at), Some(spec)) = (at, ldap::of_argument(argument)) {
                if settings.said.ldap.routing.is_none() {
                    let reason = "whether unknown recipients are refused, and what becomes of details, are rules, which are not read";
                    settings.differs(line, text, reason, "set ldap.bounce and ldap.detail");
                }
                let routing = settings
                    .said
                    .ldap
                    .routing
                    .get_or_insert_with(|| LdapRoutingStatement { line, ..LdapRoutingStatement::default() });
                if let Some(own) = routing.specs.get_mut(at) {
                    spec.clone_into(own);
                }
                return;
            }
            if !maps::line(settings, name, argument, line) && !is_built_in {
                settings.missing(line, text, "a map that rules of this file ask", "add it by hand, if a key is for it");
            }
        }
        'M' => {
            // Recipients in headers go by the rules for senders.
            settings.said.all_recipients |= rest.contains("R=EnvToSMTP/HdrFromSMTP");
            let mailer = rest.split([',', ' ']).next().unwrap_or_default();
            let is_usual = matches!(
                mailer,
                "local"
                    | "prog"
                    | "*file*"
                    | "*include*"
                    | "smtp"
                    | "esmtp"
                    | "smtp8"
                    | "dsmtp"
                    | "relay"
                    | "error"
                    | "discard"
            );
            if !is_usual {
                settings.missing(
                    line,
                    text,
                    "there is no such mailer",
                    "mailers are smtp, lmtp, local, error and discard",
                );
            }
        }
        'T' => {
            for user in rest.split_whitespace() {
                settings.trust(user, line);
            }
        }
        'X' => settings.missing(
            line,
            text,
            "milters are not called",
            "let a filter stand before this server, or behind it",
        ),
        'R' => rule(settings, text, line),
        'Q' => mc::queue_group(settings, rest.split([',', ' ']).next().unwrap_or_default(), text, line),
        // Rule sets, headers, versions, priorities, environment.
        'S' | 'H' | 'V' | 'P' | 'E' | 'L' => {}
        _ => settings.missing(line, text, "this line is not known", ""),
    }
}

fn option(settings: &mut ImportedSettings<'_>, rest: &str, text: &str, line: usize) {
    let Some((name, value)) = rest.trim().split_once('=') else {
        return settings.missing(line, text, "options of one letter are not read", "write it as O Name=value");
    };
    let (name, value) = (name.trim(), value.trim());
    match name {
        "DaemonPortOptions" => mc::daemon(settings, value, text, line),
        "ClientPortOptions" => settings.missing(line, text, "where connections come from", "see destination.source"),
        _ => options::of_cf(settings, name, value, line),
    }
}

/// A class or a macro: `w`, which may be written `{w}`, or `{VirtHost}`; and the value behind it.
fn name(rest: &str) -> (&str, &str) {
    let end = match rest.strip_prefix('{').and_then(|rest| rest.find('}')) {
        Some(at) => at + 2,
        None => rest.chars().next().map_or(0, char::len_utf8),
    };
    let (name, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let inner = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
    (inner.filter(|inner| inner.chars().count() == 1).unwrap_or(name), rest)
}

fn class_word(settings: &mut ImportedSettings<'_>, class: &str, word: &str, text: &str, line: usize) {
    let key = match class {
        "w" if word.eq_ignore_ascii_case("localhost") => return,
        "w" => "local.domains",
        "G" => "generics.domains",
        "{VirtHost}" => "relay.to",
        "R" => return mc::relay_domains(settings, word, text, line),
        "t" => return settings.trust(word, line),
        "{LDAPRoute}" => return ldap::domains(settings, word, false, text, line),
        "{LDAPRouteEquiv}" => return ldap::domains(settings, word, true, text, line),
        "M" => "generics.masquerade_domains",
        "N" => return exception(settings, word, text, line),
        "E" => return settings.exposed(word, line),
        // Classes of rules.
        _ => return,
    };
    match domain(word) {
        Some(name) => settings.add(key, name, line),
        // Addresses in class w are those of this machine, which it knows.
        None if class == "w" && word.starts_with('[') => {}
        None => settings.missing(line, text, format!("\"{word}\" is no domain"), &format!("set {key}")),
    }
}

/// Class N, which includes the names below its domains.
fn exception(settings: &mut ImportedSettings<'_>, word: &str, text: &str, line: usize) {
    match domain(word) {
        Some(name) => settings.add("generics.masquerade_exceptions", format!(".{name}"), line),
        None => settings.missing(line, text, format!("\"{word}\" is no domain"), "set generics.masquerade_exceptions"),
    }
}

/// Reads rules that were made from features, and notes the features.
fn rule(settings: &mut ImportedSettings<'_>, text: &str, line: usize) {
    let said = &mut settings.said;
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |part: &str| words.join(" ").contains(part);
    // Ruleset 94 calls ruleset 93.
    said.envelope |= has("$@ $>MasqHdr $1") || has("$@ $>93 $1");
    said.generics_below |= has("R$+ < @ $* $=G . >");
    if has(". @ $M > ") {
        said.masquerade_below |= has("R$* < @ $* $=M . >");
        // Only limited_masquerade leaves out the rule for class w, which stands behind that for class M.
        said.is_limited = has("$=M") || (said.is_limited && !has("$=w"));
    }
    dns_list(settings, text, line);
}

fn class_file(settings: &mut ImportedSettings<'_>, rest: &str, text: &str, line: usize) {
    let (class, file) = name(rest);
    let is_optional = file.trim_start().starts_with("-o");
    let path = file.split_whitespace().find(|word| word.starts_with('/'));
    let key = match class {
        "w" => "local.domain_files",
        "R" | "{VirtHost}" => "relay.to_files",
        "G" => "generics.domain_files",
        "{LDAPRoute}" | "{LDAPRouteEquiv}" => {
            return ldap::domain_file(settings, file, class == "{LDAPRouteEquiv}", text, line);
        }
        _ => return settings.missing(line, text, "files of this class are not read", ""),
    };
    match path {
        Some(path) if is_optional && !(settings.is_there)(path) => {}
        Some(path) => settings.add(key, path, line),
        None => settings.missing(line, text, "no file with its whole path is named", &format!("set {key}")),
    }
}

fn define(settings: &mut ImportedSettings<'_>, name: &str, value: &str, line: usize) {
    if value.is_empty() {
        return;
    }
    match name {
        "j" => {
            options::of_mc(settings, "confDOMAIN_NAME", value, line);
        }
        "{sendmailMTACluster}" => settings.said.ldap.cluster = Some(value.to_owned()),
        "S" => settings.said.smart_host = Some((value.to_owned(), line)),
        "M" => settings.masquerade(value, line),
        "L" => options::luser_relay(settings, value, line),
        "H" | "R" => {
            let hint = "local.mailbox = \"lmtp:HOST:PORT\", or a [[route.rule]] with via, sends it on";
            settings.missing(
                line,
                &format!("D{name}{value}"),
                "mail of local users goes to their mailboxes here",
                hint,
            );
        }
        _ => {}
    }
}

/// `$(dnsbl $4.$3.$2.$1.zen.example. …`: the zone of a list.
fn dns_list(settings: &mut ImportedSettings<'_>, text: &str, line: usize) {
    let behind = text.split_once("$4.$3.$2.$1.").map_or("", |(_, behind)| behind);
    let zone = behind.split([' ', '\t', '$', ')']).next().unwrap_or_default();
    if let Some(zone) = domain(zone)
        && !settings.said.lists.iter().any(|(one, _)| *one == zone)
    {
        settings.said.lists.push((zone, line));
    }
}

//! The macros of a `.mc` file: the setting of each, or the reason why it has none.

use super::macros::Call;
use super::settings::{ImportedSettings, Listener, SettingValue};
use super::values::{domain, network};
use super::{ldap, maps, options};

/// The call as it was written, nearly.
pub(super) fn shown(call: &Call) -> String {
    format!("{}({})", call.name, call.arguments.join(", "))
}

/// A macro of sendmail, with the names in its arguments replaced.
pub(super) fn statement(settings: &mut ImportedSettings<'_>, call: &Call) {
    let line = call.line;
    let argument = |at: usize| call.arguments.get(at).map_or("", |one| one.trim());
    match call.name.as_str() {
        "FEATURE" => feature(settings, call),
        "MAILER" => mailer(settings, argument(0), &shown(call), line),
        "VERSIONID" | "MAILER_DEFINITIONS" | "divert" => {}
        "LOCAL_CONFIG" | "LOCAL_NET_CONFIG" | "LOCAL_RULESETS" => {}
        name if name.starts_with("LOCAL_RULE") => {}
        "DAEMON_OPTIONS" => daemon(settings, argument(0), &shown(call), line),
        "MASQUERADE_AS" => settings.masquerade(argument(0), line),
        "GENERICS_DOMAIN" => domains(settings, "generics.domains", "", call),
        "GENERICS_DOMAIN_FILE" => file(settings, "generics.domain_files", call),
        "LOCAL_DOMAIN" => domains(settings, "local.domains", "", call),
        "VIRTUSER_DOMAIN" => domains(settings, "relay.to", "", call),
        "VIRTUSER_DOMAIN_FILE" => file(settings, "relay.to_files", call),
        "RELAY_DOMAIN" => relay_domains(settings, argument(0), &shown(call), line),
        "RELAY_DOMAIN_FILE" => {
            settings.said.has_relay_domains = true;
            file(settings, "relay.to_files", call);
        }
        "TRUST_AUTH_MECH" => settings.needless(line, &shown(call), "everybody who has logged in may relay"),
        "MAIL_FILTER" | "INPUT_MAIL_FILTER" => {
            let hint = "let a filter stand before this server, or behind it as a next hop";
            settings.missing(line, &shown(call), "milters are not called", hint);
        }
        "LDAPROUTE_DOMAIN" => ldap::domains(settings, argument(0), false, &shown(call), line),
        "LDAPROUTE_EQUIVALENT" => ldap::domains(settings, argument(0), true, &shown(call), line),
        "LDAPROUTE_DOMAIN_FILE" => ldap::domain_file(settings, argument(0), false, &shown(call), line),
        "LDAPROUTE_EQUIVALENT_FILE" => ldap::domain_file(settings, argument(0), true, &shown(call), line),
        "MASQUERADE_DOMAIN" => domains(settings, "generics.masquerade_domains", "", call),
        "MASQUERADE_EXCEPTION" => domains(settings, "generics.masquerade_exceptions", ".", call),
        "EXPOSED_USER" => settings.exposed(argument(0), line),
        "MASQUERADE_DOMAIN_FILE" | "MASQUERADE_EXCEPTION_FILE" | "EXPOSED_USER_FILE" => {
            let hint = "write its lines into generics.masquerade_domains, masquerade_exceptions or exposed_users";
            settings.missing(line, &shown(call), "files of this class are not read", hint);
        }
        "QUEUE_GROUP" => queue_group(settings, argument(0), &shown(call), line),
        "CLIENT_OPTIONS" => {
            let hint = "destination.source sets addresses, delivery.address_family their kind";
            settings.missing(line, &shown(call), "where connections come from is not carried over", hint);
        }
        _ => settings.missing(line, &shown(call), "this macro is not known", "see what it does, and add it by hand"),
    }
}

/// A name of sendmail's and its value; `false` for a name that only the file itself may know.
pub(super) fn define(settings: &mut ImportedSettings<'_>, name: &str, value: &str, shown: &str, line: usize) -> bool {
    match name {
        "SMART_HOST" => settings.said.smart_host = (!value.is_empty()).then(|| (value.to_owned(), line)),
        "LUSER_RELAY" => options::luser_relay(settings, value, line),
        "RELAY_MAILER_ARGS" | "ESMTP_MAILER_ARGS" | "SMTP_MAILER_ARGS" => {
            match value.strip_prefix("TCP $h ").map(|port| port.trim().parse::<u16>()) {
                Some(Ok(port)) if port > 0 && name == "RELAY_MAILER_ARGS" => settings.said.smart_port = Some(port),
                Some(Ok(port)) if port > 0 => settings.set("route.port", SettingValue::Bare(port.to_string()), line),
                None if value == "TCP $h" => {}
                _ => settings.missing(line, shown, "only a port behind \"TCP $h\" is understood", "set route.port"),
            }
        }
        "MAIL_HUB" | "LOCAL_RELAY" => {
            let hint = "local.mailbox = \"lmtp:HOST:PORT\", or a [[route.rule]] with via, sends it on";
            settings.missing(line, shown, "mail of local users goes to their mailboxes here", hint);
        }
        _ if options::of_mc(settings, name, value, line) => {}
        _ if name.starts_with("conf") => settings.missing(line, shown, "there is no such option here", ""),
        _ if name.contains("MAILER") => {
            settings.missing(line, shown, "mailers are built in", "see [route], [delivery] and local.mailbox");
        }
        // Names that begin so steer the macros of sendmail and of its packages.
        _ if name.starts_with('_') => {}
        _ => return false,
    }
    true
}

pub(super) fn undefine(settings: &mut ImportedSettings<'_>, name: &str, shown: &str, line: usize) {
    if name == "SMART_HOST" {
        settings.said.smart_host = None;
    } else if name == "ALIAS_FILE" || name.starts_with("conf") {
        let reason = "our default holds, or what the file defines before";
        settings.differs(line, shown, reason, "remove the key of an earlier define, if there is one");
    }
}

fn mailer(settings: &mut ImportedSettings<'_>, name: &str, shown: &str, line: usize) {
    match name {
        "local" | "smtp" => {}
        "procmail" => {
            settings.missing(line, shown, "there is no mailer procmail", "an alias or .forward may run the program")
        }
        "cyrus" | "cyrusv2" => {
            let hint = "set local.mailbox = \"lmtp:unix:\" and the socket of Cyrus";
            settings.missing(line, shown, "mailboxes of Cyrus are reached by LMTP", hint);
        }
        _ => {
            settings.missing(line, shown, "there is no such mailer", "mailers are smtp, lmtp, local, error and discard")
        }
    }
}

fn domains(settings: &mut ImportedSettings<'_>, key: &'static str, prefix: &str, call: &Call) {
    for word in call.arguments.first().map_or("", |one| one).split_whitespace() {
        match domain(word) {
            Some(name) => settings.add(key, format!("{prefix}{name}"), call.line),
            None => settings.missing(
                call.line,
                &format!("{} {word}", call.name),
                "this is no domain",
                &format!("set {key}"),
            ),
        }
    }
}

/// Class R: domains with the names below them, and networks.
pub(super) fn relay_domains(settings: &mut ImportedSettings<'_>, words: &str, shown: &str, line: usize) {
    for word in words.split_whitespace() {
        if let Some(network) = network(word) {
            settings.relay_from(network, line);
        } else if let Some(name) = domain(word.trim_start_matches('.')) {
            settings.add("relay.to", format!(".{name}"), line);
        } else {
            settings.missing(line, shown, format!("\"{word}\" is neither a domain nor a network"), "set relay.to");
        }
    }
}

fn file(settings: &mut ImportedSettings<'_>, key: &'static str, call: &Call) {
    // Options such as -o stand before the file.
    let words = call.arguments.first().map_or("", |one| one).split_whitespace();
    match words.last().filter(|word| word.starts_with('/')) {
        Some(path) => settings.add(key, path, call.line),
        None => {
            settings.missing(call.line, &shown(call), "no file with its whole path is named", &format!("set {key}"))
        }
    }
}

fn masquerading(settings: &mut ImportedSettings<'_>, name: &str, call: &Call) {
    match name {
        "masquerade_envelope" => settings.said.envelope = true,
        "masquerade_entire_domain" => settings.said.masquerade_below = true,
        "limited_masquerade" => settings.said.is_limited = true,
        "allmasquerade" => settings.said.all_recipients = true,
        _ => {
            let reason = "mail for users of this machine has the same header as mail that leaves";
            let hint = "generics.headers = false leaves all headers as they are";
            settings.missing(call.line, &shown(call), reason, hint);
        }
    }
}

fn feature(settings: &mut ImportedSettings<'_>, call: &Call) {
    let line = call.line;
    let argument = |at: usize| call.arguments.get(at).map_or("", |one| one.trim());
    let name = argument(0);
    if maps::feature(settings, name, argument(1), line) {
        for option in call.arguments.iter().skip(2).map(|one| one.trim()) {
            match option {
                "lookupdotdomain" => settings.flag("access.lookup_dot_domain", true, line),
                "relaytofulladdress" => settings.flag("access.relay_to_full_address", true, line),
                "" | "skip" => {}
                _ => settings.missing(line, &shown(call), format!("there is no \"{option}\" here"), ""),
            }
        }
        return;
    }
    match name {
        "use_cw_file" => settings.said.is_local_file = true,
        "no_default_msa" => settings.said.has_msa = Some(false),
        "delay_checks" => {
            let word = if matches!(argument(1), "friend" | "hater") { argument(1) } else { "yes" };
            settings.set("access.delay_checks", SettingValue::Text(word.to_owned()), line);
        }
        "blocklist_recipients" | "blacklist_recipients" => settings.flag("access.blocklist_recipients", true, line),
        "lookupdotdomain" => settings.flag("access.lookup_dot_domain", true, line),
        "relay_hosts_only" => {
            settings.said.hosts_only = true;
            settings.flag("access.relay_hosts_only", true, line);
        }
        "relay_mail_from" => settings.flag("access.relay_mail_from", true, line),
        "relay_entire_domain" => settings.said.entire_domain = Some(line),
        "masquerade_envelope"
        | "masquerade_entire_domain"
        | "limited_masquerade"
        | "allmasquerade"
        | "local_no_masquerade" => masquerading(settings, name, call),
        "generics_entire_domain" => settings.said.generics_below = true,
        "dnsbl" | "enhdnsbl" | "rbl" => dns_list(settings, call),
        "greet_pause" => match argument(1).parse::<u64>() {
            Ok(milliseconds) if milliseconds <= 300_000 => {
                let text = if milliseconds == 0 { "0".to_owned() } else { format!("{milliseconds}ms") };
                settings.set("accept.greet_pause", SettingValue::Text(text), line);
            }
            _ => {
                settings.missing(line, &shown(call), "a pause has up to 300000 milliseconds", "set accept.greet_pause")
            }
        },
        "nullclient" => {
            settings.said.smart_host = Some((argument(1).to_owned(), line));
            settings.said.has_msa = Some(false);
            let reason = "mail of local users goes to the host as well there";
            settings.differs(line, &shown(call), reason, "look at what \"mailrace route\" says of your addresses");
        }
        "local_lmtp" => local_lmtp(settings, call),
        "local_procmail" => {
            let reason = "mailboxes are written without procmail, and .procmailrc is not read";
            settings.missing(
                line,
                &shown(call),
                reason,
                "a .forward may run it; or set local.mailbox to an LMTP server with Sieve",
            );
        }
        "always_add_domain"
        | "nocanonify"
        | "nouucp"
        | "smrsh"
        | "notsticky"
        | "ratecontrol"
        | "conncontrol"
        | "redirect"
        | "accept_unqualified_senders"
        | "preserve_local_plus_detail" => usual(settings, name, call),
        "ldap_routing" => {
            let arguments: Vec<&str> = call.arguments.iter().skip(1).map(|one| one.trim()).collect();
            ldap::routing(settings, &arguments, &shown(call), line);
        }
        "queuegroup" | "bcc" => by_access(settings, name, argument(1), call),
        "promiscuous_relay" => {
            let reason = "it lets everybody send everywhere, which is never carried over";
            settings.missing(line, &shown(call), reason, "name networks in relay.from");
        }
        "msp" => {
            let reason = "this is the configuration of the sendmail command, not of a server";
            settings.missing(
                line,
                &shown(call),
                reason,
                "import sendmail.mc; \"mailrace sendmail\" needs no file of its own",
            );
        }
        _ => settings.missing(
            line,
            &shown(call),
            "there is no such feature here",
            "see what it does, and whether you need it",
        ),
    }
}

/// Queue groups and copies, which the access map gives.
fn by_access(settings: &mut ImportedSettings<'_>, name: &str, argument: &str, call: &Call) {
    match (name, argument) {
        ("queuegroup", "") => usual(settings, name, call),
        ("queuegroup", _) => {
            let reason = "QGRP: of the access map holds always, and there is no group for all others";
            settings.missing(call.line, &shown(call), reason, "the keys of [delivery] are for all others");
        }
        (_, argument) if argument.eq_ignore_ascii_case("access") => usual(settings, name, call),
        _ => {
            let reason = "there is no map of its own for it";
            let hint = "write its entries into the access map, as bcc:example.com";
            settings.missing(call.line, &shown(call), reason, hint);
        }
    }
}

/// Features that hold always, or come from the access map.
fn usual(settings: &mut ImportedSettings<'_>, name: &str, call: &Call) {
    let has = |word: &str| call.arguments.iter().skip(1).any(|one| one.trim().eq_ignore_ascii_case(word));
    if matches!(name, "ratecontrol" | "conncontrol") && !has("terminate") {
        let reason = "whoever is above ClientRate: or ClientConn: of the access map hears 421 and the connection is closed, as \
                      with `terminate'; without it sendmail refuses each command with 452";
        return settings.differs(call.line, &shown(call), reason, "nothing is to be set");
    }
    let reason = match name {
        "ratecontrol" | "conncontrol" => "ClientRate: and ClientConn: of the access map hold always, at once",
        "queuegroup" => "QGRP: of the access map holds always",
        "bcc" => "bcc: of the access map holds always",
        "smrsh" => "programs are bounded always, see local.programs",
        "redirect" => "addresses with .REDIRECT are refused when they are looked up, as any host that is not there",
        _ => "it is so here, or has no meaning",
    };
    settings.needless(call.line, &shown(call), reason);
}

/// A queue group: its name is carried over by the access map, its limits are those of next hops.
pub(super) fn queue_group(settings: &mut ImportedSettings<'_>, name: &str, shown: &str, line: usize) {
    if name.eq_ignore_ascii_case("mqueue") {
        return settings.needless(line, shown, "all mail is in one spool");
    }
    let reason =
        "a queue group has no directory, interval and runners of its own; QGRP: of the access map puts mail into it";
    let hint = format!(
        "add a [[destination]] with match = [\"group:{name}\"]; its recipients_per_transaction is r=, its connections stand for R="
    );
    settings.missing(line, shown, reason, &hint);
}

fn dns_list(settings: &mut ImportedSettings<'_>, call: &Call) {
    let zone = call.arguments.get(1).map_or("", |one| one.trim());
    match domain(zone) {
        Some(zone) => {
            if !settings.said.lists.iter().any(|(one, _)| *one == zone) {
                settings.said.lists.push((zone, call.line));
            }
            if call.arguments.iter().skip(2).any(|one| !one.trim().is_empty()) {
                let reason = "the text of the refusal and chosen answers are not carried over; every answer in 127.0.0.0/8 counts";
                settings.differs(call.line, &shown(call), reason, "set dnsbl.list.answers");
            }
        }
        None => settings.missing(call.line, &shown(call), "no zone is named", "add a [[dnsbl.list]] with its zone"),
    }
}

fn local_lmtp(settings: &mut ImportedSettings<'_>, call: &Call) {
    let words: String = call.arguments.iter().skip(1).map(|one| format!("{} ", one.trim())).collect();
    match words.split_whitespace().skip_while(|word| *word != "FILE").nth(1).filter(|path| path.starts_with('/')) {
        Some(path) => settings.set("local.mailbox", SettingValue::Text(format!("lmtp:unix:{path}")), call.line),
        None => {
            let reason = "a program that speaks LMTP is not started for mailboxes";
            settings.missing(call.line, &shown(call), reason, "mailboxes are written as local.mailbox says");
        }
    }
}

/// `Family=inet, Name=MTA, Port=smtp, Addr=127.0.0.1, M=Ea`
pub(super) fn daemon(settings: &mut ImportedSettings<'_>, text: &str, shown: &str, line: usize) {
    let (mut family, mut name, mut port, mut address, mut modifiers) = ("inet", None, "smtp", "", "");
    for part in text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').map_or((part, ""), |(key, value)| (key.trim(), value.trim()));
        match key.chars().next().map(|c| c.to_ascii_lowercase()) {
            Some('f') => family = value,
            Some('n') => name = Some(value).filter(|name| !name.is_empty() && name.chars().all(is_name)),
            Some('p') => port = value,
            Some('a') => address = value,
            Some('m') => modifiers = value,
            _ => settings.missing(
                line,
                part,
                "this part of a listener is not carried over",
                "see [[listen]] and [accept]",
            ),
        }
    }
    let port = match port {
        "smtp" => 25,
        "submission" => 587,
        "smtps" | "submissions" => 465,
        _ => port.parse::<u16>().unwrap_or(0),
    };
    let host = match (address, family) {
        ("" | "*", "inet6") => Some("[::]".to_owned()),
        ("" | "*", "inet") | ("0.0.0.0", _) => Some("0.0.0.0".to_owned()),
        ("localhost", "inet") => Some("127.0.0.1".to_owned()),
        ("localhost", "inet6") => Some("[::1]".to_owned()),
        (text, _) => {
            let text = text.trim_matches(['[', ']']);
            let text = text.strip_prefix("IPv6:").unwrap_or(text);
            text.parse::<std::net::IpAddr>()
                .ok()
                .map(|ip| if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() })
        }
    };
    let (Some(host), true) = (host, port > 0) else {
        return settings.missing(line, shown, "address and port must be numbers", "add a [[listen]]");
    };
    let is_comment = modifiers.contains('a');
    if is_comment {
        let reason = "it demands AUTH, and where passwords are is not known; it stands there as a comment";
        settings.missing(line, shown, reason, "set auth.file and [tls], then remove the comment signs");
    }
    for other in modifiers.chars().filter(|c| !matches!(c, 'a' | 'E' | 's' | 'f' | ' ')) {
        settings.missing(line, shown, format!("there is no modifier {other} here"), "");
    }
    let is_implicit_tls = modifiers.contains('s');
    let name = name.map(str::to_owned);
    settings.listeners.push(Listener { address: format!("{host}:{port}"), name, is_comment, is_implicit_tls, line });
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

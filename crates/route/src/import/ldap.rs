//! LDAP: map specifications, `confLDAP_DEFAULT_SPEC` and LDAP routing, as tables `[[ldap]]`.
//!
//! Servers, base and bind may stand in the default specification, in any order with the maps: tables are made at the
//! end. A password is never in these files, only the name of its file, and that name is written.

use super::ldap_statements::{LdapMap, LdapRoutingStatement};
use super::settings::{ImportedSettings, SettingValue, origin, quoted};
use super::values::{domain, time, time_text};
use std::fmt::Write as _;

/// The filter of sendmail for LDAP routing without arguments, and of our default.
const ROUTING_FILTER: &str = "(&(objectClass=inetLocalMailRecipient)(mailLocalAddress=%k))";
/// The attributes of LDAP routing.
const ROUTING_ATTRIBUTES: [&str; 2] = ["mailHost", "mailRoutingAddress"];
/// Brackets within brackets.
const DEPTH_MAX: usize = 20;

/// The content of a specification.
#[derive(Clone, Default)]
struct Spec {
    servers: Vec<String>,
    base: Option<String>,
    bind: Option<String>,
    password_file: Option<String>,
    filter: Option<String>,
    attribute: Option<String>,
    separator: Option<String>,
    timeout: Option<u64>,
    is_single: bool,
}

/// Whether a map's argument says that it is in a directory; the rest of it.
pub(super) fn of_argument(argument: &str) -> Option<&str> {
    let argument = argument.trim();
    let rest = argument.strip_prefix("ldap").or_else(|| argument.strip_prefix("LDAP"))?;
    let rest = rest.strip_prefix('x').unwrap_or(rest);
    match rest.chars().next() {
        None => Some(""),
        Some(c) if c == ':' || c.is_whitespace() => Some(rest.get(1..).unwrap_or_default().trim()),
        Some(_) => None,
    }
}

/// A map in a directory. An empty specification is sendmail's own schema.
pub(super) fn map(settings: &mut ImportedSettings<'_>, key: &'static str, spec: &str, line: usize) {
    let schema = match key {
        "maps.mailertable" => "mailer",
        "maps.virtusertable" => "virtuser",
        "maps.genericstable" => "generics",
        "maps.domaintable" => "domain",
        "maps.aliases" => "aliases",
        "maps.smarttable" => "smarttable",
        _ => "access",
    };
    let maps = &mut settings.said.ldap.maps;
    let before = maps.iter().filter(|map| map.key == key).count();
    match maps.iter_mut().find(|map| map.key == key && (key != "maps.aliases" || map.spec == spec)) {
        // The last line of a map counts; aliases have several.
        Some(map) => {
            spec.clone_into(&mut map.spec);
            map.line = line;
        }
        None => {
            let number = if before == 0 { String::new() } else { (before + 1).to_string() };
            let name = format!("{}{number}", key.strip_prefix("maps.").unwrap_or(key));
            maps.push(LdapMap { key, name: name.clone(), spec: spec.to_owned(), schema, line });
            // Its place among the sources of the map is kept.
            settings.add(key, source(&name), line);
        }
    }
}

fn source(name: &str) -> String {
    format!("ldap:{name}")
}

/// `FEATURE(ldap_routing, …)` without its name.
pub(super) fn routing(settings: &mut ImportedSettings<'_>, arguments: &[&str], shown: &str, line: usize) {
    let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
    let mut routing = LdapRoutingStatement {
        specs: [argument(0).to_owned(), argument(1).to_owned()],
        line,
        ..LdapRoutingStatement::default()
    };
    match argument(2) {
        "" | "passthru" => {}
        word => {
            routing.bounce = true;
            if word == "sendertoo" {
                let reason = "senders are not looked up; recipients that are not there are refused";
                settings.missing(line, shown, reason, "");
            }
        }
    }
    routing.detail = match argument(3) {
        "" => None,
        "strip" => Some("strip"),
        "preserve" => Some("preserve"),
        other => {
            settings.missing(line, shown, format!("there is no \"{other}\" for details"), "set ldap.detail");
            None
        }
    };
    routing.no_domain = !argument(4).is_empty();
    if argument(5) == "queue" {
        let reason = "while the directory is down the client hears 451; its mail is not taken";
        settings.differs(line, shown, reason, "");
    }
    settings.said.ldap.routing = Some(routing);
}

/// Names of `LDAPROUTE_DOMAIN` and `LDAPROUTE_EQUIVALENT`.
pub(super) fn domains(settings: &mut ImportedSettings<'_>, words: &str, is_equivalent: bool, shown: &str, line: usize) {
    for word in words.split_whitespace() {
        let Some(name) = domain(word) else {
            settings.missing(line, shown, format!("\"{word}\" is no domain"), "set ldap.routing_domains");
            continue;
        };
        let said = &mut settings.said.ldap;
        let list = if is_equivalent { &mut said.equivalents } else { &mut said.domains };
        if !list.contains(&name) {
            list.push(name);
        }
    }
}

/// The names in a file of `LDAPROUTE_DOMAIN_FILE` and `LDAPROUTE_EQUIVALENT_FILE`: there is no key for the file.
pub(super) fn domain_file(
    settings: &mut ImportedSettings<'_>,
    argument: &str,
    is_equivalent: bool,
    shown: &str,
    line: usize,
) {
    let path = argument.split_whitespace().last().unwrap_or_default();
    let text = if path.starts_with('/') { (settings.files.read)(path) } else { None };
    let Some(text) = text else {
        return settings.missing(line, shown, "the file cannot be read", "set ldap.routing_domains to its names");
    };
    // The first word of a line counts; text behind # is a comment.
    let words: Vec<&str> = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next()).collect();
    domains(settings, &words.join(" "), is_equivalent, shown, line);
    let reason = "its names as they are now; the file is not read again";
    settings.differs(line, shown, reason, "change ldap.routing_domains instead of the file");
}

/// Makes the tables.
pub(super) fn finish(settings: &mut ImportedSettings<'_>) {
    let default = match settings.said.ldap.default.take() {
        Some((text, line)) => read(settings, &text, &Spec::default(), line),
        None => Spec::default(),
    };
    for map in std::mem::take(&mut settings.said.ldap.maps) {
        let statement = format!("{} {}", source(&map.name), map.spec);
        match of_map(settings, &map, &default) {
            Ok(table) => settings.said.ldap.tables.push(table),
            Err((reason, hint)) => {
                settings.remove(map.key, &source(&map.name));
                settings.missing(map.line, &statement, reason, &hint);
            }
        }
    }
    if let Some(routing) = settings.said.ldap.routing.take() {
        match of_routing(settings, &routing, &default) {
            Ok(table) => settings.said.ldap.tables.push(table),
            Err((reason, hint)) => settings.missing(routing.line, "FEATURE(`ldap_routing')", reason, &hint),
        }
    } else if !settings.said.ldap.domains.is_empty() {
        let reason = "domains without FEATURE(`ldap_routing') mean nothing";
        settings.missing(0, "LDAPROUTE_DOMAIN", reason, "");
    }
}

type ImportRefusal = (String, String);

fn refused(reason: &str, hint: &str) -> ImportRefusal {
    (reason.to_owned(), hint.to_owned())
}

fn of_map(settings: &mut ImportedSettings<'_>, map: &LdapMap, default: &Spec) -> Result<String, ImportRefusal> {
    let own = if map.spec.is_empty() { own_schema(settings, map)? } else { map.spec.clone() };
    let spec = read(settings, &own, default, map.line);
    let filter = spec
        .filter
        .clone()
        .ok_or_else(|| refused("no filter (-k) that can be carried over", "add [[ldap]] by hand"))?;
    let attribute = spec
        .attribute
        .clone()
        .ok_or_else(|| refused("no single attribute (-v) that can be carried over", "add [[ldap]] by hand"))?;
    if !spec.is_single && spec.separator.is_none() {
        let reason = "several values for a key are no match here; sendmail takes the first";
        settings.differs(map.line, &source(&map.name), reason, "ldap.separator puts them together");
    }
    let mut table = head(settings, &map.name, &spec, map.line)?;
    let _infallible = write!(table, "filter = {}\nattribute = {}\n", quoted(&filter), quoted(&attribute));
    if let Some(separator) = spec.separator.filter(|_| !spec.is_single) {
        let _infallible = writeln!(table, "separator = {}", quoted(&separator));
    }
    Ok(table)
}

fn of_routing(
    settings: &mut ImportedSettings<'_>,
    routing: &LdapRoutingStatement,
    default: &Spec,
) -> Result<String, ImportRefusal> {
    let mut filters = Vec::new();
    let mut last = default.clone();
    for (spec, attribute) in routing.specs.iter().zip(ROUTING_ATTRIBUTES) {
        let rest = of_argument(spec).unwrap_or(spec);
        if rest.is_empty() {
            filters.push(ROUTING_FILTER.to_owned());
            continue;
        }
        let read = read(settings, rest, default, routing.line);
        if !read.attribute.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(attribute)) {
            let reason = format!("LDAP routing reads the attribute {attribute} alone");
            return Err((reason, "name it so in the directory".to_owned()));
        }
        filters.push(read.filter.clone().unwrap_or_else(|| ROUTING_FILTER.to_owned()));
        last = read;
    }
    filters.dedup();
    let [filter] = filters.as_slice() else {
        return Err(refused("mailHost and mailRoutingAddress are asked by different filters", "add [[ldap]] by hand"));
    };
    let domains = std::mem::take(&mut settings.said.ldap.domains);
    if domains.is_empty() {
        return Err(refused("no LDAPROUTE_DOMAIN names a domain for it", "add [[ldap]] with routing_domains"));
    }
    let mut table = head(settings, "routing", &last, routing.line)?;
    if filter != ROUTING_FILTER {
        let _infallible = writeln!(table, "filter = {}", quoted(filter));
    }
    let list = |names: &[String]| super::settings::written(&SettingValue::List(names.to_vec()));
    let _infallible = writeln!(table, "routing_domains = {}", list(&domains));
    let equivalents = std::mem::take(&mut settings.said.ldap.equivalents);
    if !equivalents.is_empty() {
        match settings.said.masquerade.as_ref().map(|(name, _)| name.clone()).or_else(|| settings.hostname()) {
            Some(name) => {
                let _infallible =
                    writeln!(table, "routing_equivalents = {}\nrouting_name = {}", list(&equivalents), quoted(&name));
            }
            None => {
                let reason = "the domain that stands for them (MASQUERADE_AS) is not written in the file";
                settings.missing(
                    routing.line,
                    "LDAPROUTE_EQUIVALENT",
                    reason,
                    "set ldap.routing_equivalents and ldap.routing_name",
                );
            }
        }
    }
    if routing.bounce {
        table.push_str("bounce = true\n");
    }
    if let Some(detail) = routing.detail {
        let _infallible = writeln!(table, "detail = {}", quoted(detail));
    }
    if routing.no_domain {
        table.push_str("no_domain = true\n");
    }
    Ok(table)
}

/// The table up to the bind.
fn head(settings: &mut ImportedSettings<'_>, name: &str, spec: &Spec, line: usize) -> Result<String, ImportRefusal> {
    let base = spec.base.as_ref().ok_or_else(|| {
        refused(
            "no base (-b) is named; that of ldap.conf is not read",
            "add [[ldap]] with base, or name it in confLDAP_DEFAULT_SPEC",
        )
    })?;
    let mut servers = spec.servers.clone();
    if servers.is_empty() {
        let reason = "no server (-h, -H) is named, and ldap.conf is not read; this machine is asked";
        settings.differs(line, &format!("[[ldap]] {name}"), reason, "set ldap.servers");
        servers.push("ldap://localhost".to_owned());
    }
    let mut table = format!(
        "\n[[ldap]]{}\nname = {}\nservers = {}\nbase = {}\n",
        origin(&[line], &settings.names()),
        quoted(name),
        super::settings::written(&SettingValue::List(servers)),
        quoted(base)
    );
    match (&spec.bind, &spec.password_file) {
        (Some(bind), Some(file)) => {
            let _infallible = write!(table, "bind = {}\npassword_file = {}\n", quoted(bind), quoted(file));
        }
        (Some(_), None) => {
            let reason = "a bind (-d) needs the file of its password (-P); the directory is asked without a bind";
            settings.missing(line, &format!("[[ldap]] {name}"), reason, "set ldap.bind and ldap.password_file");
        }
        _ => {}
    }
    if let Some(seconds) = spec.timeout {
        let _infallible = writeln!(table, "timeout = {}", quoted(&time_text(seconds)));
    }
    Ok(table)
}

/// Returns the specification that sendmail uses where a map says `LDAP` and nothing more.
fn own_schema(settings: &ImportedSettings<'_>, map: &LdapMap) -> Result<String, ImportRefusal> {
    let cluster = settings.said.ldap.cluster.as_ref().filter(|name| is_plain(name));
    let cluster = cluster.map(|name| format!("(sendmailMTACluster={name})"));
    let host = settings.hostname().map(|name| format!("(sendmailMTAHost={name})"));
    let who = match (cluster, host) {
        (Some(cluster), Some(host)) => format!("(|{cluster}{host})"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => {
            return Err(refused(
                "it asks for entries of this host or cluster, and neither confDOMAIN_NAME nor confLDAP_CLUSTER is written in the file",
                "define one of them and import again",
            ));
        }
    };
    Ok(if map.key == "maps.aliases" {
        format!(
            "-z, -v sendmailMTAAliasValue -k (&(objectClass=sendmailMTAAliasObject)(sendmailMTAAliasGrouping={}){who}(sendmailMTAKey=%0))",
            map.schema
        )
    } else {
        format!(
            "-1 -v sendmailMTAMapValue -k (&(objectClass=sendmailMTAMapObject){who}(sendmailMTAMapName={})(sendmailMTAKey=%0))",
            map.schema
        )
    })
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Words between white space; quotes keep words together, also the empty one.
fn words(text: &str) -> Vec<String> {
    let (mut all, mut one, mut is_quoted) = (Vec::new(), None::<String>, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                one.get_or_insert_default();
            }
            c if c.is_whitespace() && !is_quoted => all.extend(one.take()),
            c => one.get_or_insert_default().push(c),
        }
    }
    all.extend(one);
    all
}

/// Reads options over those of `before`; an option that cannot be carried over gets a note.
fn read(settings: &mut ImportedSettings<'_>, text: &str, before: &Spec, line: usize) -> Spec {
    /// Options with a value.
    const VALUED: &str = "kvhpbdMPHszlcwrZVTSna";
    let mut spec = before.clone();
    let (mut hosts, mut port) = (None, None);
    let mut words = words(text).into_iter();
    while let Some(word) = words.next() {
        let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
        let Some(option) = letters.next() else {
            settings.missing(line, &word, "no option of a map in LDAP", "see [[ldap]]");
            continue;
        };
        let mut value = letters.as_str().to_owned();
        // The value may be the next word, or nothing before another option.
        if VALUED.contains(option) && value.is_empty() && !matches!(option, 'n' | 'z' | 'T') {
            value = words.next().unwrap_or_default();
        }
        let statement = format!("-{option} {value}");
        let is_text = !value.is_empty() && !value.chars().any(char::is_control) && !value.contains('$');
        match option {
            'h' => hosts = Some(value),
            'p' => port = value.parse::<u16>().ok(),
            'H' => spec.servers = servers(settings, &value, &statement, line),
            'b' if is_text => spec.base = Some(value),
            'd' if is_text => spec.bind = Some(value),
            'P' if value.starts_with('/') && is_text => spec.password_file = Some(value),
            'k' => spec.filter = filter(settings, &value, &statement, line),
            'v' => spec.attribute = attribute(settings, &value, &statement, line),
            'z' => {
                spec.separator =
                    Some(value.replace("\\n", "\n")).filter(|one| !one.is_empty() && !one.chars().any(char::is_control))
            }
            '1' => spec.is_single = true,
            'l' | 'c' => match time(&value, 's').filter(|seconds| (1..=300).contains(seconds)) {
                Some(seconds) => spec.timeout = Some(seconds),
                None => settings.differs(line, &statement, "ldap.timeout is from 1s to 5m", "its default holds"),
            },
            's' if value.starts_with("sub") => {}
            's' => settings.differs(
                line,
                &statement,
                "all that is below the base is searched",
                "narrow ldap.base or ldap.filter",
            ),
            'r' if value == "never" => {}
            'r' => settings.missing(line, &statement, "aliases of the directory are not followed", ""),
            'M' if matches!(
                value.to_ascii_lowercase().as_str(),
                "simple" | "none" | "ldap_auth_simple" | "ldap_auth_none"
            ) =>
            {
                if value.to_ascii_lowercase().ends_with("none") {
                    spec.bind = None;
                }
            }
            // How much is kept, how it is written, and what the protocol is.
            'T' | 'w' | 'Z' | 'f' | 'o' | 'q' | 'N' | 'O' | 'D' => {}
            _ => settings.missing(line, &statement, "this option of a map in LDAP is not carried over", "see [[ldap]]"),
        }
    }
    if let Some(hosts) = hosts {
        let port = port.filter(|port| *port != 389).map_or_else(String::new, |port| format!(":{port}"));
        let urls: Vec<String> = hosts
            .split_whitespace()
            .map(|host| if host.contains(':') { format!("ldap://{host}") } else { format!("ldap://{host}{port}") })
            .collect();
        spec.servers = servers(settings, &urls.join(" "), &format!("-h {hosts}"), line);
    }
    spec
}

fn servers(settings: &mut ImportedSettings<'_>, urls: &str, statement: &str, line: usize) -> Vec<String> {
    let mut good = Vec::new();
    for url in urls.split_whitespace() {
        let url = url.trim_end_matches('/');
        if is_server(url) {
            good.push(url.to_owned());
        } else {
            settings.missing(line, statement, format!("\"{url}\" is no server that can be asked"), "set ldap.servers");
        }
    }
    good
}

fn is_server(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if scheme == "ldapi" {
        return !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-._%".contains(c));
    }
    let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
    let is_host = is_plain(host) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    matches!(scheme, "ldap" | "ldaps") && is_host
}

/// The attribute of `mail:NORMAL:class`.
fn attribute(settings: &mut ImportedSettings<'_>, value: &str, statement: &str, line: usize) -> Option<String> {
    let mut own = Vec::new();
    for one in value.split(',') {
        let mut parts = one.split(':');
        let (name, kind) = (parts.next().unwrap_or_default().trim(), parts.next().unwrap_or("NORMAL"));
        if kind.eq_ignore_ascii_case("NORMAL") || kind.is_empty() {
            own.push(name);
        } else {
            settings.missing(line, statement, format!("{name} names other entries, which are not followed"), "");
        }
    }
    match own.as_slice() {
        [one] if is_attribute(one) => Some((*one).to_owned()),
        _ => {
            settings.missing(line, statement, "one attribute is read", "set ldap.attribute");
            None
        }
    }
}

fn is_attribute(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// A filter with our sign for the key.
fn filter(settings: &mut ImportedSettings<'_>, value: &str, statement: &str, line: usize) -> Option<String> {
    let cluster = settings.said.ldap.cluster.clone().filter(|name| is_plain(name));
    let mut text = value.to_owned();
    if let Some(cluster) = cluster {
        text = text.replace("${sendmailMTACluster}", &cluster);
    }
    if let Some(host) = settings.hostname() {
        text = text.replace("$j", &host);
    }
    // Both are the key, and ours is escaped.
    text = text.replace("%0", "%k").replace("%s", "%k");
    if !text.starts_with('(') {
        text = format!("({text})");
    }
    let is_good = text.contains("%k") && rest_of_filter(&text, 0) == Some("");
    if !is_good {
        let reason = "no filter that can be carried over; %0 stands for the key, macros must be known here";
        settings.missing(line, statement, reason, "set ldap.filter");
    }
    is_good.then_some(text)
}

/// Returns the text behind a filter (RFC 4515 §3), in the narrower form that needs no second look; `None` where there
/// is no filter.
fn rest_of_filter(text: &str, depth: usize) -> Option<&str> {
    if depth > DEPTH_MAX {
        return None;
    }
    let inner = text.strip_prefix('(')?;
    if let Some(mut rest) = inner.strip_prefix(['&', '|']) {
        loop {
            rest = rest_of_filter(rest, depth + 1)?;
            if let Some(rest) = rest.strip_prefix(')') {
                return Some(rest);
            }
        }
    }
    if let Some(rest) = inner.strip_prefix('!') {
        return rest_of_filter(rest, depth + 1)?.strip_prefix(')');
    }
    let (item, rest) = inner.split_once(')')?;
    let (name, value) = item.split_once('=')?;
    let plain = name.strip_suffix(['<', '>', '~']).unwrap_or(name);
    let (has_parts, name) = (plain.len() == name.len(), plain);
    let is_value = |c: char| c.is_ascii_alphanumeric() || "@.-_+*:/,; %".contains(c);
    let is_sign = value.split('%').skip(1).all(|behind| behind.starts_with('k'));
    (is_attribute(name)
        && !value.is_empty()
        && value.chars().all(is_value)
        && !value.contains("**")
        && is_sign
        && (has_parts || !value.contains('*')))
    .then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_pass_are_filters() {
        for good in ["(mail=%k)", "(&(a=b)(|(c=%k)(d=*))(!(e=f)))", "(a~=%k)", "(objectClass=x*y)"] {
            assert_eq!(rest_of_filter(good, 0), Some(""), "{good}");
        }
        let deep = format!("{}(a=b){}", "(!".repeat(30), ")".repeat(30));
        for bad in [
            "",
            "()",
            "(mail=)",
            "(&)",
            "(a=b",
            "(a=b))",
            "(a=(b))",
            "a=b",
            "(a=$j)",
            "(a=%1)",
            "(1=%k)",
            "(a=b\\zz)",
            "(a>=*)",
            &deep,
        ] {
            assert_ne!(rest_of_filter(bad, 0), Some(""), "{bad}");
        }
    }

    #[test]
    fn arguments_of_maps_in_directories() {
        for (argument, rest) in [
            ("LDAP", Some("")),
            ("ldap:-k (a=%0)", Some("-k (a=%0)")),
            ("ldap -1 -v x", Some("-1 -v x")),
            ("ldapx:-v a", Some("-v a")),
            ("hash /etc/ldap", None),
            ("ldapmap /x", None),
        ] {
            assert_eq!(of_argument(argument), rest, "{argument}");
        }
        assert_eq!(words("-b \"ou=a b,dc=c\" -h\"x y\""), ["-b", "ou=a b,dc=c", "-hx y"]);
        assert_eq!(words("-b \"\" -z\" \" "), ["-b", "", "-z "]);
    }
}

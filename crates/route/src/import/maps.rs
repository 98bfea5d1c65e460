//! Tables: the key for each, and the file named in sendmail's specification.

use super::ldap;
use super::settings::ImportedSettings;

/// A table's names in `FEATURE`, in `K` lines, our key, and the file that sendmail takes without an argument.
const MAPS: [(&str, &str, &str, &str); 7] = [
    ("access_db", "access", "maps.access", "/etc/mail/access"),
    ("mailertable", "mailertable", "maps.mailertable", "/etc/mail/mailertable"),
    ("virtusertable", "virtuser", "maps.virtusertable", "/etc/mail/virtusertable"),
    ("genericstable", "generics", "maps.genericstable", "/etc/mail/genericstable"),
    ("domaintable", "domaintable", "maps.domaintable", "/etc/mail/domaintable"),
    ("smarttable", "smarttable", "maps.smarttable", "/etc/mail/smarttable"),
    // Its keys are those of the access map.
    ("authinfo", "authinfo", "maps.access", "/etc/mail/authinfo"),
];

/// A table of `FEATURE(name, argument)`; `false` for a name that is none.
pub(super) fn feature(settings: &mut ImportedSettings<'_>, name: &str, argument: &str, line: usize) -> bool {
    let Some((name, _, key, file)) = MAPS.iter().find(|(feature, ..)| *feature == name) else { return false };
    let statement = format!("FEATURE(`{name}', `{argument}')");
    map(settings, key, if argument.trim().is_empty() { file } else { argument }, &statement, line);
    true
}

/// A table of a line `Kname …`; `false` for a name that is none.
pub(super) fn line(settings: &mut ImportedSettings<'_>, name: &str, argument: &str, line: usize) -> bool {
    let Some((_, _, key, _)) = MAPS.iter().find(|(_, map, ..)| *map == name) else { return false };
    map(settings, key, argument, &format!("K{name} {argument}"), line);
    true
}

fn map(settings: &mut ImportedSettings<'_>, key: &'static str, argument: &str, statement: &str, line: usize) {
    match key {
        "maps.access" if !statement.contains("authinfo") => settings.said.has_access = true,
        "maps.genericstable" => settings.said.has_generics = true,
        _ => {}
    }
    if let Some(spec) = ldap::of_argument(argument) {
        return ldap::map(settings, key, spec, line);
    }
    match file(settings, argument) {
        Ok(path) => settings.add(key, path, line),
        Err(reason) => settings.missing(line, statement, reason, &format!("set {key}")),
    }
}

/// The aliases: files with a class before them or not, between commas.
pub(super) fn aliases(settings: &mut ImportedSettings<'_>, value: &str, line: usize) {
    for one in sources(value) {
        if let Some(spec) = ldap::of_argument(one) {
            ldap::map(settings, "maps.aliases", spec, line);
            continue;
        }
        let statement = format!("ALIAS_FILE {one}");
        match file(settings, &one.replacen(':', " ", usize::from(!one.starts_with('/')))) {
            Ok(path) => settings.add("maps.aliases", path, line),
            Err(reason) => settings.missing(line, &statement, reason, "set maps.aliases"),
        }
    }
}

/// Between commas; those of a map in LDAP are its own, up to one before a file or a class.
fn sources(value: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let is_end = |at: usize| {
            let behind = rest.get(at + 1..).unwrap_or_default().trim_start();
            let class = behind.split_once(':').map_or("", |(class, _)| class);
            ldap::of_argument(rest).is_none()
                || behind.starts_with('/')
                || matches!(class, "hash" | "btree" | "dbm" | "cdb" | "text" | "implicit" | "file" | "ldap" | "LDAP")
        };
        let end = rest.match_indices(',').map(|(at, _)| at).find(|at| is_end(*at)).unwrap_or(rest.len());
        all.extend(rest.get(..end).map(str::trim).filter(|one| !one.is_empty()));
        rest = rest.get(end + 1..).unwrap_or_default().trim_start();
    }
    all
}

/// The file of `hash -T<TMPF> /etc/mail/access`.
fn file(settings: &ImportedSettings<'_>, argument: &str) -> Result<String, String> {
    let mut words = argument.split_whitespace().peekable();
    let class = words.next_if(|word| !word.starts_with(['/', '-'])).unwrap_or("hash").to_ascii_lowercase();
    if !matches!(class.as_str(), "hash" | "btree" | "dbm" | "cdb" | "text" | "implicit" | "file") {
        return Err(format!("maps of class {class} are not carried over"));
    }
    let rest: Vec<&str> = words.collect();
    if class == "text"
        && rest.iter().any(|word| word.starts_with("-z") || word.starts_with("-k") || word.starts_with("-v"))
    {
        return Err("columns of text maps cannot be chosen; the key is the first word of a line".to_owned());
    }
    let path = rest.iter().copied().find(|word| word.starts_with('/')).ok_or("no file with its whole path is named")?;
    let path = path.trim_end_matches(".db");
    let database = [".db", ".cdb"].map(|end| format!("{path}{end}")).into_iter().find(|path| (settings.is_there)(path));
    // People change the text; a database stands in where there is no text.
    Ok(if (settings.is_there)(path) { path.to_owned() } else { database.unwrap_or_else(|| path.to_owned()) })
}

//! Changes a present configuration file: only keys whose value is another, so that everything else, comments and order
//! included, stays.

use super::answers::{EVERYWHERE, SetupAnswers, is_for_this_machine};
use super::new_file::HTTP_ADDRESS;
use server::config::Config;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

/// Returns the text with the values of the answers; `config` is that of the text.
///
/// # Errors
/// The text is no TOML, or has a value where a table belongs.
pub(super) fn edited(text: &str, config: &Config, answers: &SetupAnswers) -> Result<String, String> {
    let mut document: DocumentMut =
        text.parse().map_err(|error| format!("the present file cannot be read: {error}"))?;
    let present = SetupAnswers::of_config(config, Some(text));
    if answers.hostname != present.hostname {
        set_hostname(&mut document, &answers.hostname);
    }
    for (key, old, new, about) in [
        ("relay.from", &present.relay_from, &answers.relay_from, "Networks that may send anywhere through this host."),
        ("local.domains", &present.domains, &answers.domains, "Domains whose mail goes to mailboxes of this host."),
        (
            "route.smart_host",
            &present.smart_hosts,
            &answers.smart_hosts,
            "Hosts that take all mail for other places, in place of the MX hosts of each domain.",
        ),
        ("tls.certificate", &present.certificates, &answers.certificates, "Certificate with its chain, in PEM."),
        ("tls.key", &present.keys, &answers.keys, "Key of the certificate, in PEM."),
    ] {
        if old != new {
            set(&mut document, key, value(new.iter().collect::<Array>()), about)?;
        }
    }
    set_listeners(&mut document, config, answers)?;
    let has_address = document.get("http").and_then(|http| http.get("address")).is_some();
    if config.http.address.is_empty() && !has_address {
        set(&mut document, "http.address", value(HTTP_ADDRESS), "Page, metrics and API, for this machine alone.")?;
    }
    Ok(document.to_string())
}

/// Sets the name of the host. A new line of it stands behind the comment that begins the file, in place of an example.
fn set_hostname(document: &mut DocumentMut, name: &str) {
    if let Some(old) = document.get_mut("hostname") {
        return replace(old, value(name));
    }
    let head = first_decor(document).map(|decor| {
        let prefix = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default().to_owned();
        let end = prefix.rfind("\n\n").map_or(0, |end| end + 1);
        let (head, rest) = prefix.split_at(end);
        decor.set_prefix(rest);
        head.lines().filter(|line| !line.starts_with("#hostname")).map(|line| format!("{line}\n")).collect::<String>()
    });
    document.insert("hostname", value(name));
    if let Some(mut key) = document.key_mut("hostname") {
        key.leaf_decor_mut().set_prefix(head.unwrap_or_default());
    }
}

/// Returns the decoration in front of the first line that is no comment, unless that is a key.
fn first_decor(document: &mut DocumentMut) -> Option<&mut toml_edit::Decor> {
    match document.iter_mut().next()?.1 {
        Item::Table(table) if !table.is_implicit() && !table.is_dotted() => Some(table.decor_mut()),
        Item::ArrayOfTables(tables) => tables.iter_mut().next().map(Table::decor_mut),
        _ => None,
    }
}

/// Sets a key of a table; a new one gets a comment.
///
/// # Errors
/// The table is something else.
fn set(document: &mut DocumentMut, key: &str, new: Item, about: &str) -> Result<(), String> {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    if document.get(table).is_none() {
        let mut fresh = Table::new();
        fresh.decor_mut().set_prefix("\n");
        document.insert(table, Item::Table(fresh));
    }
    let Some(table) = document.get_mut(table).and_then(Item::as_table_like_mut) else {
        return Err(format!("{table}: no table; write it as [{table}]"));
    };
    if let Some(old) = table.get_mut(name) {
        replace(old, new);
        return Ok(());
    }
    table.insert(name, new);
    if let Some(mut key) = table.key_mut(name) {
        key.leaf_decor_mut().set_prefix(format!("# {about}\n"));
    }
    Ok(())
}

/// Replaces a value, and leaves the comment behind it.
fn replace(old: &mut Item, mut new: Item) {
    if let (Some(old), Some(new)) = (old.as_value(), new.as_value_mut()) {
        *new.decor_mut() = old.decor().clone();
    }
    *old = new;
}

/// Changes listeners: to those that were named, or from this machine alone to every address where others hand mail in.
///
/// # Errors
/// They have to be changed, and are not written as tables.
fn set_listeners(document: &mut DocumentMut, config: &Config, answers: &SetupAnswers) -> Result<(), String> {
    let has_none = document.get("listen").is_none();
    if has_none && answers.listen.is_some() {
        document.insert("listen", Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let Some(tables) = document.get_mut("listen").and_then(Item::as_array_of_tables_mut) else {
        let is_closed = config.listen.iter().any(|one| is_for_this_machine(&one.address.to_string()));
        return match answers.listen.is_some() || !has_none && is_closed && answers.is_for_others() {
            true => Err("listen: a list in one line; write each listener as a table [[listen]]".to_owned()),
            false => Ok(()),
        };
    };
    let present: Vec<String> = tables.iter().map(address).collect();
    let mut wanted = match &answers.listen {
        Some(listen) => listen.clone(),
        None if answers.is_for_others() => {
            let opened = |one: &String| if is_for_this_machine(one) { EVERYWHERE.to_owned() } else { one.clone() };
            present.iter().map(opened).collect()
        }
        None => return Ok(()),
    };
    let mut seen = Vec::new();
    wanted.retain(|one| {
        !seen.contains(one) && {
            seen.push(one.clone());
            true
        }
    });
    let mut left: Vec<String> = wanted.iter().filter(|one| !present.contains(one)).cloned().collect();
    left.reverse();
    for table in tables.iter_mut() {
        if !wanted.contains(&address(table))
            && let Some(new) = left.pop()
        {
            match table.get_mut("address") {
                Some(old) => replace(old, value(new)),
                None => drop(table.insert("address", value(new))),
            }
        }
    }
    tables.retain(|table| wanted.contains(&address(table)));
    while let Some(new) = left.pop() {
        let mut table = Table::new();
        table.insert("address", value(new));
        tables.push(table);
    }
    Ok(())
}

fn address(table: &Table) -> String {
    table.get("address").and_then(Item::as_value).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::config::{self, Machine};

    const PACKAGE: &str = include_str!("../../../../packaging/deb/mailrace.toml");

    fn read(text: &str) -> Config {
        let loaded = config::load_bytes(text.as_bytes().to_vec(), None, &[], &Machine::default());
        loaded.unwrap_or_else(|problems| panic!("{}\n{text}", config::render(&problems))).config
    }

    fn texts(some: &[&str]) -> Vec<String> {
        some.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn the_file_of_the_package_keeps_its_comments_and_paths() {
        let config = read(PACKAGE);
        let present = SetupAnswers::of_config(&config, Some(PACKAGE));
        let answers = SetupAnswers {
            hostname: "mx.example.com".to_owned(),
            domains: texts(&["example.com"]),
            relay_from: texts(&["192.0.2.0/24"]),
            ..present
        };
        let text = edited(PACKAGE, &config, &answers).unwrap();
        let new = read(&text);
        assert_eq!(SetupAnswers::of_config(&new, Some(&text)), answers, "{text}");
        assert_eq!((&new.spool.path, &new.submit.directory), (&config.spool.path, &config.submit.directory));
        assert!(new.listen.iter().all(|one| one.address.ip().is_unspecified()), "{text}");
        let comments = |text: &str| text.lines().filter(|line| line.starts_with("# ")).count();
        assert!(text.starts_with("# Configuration of mailrace") && comments(&text) >= comments(PACKAGE), "{text}");
        assert!(text.contains("\nhostname = \"mx.example.com\"\n") && !text.contains("#hostname"), "{text}");
        assert_eq!(edited(&text, &new, &answers).unwrap(), text, "a second time changes nothing");
    }

    #[test]
    fn values_that_stay_keep_their_form() {
        let text = "hostname = 'a.example' # ours\nrelay.from = [ \"192.0.2.0/24\" ]\n[http]\naddress = \"\"\n";
        let config = read(text);
        let answers = SetupAnswers::of_config(&config, Some(text));
        assert_eq!(edited(text, &config, &answers).unwrap(), text, "HTTP that was turned off stays off");
        let other = SetupAnswers { hostname: "b.example".to_owned(), ..answers };
        let new = edited(text, &config, &other).unwrap();
        assert!(new.starts_with("hostname = \"b.example\" # ours\nrelay.from = [ \"192.0.2.0/24\" ]\n"), "{new}");
    }

    #[test]
    fn listeners_in_one_line_are_no_reason_to_leave_an_answer_out() {
        let text = "listen = [{ address = \"127.0.0.1:25\" }]\n";
        let config = read(text);
        let present = SetupAnswers::of_config(&config, Some(text));
        assert!(edited(text, &config, &present).is_ok(), "nothing is to be changed");
        let named = SetupAnswers { listen: Some(texts(&["192.0.2.1:25"])), ..present.clone() };
        let for_others = SetupAnswers { relay_from: texts(&["192.0.2.0/24"]), ..present };
        for answers in [named, for_others] {
            assert!(edited(text, &config, &answers).unwrap_err().starts_with("listen: "));
        }
    }

    #[test]
    fn listeners_that_were_named_take_the_place_of_the_others() {
        let text = "[[listen]]\naddress = \"127.0.0.1:25\"\nname = \"a\"\n\n[[listen]]\naddress = \"[::1]:25\"\n";
        let config = read(text);
        let answers = SetupAnswers {
            listen: Some(texts(&["192.0.2.1:25", "[::1]:25", "192.0.2.1:2525"])),
            ..SetupAnswers::of_config(&config, Some(text))
        };
        let new = read(&edited(text, &config, &answers).unwrap());
        let addresses: Vec<String> = new.listen.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["192.0.2.1:25", "[::1]:25", "192.0.2.1:2525"]);
        assert_eq!(new.listen[0].name, "a");
    }
}

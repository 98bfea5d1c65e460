//! The text of a new configuration file: the answers, and for what was not asked for a line to begin with.

use super::answers::{HERE, SetupAnswers};

/// Where metrics, page and API are.
pub(super) const HTTP_ADDRESS: &str = "127.0.0.1:8025";

const HEAD: &str = "\
# Configuration of mailrace, made by \"mailrace setup\", which changes it too.
#
#   mailrace check                 finds mistakes, with line and column
#   mailrace reload                puts a changed file in force, whole or not at all
#   mailrace config explain KEY    says everything about a key
#   mailrace config defaults       prints a file with every key and its default
";

/// Returns the text of a file that has these values.
pub(super) fn text(answers: &SetupAnswers) -> String {
    let SetupAnswers { hostname, domains, relay_from, smart_hosts, certificates, keys, listen } = answers;
    let here = HERE.map(str::to_owned);
    let mut text = format!(
        "{HEAD}\n# The full name that the DNS has for the address of this host.\nhostname = {}\n",
        quoted(hostname)
    );
    text.push_str("\n# Where mail comes in. \":25\" is port 25 of every address of this host.\n");
    for address in listen.as_deref().unwrap_or(&here) {
        text.push_str(&format!("[[listen]]\naddress = {}\n\n", quoted(address)));
    }
    text.push_str(&format!(
        "[relay]\n# Networks that may send anywhere through this host.\n{}\
         # Domains that anyone may send to, beside those of [local]: this host passes their mail on.\n{}\n",
        list("from", relay_from, "192.0.2.0/24"),
        list("to", &[], "example.org"),
    ));
    text.push_str(&format!(
        "[local]\n# Domains whose mail goes to mailboxes of this host.\n{}\n",
        list("domains", domains, "example.com")
    ));
    text.push_str(&format!(
        "[route]\n# Hosts that take all mail for other places, in place of the MX hosts of each domain.\n{}\n",
        list("smart_host", smart_hosts, "smtp.example.net:587")
    ));
    text.push_str(&format!(
        "[tls]\n# Certificate with its chain, and its key, in PEM.\n{}{}\n",
        list("certificate", certificates, "/etc/mailrace/tls/fullchain.pem"),
        list("key", keys, "/etc/mailrace/tls/key.pem"),
    ));
    text.push_str(&format!(
        "[http]\n# Page, metrics and API, for this machine alone.\naddress = {}\n",
        quoted(HTTP_ADDRESS)
    ));
    text
}

/// Returns the line of a list; without values one behind `#`, with an example.
fn list(key: &str, values: &[String], example: &str) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    match values.is_empty() {
        true => format!("#{key} = [{}]\n", quoted(example)),
        false => format!("{key} = [{}]\n", values.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::config::{self, Machine};

    fn read(text: &str) -> config::Config {
        let loaded = config::load_bytes(text.as_bytes().to_vec(), None, &[], &Machine::default());
        loaded.unwrap_or_else(|problems| panic!("{}\n{text}", config::render(&problems))).config
    }

    #[test]
    fn a_new_file_reads_back_as_the_answers() {
        let texts = |some: &[&str]| some.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let answers = SetupAnswers {
            hostname: "mx.example.com".to_owned(),
            domains: texts(&["example.com", "example.org"]),
            relay_from: texts(&["192.0.2.0/24"]),
            smart_hosts: texts(&["smtp.example.net:587"]),
            certificates: texts(&["/c.pem"]),
            keys: texts(&["/k.pem"]),
            listen: Some(texts(&[":25"])),
        };
        let text = text(&answers);
        let config = read(&text);
        let again = SetupAnswers::of_config(&config, Some(&text));
        assert_eq!(again, SetupAnswers { listen: None, ..answers });
        assert_eq!(config.http.address, HTTP_ADDRESS);
        assert!(config.listen.iter().all(|one| one.address.ip().is_unspecified() && one.address.port() == 25));
    }

    #[test]
    fn what_has_no_answer_is_an_example_behind_a_hash() {
        let answers = SetupAnswers { hostname: "mx.example.com".to_owned(), ..SetupAnswers::default() };
        let text = text(&answers);
        let config = read(&text);
        assert!(config.local.domains.is_empty() && config.route.smart_host.is_empty());
        assert!(config.listen.iter().all(|one| one.address.ip().is_loopback()));
        // Each example is one that the reader takes.
        let examples: String = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') && !rest.is_empty() => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_eq!(read(&examples).local.domains.len(), 1);
    }
}

//! The questions: on standard error, answers from standard input, so that a script can give them too.

use super::SetupArguments;
use super::answers::{EVERYWHERE, SetupAnswers};
use crate::exit::{Exit, Failure};
use crate::terminal_text::plain;
use server::config::{self, Machine};
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};

/// Stands for an empty list.
const NONE: &str = "-";

/// Returns the answers of the flags, and asks for the others unless `--yes` is given. A value without an answer stays.
///
/// # Errors
/// Standard input ends, or a flag has a value that cannot stand in the file.
pub(super) fn ask(arguments: &SetupArguments, present: SetupAnswers) -> Result<SetupAnswers, Failure> {
    let asks = !arguments.yes && !arguments.dry_run;
    let one = |value: &Option<String>| value.clone().map(|value| vec![value]);
    let file = |value: &Option<PathBuf>| value.as_ref().map(|path| absolute(path)).map(|path| vec![path]);
    let question = |key, text| Question { key, text, is_list: true };
    let hostname = Question { key: "hostname", text: "Full name of this host", is_list: false };
    let name = hostname.settle(one(&arguments.hostname), vec![present.hostname], asks)?;
    let domains = question("local.domains", "Domains whose mail is delivered on this host").settle(
        arguments.domains.clone(),
        present.domains,
        asks,
    )?;
    let relay_from = question("relay.from", "Networks that may send anywhere through it").settle(
        arguments.relay_from.clone(),
        present.relay_from,
        asks,
    )?;
    let smart_hosts = question("route.smart_host", "Host that takes all mail for other places (none: their MX hosts)")
        .settle(arguments.smart_host.clone(), present.smart_hosts, asks)?;
    let certificates = question("tls.certificate", "Certificate file for TLS, with its chain").settle(
        file(&arguments.certificate),
        present.certificates,
        asks,
    )?;
    let keys = match certificates.is_empty() {
        true => Vec::new(),
        false => question("tls.key", "Key file of the certificate").settle(file(&arguments.key), present.keys, asks)?,
    };
    let hostname = name.into_iter().next().unwrap_or_default();
    let mut answers = SetupAnswers { hostname, domains, relay_from, smart_hosts, certificates, keys, ..present };
    if answers.listen.is_some() && answers.is_for_others() {
        answers.listen = Some(vec![EVERYWHERE.to_owned()]);
    }
    if let Some(listen) = &arguments.listen {
        answers.listen = Some(listen.clone());
    }
    Ok(answers)
}

/// Asks whether the file is to be written.
///
/// # Errors
/// Standard input ends.
pub(super) fn confirm(path: &Path) -> Result<bool, Failure> {
    let answer = line(&format!("Write {}? [y/N] ", path.display()))?;
    Ok(matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// A question for the value of a key.
#[derive(Clone, Copy)]
struct Question {
    key: &'static str,
    text: &'static str,
    /// The answer may have several words, or none.
    is_list: bool,
}

impl Question {
    fn settle(self, flag: Option<Vec<String>>, present: Vec<String>, asks: bool) -> Result<Vec<String>, Failure> {
        if let Some(values) = flag {
            let values: Vec<String> = values.into_iter().filter(|value| !value.is_empty() && value != NONE).collect();
            return match self.fault(&values) {
                None => Ok(values),
                Some(fault) => Err(Failure::new(Exit::Usage, fault)),
            };
        }
        if !asks {
            return Ok(present);
        }
        loop {
            let shown = if present.is_empty() { "none".to_owned() } else { present.join(" ") };
            let answer = line(&format!("{} [{}]: ", self.text, plain(&shown)))?;
            let values = match answer.as_str() {
                "" => return Ok(present),
                NONE if self.is_list => Vec::new(),
                text => text.split_whitespace().map(str::to_owned).collect(),
            };
            match self.fault(&values) {
                None => return Ok(values),
                Some(fault) => eprintln!("{}", plain(&fault)),
            }
        }
    }

    /// Returns why the values cannot stand in the file.
    fn fault(self, values: &[String]) -> Option<String> {
        // A certificate and its key stand only together, so they are checked with the whole file.
        if self.key.starts_with("tls.") {
            return None;
        }
        let texts: Vec<String> = values.iter().map(|value| toml_edit::Value::from(value).to_string()).collect();
        let text = match (self.is_list, texts.as_slice()) {
            (true, texts) => format!("{} = [{}]", self.key, texts.join(", ")),
            (false, [one]) => format!("{} = {one}", self.key),
            (false, _) => return Some(format!("{}: one word, as in mx.example.com", self.key)),
        };
        let problems = config::load_bytes(text.into_bytes(), None, &[], &Machine::default()).err()?;
        // Whether keys fit each other is seen when all answers are there.
        let fault = problems.into_iter().find(|problem| problem.key.starts_with(self.key))?;
        let advice = fault.suggestion.into_iter().chain(Some(fault.expected).filter(|text| !text.is_empty())).next();
        let advice = advice.map(|text| format!("; {text}")).unwrap_or_default();
        Some(format!("{}: {}{advice}", self.key, fault.text))
    }
}

/// Prompts, and reads a line without blanks around it.
fn line(prompt: &str) -> Result<String, Failure> {
    let failed = |error: &io::Error| Failure::io("standard input", error);
    eprint!("{prompt}");
    io::stderr().flush().map_err(|error| failed(&error))?;
    let mut text = String::new();
    match io::stdin().lock().read_line(&mut text).map_err(|error| failed(&error))? {
        0 => Err(Failure::new(Exit::Usage, "standard input ended before an answer; --yes asks nothing")),
        _ => Ok(text.trim().to_owned()),
    }
}

/// Returns the full name of a file.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_cannot_stand_in_the_file_are_refused_at_once() {
        let fault = |key, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
            Question { key, text: "", is_list: key != "hostname" }.fault(&values)
        };
        for (key, good) in [
            ("hostname", &["mx.example.com"][..]),
            ("local.domains", &["example.com", "example.org"]),
            ("relay.from", &["192.0.2.0/24", "2001:db8::/32"]),
            ("relay.from", &[]),
            ("route.smart_host", &["smtp.example.net:587"]),
        ] {
            assert_eq!(fault(key, good), None);
        }
        for (key, bad) in [
            ("hostname", &["mx example"][..]),
            ("hostname", &[]),
            ("local.domains", &["exa mple.com"]),
            ("relay.from", &["192.0.2.0/33"]),
            ("route.smart_host", &["smtp.example.net:x"]),
        ] {
            assert!(fault(key, bad).is_some_and(|text| text.starts_with(key)), "{key} {bad:?}");
        }
    }
}

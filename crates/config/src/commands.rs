//! The output of `mailrace check` and `mailrace config …`. Arguments are read and exit statuses chosen elsewhere.

use super::generate::{change_words, default_words, example, example_text, value_words, words, wrapped};
use super::loaded::Loaded;
use super::own_keys::may_be_shared;
use super::parameter::Parameter;
use super::parameters::{all, section_of};
use super::problem::{Problem, Severity, render};
use super::reader::meant;
use super::show;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// How a text is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines for a person.
    Text,
    /// JSON on one line.
    Json,
}

/// The outcome of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The text to print, with its line end.
    pub text: String,
    /// False if there is an error: exit status `EX_CONFIG`, 78.
    pub is_ok: bool,
}

/// `config show`: each value, its default and where it was set; all of them, or those with `keys` or below them.
///
/// The text is TOML that reads back as the same configuration.
/// # Errors
/// A key that does not exist, with the key that may have been meant.
pub fn show(loaded: &Loaded, keys: &[String], form: Form) -> Result<String, String> {
    if let Some(unknown) = keys.iter().find(|key| below(key).is_empty()) {
        return Err(unknown_key(unknown));
    }
    Ok(match form {
        Form::Text => show::text(loaded, keys),
        Form::Json => format!("{}\n", show::json_list(loaded, keys)),
    })
}

/// Every value in force, its default and where it was set, for other programs. Addresses of webhooks lack their query,
/// which may hold a secret: clients that may only look get the values, too.
#[must_use]
pub fn values(loaded: &Loaded) -> Vec<Value> {
    let Value::Array(mut values) = show::json_list(loaded, &[]) else { return Vec::new() };
    for fields in values.iter_mut().filter_map(Value::as_object_mut) {
        let is_url = |key: &str| key.starts_with("webhook") && key.ends_with(".url");
        if fields.get("key").and_then(Value::as_str).is_some_and(is_url)
            && let Some(Value::String(url)) = fields.get_mut("value")
            && let Some(at) = url.find('?')
        {
            url.truncate(at);
        }
    }
    values
}

/// `config explain KEY`: everything about a key; of a table, a line for each of its keys.
///
/// # Errors
/// A key that does not exist, with the key that may have been meant.
pub fn explain(key: &str, form: Form) -> Result<String, String> {
    let key = key.trim_start_matches('[').trim_end_matches(']');
    let found = below(key);
    if found.is_empty() {
        return Err(unknown_key(key));
    }
    Ok(match form {
        Form::Json => format!("{}\n", Value::Array(found.iter().map(|parameter| parameter_json(parameter)).collect())),
        Form::Text => match found.as_slice() {
            [parameter] if parameter.key == key => one(parameter),
            many => list(many),
        },
    })
}

/// `config defaults`: the annotated example.
#[must_use]
pub fn defaults() -> String {
    example()
}

/// `check`: one line if the configuration can be used, with its warnings; else all problems.
///
/// `file_problems` are those of [`super::check_files`]; without a configuration there are none.
#[must_use]
pub fn check(
    path: Option<&Path>,
    loaded: &Result<Loaded, Vec<Problem>>,
    file_problems: &[Problem],
    form: Form,
) -> Checked {
    let found = match loaded {
        Ok(loaded) => loaded.warnings.as_slice(),
        Err(problems) => problems,
    };
    let mut problems: Vec<Problem> = found.iter().chain(file_problems).cloned().collect();
    problems.sort_by(|a, b| a.order().cmp(&b.order()));
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let is_ok = errors == 0;
    let warnings = problems.len() - errors;
    let keys = loaded.as_ref().map_or(0, Loaded::keys_set);
    let name = path.map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
    let text = match form {
        Form::Json => {
            let problems: Vec<Value> = problems.iter().map(Problem::json).collect();
            let file = path.map(|path| path.display().to_string());
            format!(
                "{}\n",
                json!({ "file": file, "ok": is_ok, "keys_set": keys, "errors": errors, "warnings": warnings, "problems": problems })
            )
        }
        Form::Text => {
            let mut text = render(&problems);
            if !text.is_empty() {
                text.push('\n');
            }
            let said = if is_ok {
                format!("{name}: ok, {} set, {}", counted(keys, "key"), counted(warnings, "warning"))
            } else {
                format!("{name}: {}, {}", counted(errors, "error"), counted(warnings, "warning"))
            };
            text + &said + "\n"
        }
    };
    Checked { text, is_ok }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The parameters with this key or below it.
fn below(key: &str) -> Vec<&'static Parameter> {
    let keys = [key.to_owned()];
    if key.is_empty() { Vec::new() } else { all().filter(|parameter| show::is_wanted(parameter, &keys)).collect() }
}

fn unknown_key(key: &str) -> String {
    format!("unknown key \"{key}\"; {}", meant(key))
}

fn one(parameter: &Parameter) -> String {
    let mut text = format!("{}: {}\n\n", parameter.key, parameter.summary);
    let mut add = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _infallible = writeln!(text, "  {name:<10}{value}");
    };
    add("value", &parameter.kind.expected());
    for (word, meaning) in words(parameter) {
        add("", &format!("\"{word}\": {meaning}"));
    }
    add("default", &default_words(parameter));
    add("example", &format!("{} = {}", parameter.name(), example_text(parameter)));
    add("change", change_words(parameter));
    add("cluster", cluster_words(parameter));
    add("since", parameter.since);
    if !parameter.reason.is_empty() {
        text.push('\n');
        text.push_str(&wrapped(parameter.reason, 90, "  "));
    }
    text
}

/// Whether `mailrace cluster push` may give the key to all nodes.
fn cluster_words(parameter: &Parameter) -> &'static str {
    match may_be_shared(section_of(parameter), parameter) {
        true => "in the own file of a node, or in the shared one (mailrace cluster push)",
        false => "in the own file of each node",
    }
}

fn list(parameters: &[&Parameter]) -> String {
    let width = parameters.iter().map(|parameter| parameter.key.len()).max().unwrap_or_default();
    let line = |parameter: &&Parameter| {
        format!(
            "{:<width$}  {}\n{:<width$}  default: {}\n",
            parameter.key,
            parameter.summary,
            "",
            default_words(parameter)
        )
    };
    parameters.iter().map(line).collect()
}

fn parameter_json(parameter: &Parameter) -> Value {
    let words: Vec<Value> =
        words(parameter).iter().map(|(word, meaning)| json!({ "word": word, "meaning": meaning })).collect();
    json!({
        "key": parameter.key, "summary": parameter.summary, "value": value_words(parameter),
        "expected": parameter.kind.expected(), "words": words, "default": default_words(parameter),
        "example": example_text(parameter), "change": change_words(parameter), "since": parameter.since,
        "shared": may_be_shared(section_of(parameter), parameter), "reason": parameter.reason,
    })
}

//! Walks the TOML of a file along the table of parameters and keeps what it understands.
//!
//! Nothing ends the walk: each key that is unknown, each value that does not fit and each fault of the syntax becomes a
//! problem, and the rest is read. Defaults and rules between values come later.

use super::instance::table_name;
use super::kind::{Kind, Misfit, did_you_mean};
use super::own_keys::{leads_out, may_be_shared, own_only};
use super::parameter::{Parameter, Section};
use super::parameters::{SECTIONS, all, find, section, section_of};
use super::problem::{Problem, Severity, Source, SourceLocation};
use super::suggestion::nearest;
use super::toml_string::quoted;
use super::value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it was set.
#[derive(Clone, Debug)]
pub(crate) struct ConfiguredValue {
    pub(crate) value: Value,
    pub(crate) place: SourceLocation,
}

/// The values set in a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Where it begins; none for tables that are no list.
    pub(crate) place: Option<SourceLocation>,
    /// By key.
    pub(crate) given: BTreeMap<&'static str, ConfiguredValue>,
}

/// The values that the reader understood.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// By the key of the section. Without `[[…]]` there is one table at most.
    pub(crate) tables: BTreeMap<&'static str, Vec<Table>>,
    /// Keys with a value that does not fit; rules do not look at them.
    pub(crate) unread: BTreeSet<&'static str>,
}

impl Draft {
    /// Lays the values of another file over these: a key replaces a key, a list of tables a list of tables.
    pub(crate) fn lay_over(&mut self, above: Self) {
        for (key, tables) in above.tables {
            let is_list = section(key).is_some_and(|section| section.group.is_some());
            match self.tables.get_mut(key).and_then(|below| below.first_mut()).filter(|_| !is_list) {
                Some(below) => below.given.extend(tables.into_iter().flat_map(|table| table.given)),
                None => drop(self.tables.insert(key, tables)),
            }
        }
        self.unread.extend(above.unread);
    }
}

/// Faults of the syntax, and lines about which nothing else is said.
#[derive(Default)]
struct Faults {
    hidden: BTreeSet<usize>,
    problems: Vec<Problem>,
}

/// Reads a text into a draft.
pub(crate) struct Reader<'a> {
    pub(crate) source: Source<'a>,
    /// Relative paths begin here.
    pub(crate) base: Option<&'a Path>,
    /// The file is the one that all nodes of a cluster share.
    pub(crate) is_shared: bool,
    pub(crate) draft: &'a mut Draft,
    pub(crate) problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    /// Reads a file.
    pub(crate) fn document(&mut self, text: &str) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let before = self.problems.len();
        self.table("", table.get_ref());
        let found = self.problems.split_off(before);
        let faults = self.faults(text, &errors);
        self.problems.extend(found.into_iter().filter(|problem| !faults.hidden.contains(&problem.line)));
        self.problems.extend(faults.problems);
    }

    /// Problems of the syntax. A value read near a fault may be half of something, so only the fault itself counts.
    fn faults(&self, text: &str, errors: &[toml::de::Error]) -> Faults {
        let mut faults = Faults::default();
        let mut last: Option<(usize, &str)> = None;
        for error in errors {
            let place = self.source.place(&error.span().unwrap_or_default());
            // The parser says the same again on lines that an open bracket has swallowed.
            let is_echo = last.is_some_and(|(line, said)| line + 1 >= place.line && said == error.message());
            last = Some((place.line, error.message()));
            if !faults.hidden.insert(place.line) || is_echo {
                continue;
            }
            if place.source.trim_start().starts_with('[') {
                // The keys below a broken [table] are not those of the table above it.
                let below = text.lines().skip(place.line).take_while(|line| !line.trim_start().starts_with('['));
                faults.hidden.extend(place.line + 1..=place.line + below.count());
            }
            let text = format!("not TOML: {}", error.message());
            let mut problem = SourceLocation::problem(Some(&place), Severity::Error, "", text);
            problem.suggestion = syntax_help(error.message(), &place.source);
            faults.problems.push(problem);
        }
        faults
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let full =
                if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
            self.entry(&full, key.span(), value);
        }
    }

    fn entry(&mut self, full: &str, key: std::ops::Range<usize>, value: &Spanned<DeValue<'_>>) {
        // A key of a [[table]] has a meaning in such a table only.
        let parameter = find(full).filter(|parameter| group_of(parameter.key).is_none());
        if self.is_shared && !shareable(full) {
            let (text, suggestion) = own_only(full);
            self.problems.push(Problem { suggestion: Some(suggestion), ..self.problem(&key, full, text) });
        } else if let Some(group) = section(full).filter(|section| section.group.is_some()) {
            self.group(group, &key, value);
        } else if let Some(parameter) = parameter {
            if let Some(given) = self.given(parameter, parameter.key, value) {
                let tables = self.draft.tables.entry(section_of(parameter).key).or_default();
                if tables.is_empty() {
                    tables.push(Table::default());
                }
                if let Some(table) = tables.first_mut() {
                    table.given.insert(parameter.key, given);
                }
            }
        } else if is_table(full) {
            match value.get_ref() {
                DeValue::Table(table) => self.table(full, table),
                _ => {
                    let keys: Vec<&str> = all()
                        .map(|p| p.key)
                        .filter(|k| k.strip_prefix(full).is_some_and(|k| k.starts_with('.')))
                        .collect();
                    let some = keys.get(..3.min(keys.len())).unwrap_or_default().join(", ");
                    let mut problem = self.problem(&key, full, format!("\"{full}\" is a table, not a value"));
                    problem.suggestion = Some(format!("its keys are {some}{}", if keys.len() > 3 { " …" } else { "" }));
                    self.problems.push(problem);
                }
            }
        } else {
            let is_table = match value.get_ref() {
                DeValue::Table(_) => true,
                DeValue::Array(items) => items.iter().any(|item| item.get_ref().is_table()),
                _ => false,
            };
            let what = if is_table { "table" } else { "key" };
            let mut problem = self.problem(&key, full, format!("unknown {what} \"{}\"", short(full)));
            problem.suggestion = Some(meant(full));
            self.problems.push(problem);
        }
    }

    /// Reads a `[[list of tables]]`, or the same as an array of inline tables.
    pub(crate) fn group(
        &mut self,
        group: &'static Section,
        key: &std::ops::Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let tables = match value.get_ref() {
            DeValue::Array(tables) => tables,
            other => {
                let text = match other {
                    DeValue::Table(_) => format!("\"{}\" is a list of tables", group.key),
                    _ => format!("\"{}\" is a list of tables, not a value", group.key),
                };
                let mut problem = self.problem(key, group.key, text);
                problem.suggestion = Some(format!("write [[{}]] above its keys", group.key));
                self.problems.push(problem);
                self.draft.unread.extend(group.parameters.iter().map(|parameter| parameter.key));
                return;
            }
        };
        for (index, table) in tables.iter().enumerate() {
            let DeValue::Table(inner) = table.get_ref() else {
                let text = format!("an item of \"{}\" is no table", group.key);
                let mut problem = self.problem(&table.span(), group.key, text);
                problem.suggestion = Some(format!("write [[{}]] above its keys", group.key));
                self.problems.push(problem);
                continue;
            };
            let read = self.group_table(group, index, self.source.place(&table.span()), inner);
            self.draft.tables.entry(group.key).or_default().extend(read);
        }
    }

    fn group_table(
        &mut self,
        group: &'static Section,
        index: usize,
        place: SourceLocation,
        table: &DeTable<'_>,
    ) -> Vec<Table> {
        let mut read = Table { place: Some(place), given: BTreeMap::new() };
        let mut misread = BTreeSet::new();
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (name, value) in entries {
            let instance = format!("{}.{}", table_name(group.key, index), name.get_ref());
            let parameter = group.parameters.iter().find(|parameter| parameter.name() == name.get_ref().as_ref());
            let Some(parameter) = parameter else {
                let full = format!("{}.{}", group.key, name.get_ref());
                let mut problem = self.problem(&name.span(), instance, format!("unknown key \"{}\"", short(&full)));
                let near = nearest(name.get_ref(), group.parameters.iter().map(Parameter::name));
                // Its place is taken: that it is missing as well need not be said.
                misread.extend(group.parameters.iter().filter(|p| Some(p.name()) == near).map(|p| p.key));
                problem.suggestion = Some(near.map_or_else(|| meant(&full), did_you_mean));
                self.problems.push(problem);
                continue;
            };
            match self.given(parameter, &instance, value) {
                Some(given) => drop(read.given.insert(parameter.key, given)),
                None => drop(misread.insert(parameter.key)),
            }
        }
        for parameter in group.parameters {
            let is_required = matches!(parameter.preset, super::parameter::Preset::Required);
            if is_required && !read.given.contains_key(parameter.key) && !misread.contains(parameter.key) {
                let instance = format!("{}.{}", table_name(group.key, index), parameter.name());
                let text = format!("[[{}]] without \"{}\"", group.key, parameter.name());
                let mut problem = SourceLocation::problem(read.place.as_ref(), Severity::Error, instance, text);
                problem.expected = match parameter.kind {
                    // "A list of text" says nothing.
                    Kind::List { of: Kind::Text, .. } => format!("a list such as {}", parameter.example),
                    Kind::Text => format!("text such as \"{}\"", parameter.example),
                    kind => kind.expected(),
                };
                self.problems.push(problem);
                self.draft.unread.insert(parameter.key);
            }
        }
        spread(read)
    }

    /// Reads a value; a value that does not fit becomes problems.
    fn given(&mut self, parameter: &Parameter, key: &str, value: &Spanned<DeValue<'_>>) -> Option<ConfiguredValue> {
        let mut misfits = Vec::new();
        let read = parameter.kind.read(value, &mut misfits);
        let place = self.source.place(&value.span());
        match read {
            Some(value) => {
                if self.is_shared && leads_outside(&value) {
                    let text = format!("{key}: a path of the shared configuration leads out of its directory");
                    let mut problem = SourceLocation::problem(Some(&place), Severity::Error, key, text);
                    problem.suggestion = Some("put the file into the directory that is pushed".to_owned());
                    self.problems.push(problem);
                }
                Some(ConfiguredValue { value: self.resolved(value), place })
            }
            None => {
                self.misfits(parameter, key, misfits);
                None
            }
        }
    }

    /// Makes problems of values that do not fit.
    pub(crate) fn misfits(&mut self, parameter: &Parameter, key: &str, misfits: Vec<Misfit>) {
        self.draft.unread.insert(parameter.key);
        for misfit in misfits {
            let mut problem = self.problem(&misfit.span, key, format!("{key}: {}", misfit.text));
            problem.expected = misfit.expected;
            problem.suggestion = misfit.suggestion;
            self.problems.push(problem);
        }
    }

    fn resolved(&self, value: Value) -> Value {
        match (value, self.base) {
            (Value::Path(path), Some(base)) if !path.as_os_str().is_empty() => Value::Path(base.join(path)),
            (Value::List(items), Some(_)) => Value::List(items.into_iter().map(|item| self.resolved(item)).collect()),
            (value, _) => value,
        }
    }

    fn problem(&self, span: &std::ops::Range<usize>, key: impl Into<String>, text: String) -> Problem {
        SourceLocation::problem(Some(&self.source.place(span)), Severity::Error, key, text)
    }
}

/// Whether a key or a list of tables may stand in the shared file; others are judged elsewhere.
fn shareable(full: &str) -> bool {
    let list = section(full).filter(|section| section.group.is_some());
    let first = list.and_then(|section| Some((section, section.parameters.first()?)));
    let found = first.or_else(|| find(full).map(|parameter| (section_of(parameter), parameter)));
    found.is_none_or(|(section, parameter)| may_be_shared(section, parameter))
}

fn leads_outside(value: &Value) -> bool {
    match value {
        Value::Path(path) => leads_out(path),
        Value::List(values) | Value::Each(values) => values.iter().any(leads_outside),
        _ => false,
    }
}

/// A table for each value of a [`Value::Each`] in it.
pub(crate) fn spread(table: Table) -> Vec<Table> {
    let each = table.given.iter().find_map(|(key, given)| match &given.value {
        Value::Each(values) => Some((*key, values.clone())),
        _ => None,
    });
    let Some((key, values)) = each else { return vec![table] };
    let one = |value| {
        let mut table = table.clone();
        if let Some(given) = table.given.get_mut(key) {
            given.value = value;
        }
        table
    };
    values.into_iter().map(one).collect()
}

/// True if tables or keys begin with this and a dot.
fn is_table(key: &str) -> bool {
    let is_above = |other: &str| other.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    !key.is_empty() && SECTIONS.iter().any(|section| is_above(section.key))
}

/// The list of tables that a key stands in.
fn group_of(key: &str) -> Option<&'static Section> {
    key.rsplit_once('.').and_then(|(table, _)| section(table)).filter(|section| section.group.is_some())
}

/// Returns the existing key that is nearest to an unknown one, in a sentence.
pub(crate) fn meant(full: &str) -> String {
    let (table, name) = full.rsplit_once('.').unwrap_or(("", full));
    // In a table that exists only the name can be wrong; letters that are right already should not count for it.
    let near = match section(table).filter(|_| !table.is_empty()) {
        Some(section) => {
            let name = nearest(name, section.parameters.iter().map(Parameter::name));
            section.parameters.iter().find(|parameter| Some(parameter.name()) == name).map(|parameter| parameter.key)
        }
        // The right name without its table is spoken of below.
        None if table.is_empty() && all().any(|parameter| parameter.name() == name) => None,
        None => {
            let tables = SECTIONS.iter().map(|section| section.key).filter(|key| !key.is_empty());
            nearest(full, all().map(|parameter| parameter.key).chain(tables))
        }
    };
    if let Some(near) = near {
        return did_you_mean(near);
    }
    let list = || format!("\"mailrace config explain {table}\" lists the keys of the table");
    // The right name in the wrong table.
    let same: Vec<&str> = all().filter(|parameter| parameter.name() == name).map(|parameter| parameter.key).collect();
    match same.as_slice() {
        [] if is_table(table) => list(),
        [] => "\"mailrace config defaults\" prints all keys".to_owned(),
        [key] if !key.contains('.') => format!("\"{key}\" stands before the first [table]"),
        keys => {
            let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            let meant = format!("did you mean {}?", keys.join(" or "));
            // The same name elsewhere may be something else.
            if is_table(table) { format!("{meant} {}", list()) } else { meant }
        }
    }
}

/// Returns a key from the file, cut to a readable length.
fn short(key: &str) -> String {
    let mut text: String = key.chars().take(80).collect();
    if text.len() < key.len() {
        text.push('…');
    }
    text
}

/// Returns help for the usual faults of lines that are not TOML.
fn syntax_help(message: &str, line: &str) -> Option<String> {
    let help = |text: &str| Some(text.to_owned());
    let value = line.split_once('=').map(|(_, value)| value.split('#').next().unwrap_or_default().trim());
    if message.starts_with("string values must be quoted") {
        return match value {
            None | Some("") => help("a value is missing behind \"=\""),
            Some(value) => Some(format!("write text in quotes: {}", quoted(value))),
        };
    }
    if message.starts_with("key with no value") {
        return help("a line is KEY = VALUE");
    }
    if message.contains("escape") {
        return help("write \"\\\\\" for a backslash, or put the text in single quotes");
    }
    if message.starts_with("missing comma") {
        return help("a comma or the closing \"]\" is missing before this");
    }
    if message.starts_with("duplicate key") {
        return help("it is there already; put both together, or remove one");
    }
    None
}

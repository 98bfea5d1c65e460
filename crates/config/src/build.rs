//! From a text to a configuration: reads it, fills in defaults, checks rules, remembers where each value came from.

use super::loaded::{Loaded, Places};
use super::overrides;
use super::parameter::{Parameter, Preset, Section};
use super::parameters::SECTIONS;
use super::problem::{Problem, Severity, Source, SourceLocation};
use super::reader::{ConfiguredValue, Draft, Reader, Table};
use super::{Config, Machine, blank, rules};
use std::collections::BTreeSet;
use std::path::Path;

/// Reads a configuration: the text of the file at `path`, changed by overrides `KEY=VALUE`, on a machine.
///
/// Without a file the text is empty and there is no path. Relative paths in the file begin at its directory.
/// # Errors
/// All problems, at least one of them an error, in the order of the file.
pub fn load(text: &str, path: Option<&Path>, overrides: &[String], machine: &Machine) -> Result<Loaded, Vec<Problem>> {
    load_layers(None, text, path, overrides, machine)
}

/// The same, over the text and the name of a shared file.
pub(crate) fn load_layers(
    shared: Option<(&str, Option<&Path>)>,
    text: &str,
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    let (mut loaded, mut problems) = read(shared, text, path, overrides, machine);
    problems.extend(rules::check(&loaded));
    problems.sort_by(|a, b| a.order().cmp(&b.order()));
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    loaded.warnings = problems;
    Ok(loaded)
}

/// The same without the rules between values; an unreadable value has its default.
pub(crate) fn read(
    shared: Option<(&str, Option<&Path>)>,
    text: &str,
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> (Loaded, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut draft = shared.map(|(text, path)| layer(text, path, true, &mut problems)).unwrap_or_default();
    draft.lay_over(layer(text, path, false, &mut problems));
    for text in overrides {
        overrides::apply(text, &mut draft, &mut problems);
    }
    let (config, places) = build(draft, machine);
    let (path, shared) = (path.map(Path::to_owned), shared.and_then(|(_, path)| path).map(Path::to_owned));
    (Loaded { config, warnings: Vec::new(), path, shared, machine: machine.clone(), places }, problems)
}

/// Reads one file.
fn layer(text: &str, path: Option<&Path>, is_shared: bool, problems: &mut Vec<Problem>) -> Draft {
    let mut draft = Draft::default();
    let file = path.map_or_else(String::new, |path| path.display().to_string());
    // A byte order mark of some editors is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let base = path.and_then(Path::parent);
    let source = Source::new(&file, text);
    Reader { source, base, is_shared, draft: &mut draft, problems }.document(text);
    draft
}

/// Makes the values of a draft and of the defaults a configuration.
fn build(mut draft: Draft, machine: &Machine) -> (Config, Places) {
    fill(blank::config(0), &mut draft, machine)
}

/// The same over a configuration of which nothing is left, which a test wants to see.
pub(crate) fn fill(mut config: Config, draft: &mut Draft, machine: &Machine) -> (Config, Places) {
    let mut places = Places { unread: std::mem::take(&mut draft.unread), ..Places::default() };
    let mut derived: Vec<(&'static Parameter, usize)> = Vec::new();
    let mut given = BTreeSet::new();
    for section in SECTIONS {
        let tables = tables_of(section, draft, machine, &mut config);
        for (index, table) in tables.iter().enumerate() {
            if let Some(place) = &table.place {
                places.tables.insert((section.key, index), place.clone());
            }
            for parameter in section.parameters {
                match (table.given.get(parameter.key), parameter.fixed()) {
                    (Some(one), _) => {
                        parameter.set(&mut config, index, &one.value);
                        given.insert(parameter.key);
                        if one.place.line > 0 {
                            places.given.insert((parameter.key, index), one.place.clone());
                        }
                    }
                    (None, Some(value)) => parameter.set(&mut config, index, &value),
                    (None, None) => derived.push((parameter, index)),
                }
            }
        }
    }
    for (parameter, index) in &derived {
        if let Preset::Derived { value, .. } = parameter.preset {
            let value = value(&config, machine, *index);
            parameter.set(&mut config, *index, &value);
        }
    }
    // They may look at those.
    for (parameter, index) in derived {
        if let Preset::ConfiguredValue { value, .. } = parameter.preset {
            let value = value(&config, &given);
            parameter.set(&mut config, index, &value);
        }
    }
    (config, places)
}

/// The tables of a section as they were given, or as they are by default, with room for them in the configuration.
fn tables_of(section: &'static Section, draft: &mut Draft, machine: &Machine, config: &mut Config) -> Vec<Table> {
    let mut tables = draft.tables.remove(section.key).unwrap_or_default();
    let Some(group) = section.group else {
        tables.resize_with(1, Table::default);
        return tables;
    };
    if tables.is_empty() {
        tables = (group.preset)(machine).iter().map(|table| preset_table(section, table)).collect();
    }
    for _ in &tables {
        (group.push)(config);
    }
    tables
}

fn preset_table(section: &'static Section, texts: &[(&str, &str)]) -> Table {
    let mut table = Table::default();
    for parameter in section.parameters {
        if let Some((_, text)) = texts.iter().find(|(name, _)| *name == parameter.name()) {
            let value = parameter.kind.read_bare(text).expect("a test of the table reads all defaults");
            let place = SourceLocation { file: String::new(), line: 0, column: 0, width: 0, source: String::new() };
            table.given.insert(parameter.key, ConfiguredValue { value, place });
        }
    }
    table
}

impl Config {
    /// The defaults on a machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        build(Draft::default(), machine).0
    }
}

impl Default for Config {
    /// The defaults on [`Machine::default`].
    fn default() -> Self {
        Self::new(&Machine::default())
    }
}

//! `--set KEY=VALUE` of the command line: the same keys and kinds, over the file.
//!
//! A value is TOML; text needs no quotes. A list of tables is set as a whole: `listen=[{address = ":25"}]`. Relative
//! paths begin at the working directory.

use super::parameters::{find, section, section_of};
use super::problem::{OVERRIDES_FILE, Problem, Severity, Source, SourceLocation};
use super::reader::{ConfiguredValue, Draft, Reader, Table, meant};
use toml::de::DeValue;

/// Applies one override; its value replaces that of the file.
pub(crate) fn apply(text: &str, draft: &mut Draft, problems: &mut Vec<Problem>) {
    let source = Source::new(OVERRIDES_FILE, text);
    let whole = source.place(&(0..text.len()));
    let Some((key, value)) = text.split_once('=') else {
        let mut problem = SourceLocation::problem(Some(&whole), Severity::Error, "", "there is no \"=\"");
        problem.expected = "KEY=VALUE, such as log.level=10".to_owned();
        problems.push(problem);
        return;
    };
    let at = key.len() + 1 + (value.len() - value.trim_start().len());
    let (key, value) = (key.trim(), value.trim());
    if let Some(group) = section(key).filter(|section| section.group.is_some()) {
        let (read, errors) = DeValue::parse_recoverable(value);
        // Places count from the value on.
        let source = Source::new(OVERRIDES_FILE, text.get(at..).unwrap_or_default());
        if let Some(error) = errors.first() {
            let place = source.place(&error.span().unwrap_or_default());
            let text = format!("{key}: not TOML: {}", error.message());
            problems.push(SourceLocation::problem(Some(&place), Severity::Error, key, text));
            return;
        }
        draft.tables.remove(group.key);
        Reader { source, base: None, is_shared: false, draft, problems }.group(group, &read.span(), &read);
        return;
    }
    let parameter = find(key).filter(|parameter| section_of(parameter).group.is_none());
    let Some(parameter) = parameter else {
        let place = source.place(&(0..key.len()));
        let mut problem = SourceLocation::problem(Some(&place), Severity::Error, key, format!("unknown key \"{key}\""));
        problem.suggestion = match key.rsplit_once('.').and_then(|(table, _)| section(table)) {
            Some(group) if group.group.is_some() => {
                Some(format!("{} is a list of tables; set it as a whole: {}=[{{…}}]", group.key, group.key))
            }
            _ => Some(meant(key)),
        };
        problems.push(problem);
        return;
    };
    match parameter.kind.read_bare(value) {
        Ok(read) => {
            let tables = draft.tables.entry(section_of(parameter).key).or_default();
            if tables.is_empty() {
                tables.push(Table::default());
            }
            if let Some(table) = tables.first_mut() {
                table.given.insert(parameter.key, ConfiguredValue { value: read, place: whole });
            }
        }
        Err(mut misfits) => {
            for misfit in &mut misfits {
                misfit.span = misfit.span.start + at..misfit.span.end + at;
            }
            Reader { source, base: None, is_shared: false, draft, problems }.misfits(parameter, key, misfits);
        }
    }
}

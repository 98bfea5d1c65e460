//! Files of maps: aliases as text have a syntax of their own, all others are as `makemap` reads them.

use mail::Domain;
use route::Table;
use route::alias::parse_aliases;
use route::class::Classes;
use route::map::{Complaint, Format, MapFile, MapLimits};

/// Reads a file of the map `name`, and returns its defects, each with file and line.
///
/// # Errors
/// Nothing of it can be used.
pub(super) fn read(
    name: &str,
    file: &str,
    bytes: Vec<u8>,
    limits: &MapLimits,
    classes: &Classes,
) -> Result<(Table, Vec<String>), String> {
    let told = |complaint: &Complaint| {
        let line = complaint.line.map_or_else(String::new, |line| format!(" line {line}"));
        format!("{name} {file}{line}: {}", complaint.text)
    };
    if name == route::alias::NAME && Format::of(&bytes).is_ok_and(|format| format == Format::Text) {
        if bytes.len() as u64 > limits.file_bytes_max {
            return Err(format!(
                "{file}: it has {} octets; maps.size_max allows {}",
                bytes.len(),
                limits.file_bytes_max
            ));
        }
        let text = String::from_utf8_lossy(&bytes);
        let is_local = |domain: &str| Domain::parse(domain.as_bytes()).is_ok_and(|domain| classes.is_local(&domain));
        let read = parse_aliases(file, &text, &is_local);
        return Ok((read.table, read.complaints.iter().map(told).collect()));
    }
    let read =
        Table::read_within(MapFile { name, file, bytes, fold: true }, limits).map_err(|error| error.to_string())?;
    Ok((read.table, read.complaints.iter().map(told).collect()))
}

/// Returns the first entry that names a program: `/etc/aliases line 5: list`.
pub(super) fn program<'t>(tables: impl Iterator<Item = &'t Table>) -> Option<String> {
    let is_program = |value: &str| {
        value.match_indices('|').any(|(at, _)| {
            let before = value.get(..at).unwrap_or_default().trim_end_matches([' ', '\t', '"']);
            before.is_empty() || before.ends_with(',')
        })
    };
    tables.into_iter().find_map(|table| {
        let hit = table.iter().find(|hit| is_program(hit.value))?;
        let line = hit.line.map_or_else(String::new, |line| format!(" line {line}"));
        Some(format!("{}{line}: {}", table.file(), hit.key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_that_names_a_program() {
        let limits = MapLimits::default();
        let named = |text: &str| {
            let read = read("aliases", "/a", text.as_bytes().to_vec(), &limits, &Classes::default()).unwrap();
            program(std::iter::once(&read.0))
        };
        assert_eq!(named("a: joe\nb: joe, \"|/bin/x y\"\n").as_deref(), Some("/a line 2: b"));
        assert_eq!(named("a: |/bin/x\n").as_deref(), Some("/a line 1: a"));
        assert_eq!(named("a: joe, \"a|b\"@x.test, c|d@x.test\n"), None);
    }
}

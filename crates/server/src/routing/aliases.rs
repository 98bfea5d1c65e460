//! Files of maps: aliases have a syntax of their own, all others are as `makemap` reads them.

use route::Table;
use route::map::{Limits, Reading};

/// Reads a file of the map `name`, and says what is wrong in it, each with file and line.
///
/// # Errors
/// Nothing of it can be used.
pub(super) fn read(name: &str, file: &str, bytes: Vec<u8>, limits: &Limits) -> Result<(Table, Vec<String>), String> {
    let read =
        Table::read_within(Reading { name, file, bytes, fold: true }, limits).map_err(|error| error.to_string())?;
    let told = |complaint: &route::map::Complaint| {
        let line = complaint.line.map_or_else(String::new, |line| format!(" line {line}"));
        format!("{name} {file}{line}: {}", complaint.text)
    };
    let complaints = read.complaints.iter().map(told).collect();
    Ok((read.table, complaints))
}

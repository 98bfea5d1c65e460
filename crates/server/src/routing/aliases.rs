//! Files of maps: aliases as text have a syntax of their own, all others are as `makemap` reads them.

use mail::Domain;
use route::Table;
use route::alias::parse_aliases;
use route::class::Classes;
use route::map::{Complaint, Format, Limits, Reading};

/// Reads a file of the map `name`, and says what is wrong in it, each with file and line.
///
/// # Errors
/// Nothing of it can be used.
pub(super) fn read(
    name: &str,
    file: &str,
    bytes: Vec<u8>,
    limits: &Limits,
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
        Table::read_within(Reading { name, file, bytes, fold: true }, limits).map_err(|error| error.to_string())?;
    Ok((read.table, read.complaints.iter().map(told).collect()))
}

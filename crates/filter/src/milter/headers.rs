//! Header fields as filters see and change them.
//!
//! A filter is not shown the fields that this server put on top. The index of a change counts fields of one name from 1
//! among those shown, deleted ones included, so that deleting the first three fields of a name takes the indexes 1, 2
//! and 3. Each change applies to the result of the one before. sendmail counts the same way.

use super::edits::Edit;

/// A field of the header section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderField {
    /// Its name.
    pub name: Vec<u8>,
    /// The octets behind the colon, with CR LF in folds, without the last line end.
    pub value: Vec<u8>,
}

/// Applies changes of the header to `fields`, whose first `own` fields the filter was not shown. It passes changes of
/// the envelope over.
///
/// Returns the number of fields on top that the next filter is not shown; fields inserted above them count as shown by
/// none, since they stand above our own.
pub fn apply_header_edits(fields: &mut Vec<HeaderField>, own: usize, edits: &[Edit]) -> usize {
    let mut own = own.min(fields.len());
    let mut rows: Vec<Row> = fields.drain(..).map(Row::new).collect();
    for edit in edits {
        match edit {
            Edit::AddHeader { name, value } => rows.push(Row::of(name, value)),
            Edit::InsertHeader { index: 0, name, value } => {
                rows.insert(0, Row::of(name, value));
                own += 1;
            }
            Edit::InsertHeader { index, name, value } => {
                let at = own.saturating_add(to_usize(*index) - 1).min(rows.len());
                rows.insert(at, Row::of(name, value));
            }
            Edit::ChangeHeader { index, name, value } => {
                let nth = to_usize((*index).max(1)) - 1;
                let mut named = rows.iter_mut().skip(own).filter(|row| row.field.name.eq_ignore_ascii_case(name));
                match (named.nth(nth), value) {
                    (Some(row), Some(value)) => *row = Row::of(name, value),
                    (Some(row), None) => row.deleted = true,
                    (None, Some(value)) => rows.push(Row::of(name, value)),
                    (None, None) => {}
                }
            }
            Edit::AddRecipient { .. } | Edit::DeleteRecipient { .. } | Edit::ChangeSender { .. } => {}
        }
    }
    fields.extend(rows.into_iter().filter(|row| !row.deleted).map(|row| row.field));
    own
}

/// A field while changes are applied. A deleted one keeps its number.
struct Row {
    field: HeaderField,
    deleted: bool,
}

impl Row {
    const fn new(field: HeaderField) -> Self {
        Self { field, deleted: false }
    }

    fn of(name: &[u8], value: &[u8]) -> Self {
        Self::new(HeaderField { name: name.to_vec(), value: value.to_vec() })
    }
}

fn to_usize(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

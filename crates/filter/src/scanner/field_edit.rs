//! Changes of the header section as scanners ask for them, and as the milter protocol writes them.
//!
//! Scanners name fields by their number among those of a name, also from the end, or all of them. The stage applies one
//! kind of changes only, those of [`crate::milter`]; [`as_milter_edits`] turns the former into the latter for a given
//! header section.

use crate::milter::{Edit, HeaderField};

/// Which fields of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNumber {
    /// All of them.
    All,
    /// The n-th from the top, from 1.
    FromTop(u32),
    /// The n-th from the end, from 1.
    FromEnd(u32),
}

/// One change of the header section. Values are folded and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldEdit {
    /// Removes fields.
    Remove {
        /// The name.
        name: Vec<u8>,
        /// Which of them.
        number: FieldNumber,
    },
    /// Adds a field.
    Add {
        /// The name.
        name: Vec<u8>,
        /// The octets behind the colon, folded with CR LF, without the last line end.
        value: Vec<u8>,
        /// 0: above everything; n: as the n-th field of those that the scanner was shown; `None`: as the last.
        position: Option<u32>,
    },
}

/// Writes changes in the form of the milter protocol, for a message whose `shown` fields the scanner saw. Fields are
/// removed first, so that numbers mean the fields that the scanner counted.
#[must_use]
pub fn as_milter_edits(edits: &[FieldEdit], shown: &[HeaderField]) -> Vec<Edit> {
    let mut removed = Vec::new();
    let mut added = Vec::new();
    for edit in edits {
        match edit {
            FieldEdit::Remove { name, number } => {
                let count = shown.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                let remove = |index| Edit::ChangeHeader { index, name: name.clone(), value: None };
                match *number {
                    FieldNumber::All => removed.extend((1..=count).map(remove)),
                    FieldNumber::FromTop(n) if (1..=count).contains(&n) => removed.push(remove(n)),
                    FieldNumber::FromEnd(n) if (1..=count).contains(&n) => removed.push(remove(count - n + 1)),
                    FieldNumber::FromTop(_) | FieldNumber::FromEnd(_) => {}
                }
            }
            FieldEdit::Add { name, value, position } => added.push(match *position {
                Some(index) => Edit::InsertHeader { index, name: name.clone(), value: value.clone() },
                None => Edit::AddHeader { name: name.clone(), value: value.clone() },
            }),
        }
    }
    removed.extend(added);
    removed
}

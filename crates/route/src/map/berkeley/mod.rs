//! Berkeley DB: a stub to be replaced.
use super::{
    Format, Limits,
    complaint::{Complaints, Unreadable},
    storage::Packing,
};
pub(super) fn format_of(_: &[u8]) -> Result<Option<Format>, Unreadable> {
    Ok(None)
}
pub(super) fn read(_: &[u8], fold: bool, limits: &Limits, _: &mut Complaints) -> Result<Packing, Unreadable> {
    Ok(Packing::new(fold, limits))
}

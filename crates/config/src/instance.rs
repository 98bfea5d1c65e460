//! Names of values in tables of a list.

use super::parameter::Parameter;
use super::parameters::section_of;

/// The name of a table of a list, counted from 1 as people count: `listen[1]`.
pub(crate) fn table_name(key: &str, index: usize) -> String {
    format!("{key}[{}]", index + 1)
}

/// The name of a value of a parameter: `listen[1].address` in the first `[[listen]]`, `spool.path`.
pub(crate) fn instance(parameter: &Parameter, index: usize) -> String {
    let section = section_of(parameter);
    if section.group.is_some() {
        format!("{}.{}", table_name(section.key, index), parameter.name())
    } else {
        parameter.key.to_owned()
    }
}

//! The part of the configuration that touches the machine: reads its files and makes settings of other crates from
//! it.
//!
//! The values, their table and rules are those of the crate `config`, all of whose names are here too.

mod machine;
mod open;
mod real_files;
mod reasons;
mod settings;
mod shared_files;

pub use ::config::*;
pub use machine::this_machine;
pub(crate) use open::read_over_shared;
pub use open::{open, open_over, own_config};
pub use real_files::RealFiles;
pub use reasons::read_reasons;
pub(crate) use reasons::read_safe_reasons;
pub(crate) use settings::{smtp_settings, spool_settings};
pub use shared_files::{SHARED_FILE, SharedFiles};

/// Returns whether the C library is asked for users that the file of users lacks. A program that is linked statically
/// cannot ask it.
#[must_use]
pub(crate) fn has_nss(local: &Local) -> bool {
    local.allows_nss() && os::nss::is_there()
}

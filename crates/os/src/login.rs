//! A user of this machine, as a delivery needs it; the files of accounts and the C library both give it.

/// A user, with the fields of his line that a delivery needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Login {
    /// The login name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups, the primary one first.
    pub groups: Vec<u32>,
    /// The home directory; may be empty.
    pub home: String,
    /// The login shell; may be empty.
    pub shell: String,
}

//! Says to those that bring mail how much room the spool lacks.

/// The lack of room in the spool, and the server's reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// Room and time enough.
    None,
    /// Less than 20 % of the segments are left: delay the 250s.
    Slow,
    /// Less than 10 % are left: answer `452 4.3.1` to ordinary mail.
    Full,
    /// It takes no more writes: answer `421 4.3.0`, suspend deliveries.
    Poisoned,
}

//! The queue tools: what an operator may see of the queue and do to it while the server runs.

mod nudge;

pub use nudge::{DestinationState, Destinations, Down, Nobody, Nudge};

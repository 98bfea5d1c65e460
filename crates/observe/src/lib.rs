//! What happened, as typed events, and the lines that tell of it.

#![forbid(unsafe_code)]

//! Maps of each format.

mod text;

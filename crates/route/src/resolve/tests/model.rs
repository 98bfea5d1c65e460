//! Random maps.

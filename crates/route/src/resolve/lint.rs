//! Doubts about maps.

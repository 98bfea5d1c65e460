//! How fast.

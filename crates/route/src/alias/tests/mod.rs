//! Aliases in tables, at random, and in great numbers.

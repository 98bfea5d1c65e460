//! Map formats and routing seen from outside: files of other programs, random input, recorded answers of sendmail.

#![allow(clippy::indexing_slicing, reason = "an index out of bounds fails the test")]

mod fuzz_bodies;
mod maps;
mod oracle;

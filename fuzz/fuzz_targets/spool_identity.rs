//! `spool::fuzz::identity` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::identity(data));

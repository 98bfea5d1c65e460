//! `spool::fuzz::state_entries` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::state_entries(data));

//! `spool::fuzz::done_ids` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::done_ids(data));

//! `spool::fuzz::chunk_list` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::chunk_list(data));

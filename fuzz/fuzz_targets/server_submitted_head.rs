//! `server::fuzz::submitted_head` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::fuzz::submitted_head(data));

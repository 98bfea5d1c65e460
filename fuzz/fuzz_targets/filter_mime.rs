//! `filter::fuzz::mime` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::mime(data));

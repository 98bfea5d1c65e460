//! `filter::fuzz::signatures` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::signatures(data));

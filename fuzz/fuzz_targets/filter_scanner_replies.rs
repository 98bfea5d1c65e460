//! `filter::fuzz::scanner_replies` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::scanner_replies(data));

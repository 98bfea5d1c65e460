//! `filter::fuzz::milter_replies` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::milter_replies(data));

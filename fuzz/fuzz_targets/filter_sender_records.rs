//! `filter::fuzz::sender_records` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::sender_records(data));

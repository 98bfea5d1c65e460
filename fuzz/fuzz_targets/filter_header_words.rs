//! `filter::fuzz::header_words` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| filter::fuzz::header_words(data));

//! `smtp::fuzz::data` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| smtp::fuzz::data(data));

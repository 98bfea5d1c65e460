//! `smtp::fuzz::bdat` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| smtp::fuzz::bdat(data));

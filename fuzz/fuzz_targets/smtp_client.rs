//! `smtp::fuzz::client` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| smtp::fuzz::client(data));

//! `mail::fuzz::path` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::path(data));

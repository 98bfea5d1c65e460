//! `mail::fuzz::long_lines` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::long_lines(data));

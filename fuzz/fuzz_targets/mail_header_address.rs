//! `mail::fuzz::header_address` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::header_address(data));

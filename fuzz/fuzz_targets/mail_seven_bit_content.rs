//! `mail::fuzz::seven_bit_content` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::seven_bit_content(data));

//! `mail::fuzz::encoded_words` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::encoded_words(data));

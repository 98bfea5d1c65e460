//! `mail::fuzz::queue_id` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::queue_id(data));

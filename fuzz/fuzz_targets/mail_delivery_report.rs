//! `mail::fuzz::delivery_report` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::delivery_report(data));

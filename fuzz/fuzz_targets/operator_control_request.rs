//! `operator::fuzz::control_request` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| operator::fuzz::control_request(data));

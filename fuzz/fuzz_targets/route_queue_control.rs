//! `route::fuzz::queue_control` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::queue_control(data));

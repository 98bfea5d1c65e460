//! `route::fuzz::access_map` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::access_map(data));

//! `route::fuzz::alias_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::alias_file(data));

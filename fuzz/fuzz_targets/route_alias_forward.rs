//! `route::fuzz::alias_forward` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::alias_forward(data));

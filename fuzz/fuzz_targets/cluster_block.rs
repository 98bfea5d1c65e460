//! `cluster::fuzz::block` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cluster::fuzz::block(data));

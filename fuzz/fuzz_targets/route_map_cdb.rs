//! `route::fuzz::map_cdb` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::map_cdb(data));

//! `server::auth::fuzz::exchange` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::auth::fuzz::exchange(data));

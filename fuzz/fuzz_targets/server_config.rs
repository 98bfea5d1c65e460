//! `server::config::fuzz::config` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::config::fuzz::config(data));

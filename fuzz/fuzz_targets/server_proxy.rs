//! `server::accept::fuzz::proxy` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::accept::fuzz::proxy(data));

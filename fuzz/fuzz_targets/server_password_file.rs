//! `server::fuzz::password_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::fuzz::password_file(data));

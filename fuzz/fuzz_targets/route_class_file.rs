//! `route::fuzz::class_file` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| route::fuzz::class_file(data));

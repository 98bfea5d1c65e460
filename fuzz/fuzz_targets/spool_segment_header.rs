//! `spool::fuzz::segment_header` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::segment_header(data));

//! `spool::fuzz::segment_scan` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::segment_scan(data));

//! `spool::fuzz::segment_trailer` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::segment_trailer(data));

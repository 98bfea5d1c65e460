//! `cluster::fuzz::compressed_records` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cluster::fuzz::compressed_records(data));

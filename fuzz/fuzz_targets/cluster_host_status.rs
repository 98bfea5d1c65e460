//! `cluster::fuzz::host_status` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cluster::fuzz::host_status(data));

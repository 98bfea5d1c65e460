//! `cluster::fuzz::node_entry` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cluster::fuzz::node_entry(data));

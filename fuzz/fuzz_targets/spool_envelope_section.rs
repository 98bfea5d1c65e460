//! `spool::fuzz::envelope_section` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| spool::fuzz::envelope_section(data));

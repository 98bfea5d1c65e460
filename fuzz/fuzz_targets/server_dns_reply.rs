//! `server::fuzz::dns_reply` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::fuzz::dns_reply(data));

//! `server::fuzz::ldap_entry` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::fuzz::ldap_entry(data));

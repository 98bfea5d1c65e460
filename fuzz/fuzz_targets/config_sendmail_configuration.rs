//! `config::fuzz::sendmail_configuration` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzz::sendmail_configuration(data));

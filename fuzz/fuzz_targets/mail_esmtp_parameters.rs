//! `mail::fuzz::esmtp_parameters` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mail::fuzz::esmtp_parameters(data));

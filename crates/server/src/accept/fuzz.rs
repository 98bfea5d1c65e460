//! One function per decoder of this stop: it takes any bytes, and asserts the properties that hold for all bytes.
//!
//! Tests drive the bodies with mutated seeds in every run; a fuzzer's targets call the same functions.

use super::proxy::{BYTES_MAX, ProxyOutcome, read};

/// PROXY headers: the decision comes at one octet, depends on none behind it, and comes in time.
///
/// # Panics
/// When something does not hold.
pub fn proxy(data: &[u8]) {
    let mut decided: Option<(usize, ProxyOutcome)> = None;
    for end in 0..=data.len().min(BYTES_MAX + 1) {
        let so_far = data.get(..end).expect("end is at most the length");
        let outcome = read(so_far);
        match &decided {
            None if outcome == ProxyOutcome::NeedMore => assert!(end < BYTES_MAX, "undecided after {end} octets"),
            None => {
                if let ProxyOutcome::Header(header) = &outcome {
                    assert_eq!(header.used, end, "a header is known with its last octet");
                    assert_eq!(header.client.is_some(), header.local.is_some());
                    assert!(header.client.is_none_or(|client| client.ip() == client.ip().to_canonical()));
                    let texts = header.tls.iter().flat_map(|tls| {
                        [Some(&tls.version), tls.cipher.as_ref(), tls.server_name.as_ref()].into_iter().flatten()
                    });
                    for text in texts {
                        assert!(text.len() <= 255 && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?}");
                    }
                }
                decided = Some((end, outcome));
            }
            Some((at, before)) => assert_eq!(before, &outcome, "decided after {at} octets, changed after {end}"),
        }
    }
    if let Some((_, before)) = decided {
        assert_eq!(read(data), before);
    }
}

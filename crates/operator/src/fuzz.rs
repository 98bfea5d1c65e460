//! A body for fuzzing: any bytes as a line of the control socket.

use crate::control::Request;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 1] = [("control_request", control_request)];

/// Lines from which mutations begin.
pub const SEEDS: &[&[u8]] = &[
    br#"{"command":"ping"}"#,
    br#"{"command":"hosts-forget"}"#,
    br#"{"command":"queue","action":"list","from":"<>","to":"@b.test","older":60,"limit":7,"recipients":3}"#,
    br#"{"command":"queue","action":"hold","ids":["6AK9BQPE592284"],"reason":"asked by ann","for":3600}"#,
    br#"{"command":"queue","action":"bounce","all":true,"reason":"the list is closed","dry_run":true}"#,
    br#"{"command":"queue","action":"stragglers","by":"recipient","state":"held","destination":"*.test"}"#,
    br#"{"command":"queue","action":"show","ids":["6AK9BQPE592284","x"],"headers":true}"#,
];

/// Reads a request. Asserts no panic, that a request reads back from the line that it is written as, and that a refusal
/// is a short line.
///
/// # Panics
/// When one of these does not hold.
pub fn control_request(data: &[u8]) {
    match Request::parse(data) {
        Ok(request) => {
            let line = request.to_line();
            let line = line.strip_suffix('\n').expect("a line has an end");
            assert!(!line.contains('\n'), "{line:?}");
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.chars().any(char::is_control) && text.len() < 2_048, "{text:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BODIES, SEEDS};
    use testkit::mutation::{Mutations, run_beginnings, run_mutated};

    #[test]
    fn seeds_and_some_of_their_beginnings() {
        run_beginnings(&BODIES, SEEDS);
    }

    #[test]
    fn mutated_seeds() {
        let octets = b"{}[]\",:\\\n\x7f0-";
        run_mutated(&BODIES, SEEDS, Mutations { times: 20, octets, octets_max: 2_048, has_pages: false });
    }
}

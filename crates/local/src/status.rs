//! The meaning of a program's exit status: the table of sendmail (`sysexits.h`).

use super::order::{DeliveryEnd, Verdict};

/// The most letters of a program's output in a text.
const OUTPUT_MAX: usize = 240;

/// Returns the verdict for an exit status. `output`: what the program has said.
pub(crate) fn exit_verdict(status: i32, output: &[u8]) -> Verdict {
    use DeliveryEnd::{Deferred, Delivered, Failed};
    let (end, code, text) = match status {
        0 => (Delivered, (0, 0), ""),
        64 => (Failed, (0, 0), "Bad usage"),
        65 => (Failed, (6, 0), "Data format error"),
        66 => (Failed, (3, 0), "Cannot open input"),
        67 => (Failed, (1, 1), "User unknown"),
        68 => (Failed, (1, 2), "Host unknown"),
        69 => (Failed, (0, 0), "Service unavailable"),
        70 => (Failed, (3, 0), "Internal error"),
        71 => (Deferred, (0, 0), "Operating system error"),
        72 => (Failed, (3, 5), "System file missing"),
        73 => (Failed, (0, 0), "Can't create output"),
        74 => (Deferred, (0, 0), "I/O error"),
        75 => (Deferred, (0, 0), "the program asked to try again"),
        76 => (Failed, (5, 0), "Remote protocol error"),
        77 => (Failed, (0, 0), "Insufficient permission"),
        78 => (Failed, (3, 5), "Local configuration error"),
        _ => (Failed, (3, 0), ""),
    };
    let mut verdict = Verdict { end, status: code, text: text.to_owned() };
    if end == Delivered {
        return verdict;
    }
    if text.is_empty() {
        verdict.text = format!("unknown mailer error {status}");
    }
    with_output(verdict, output)
}

/// The same with the beginning of a program's output.
pub(crate) fn with_output(mut verdict: Verdict, output: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    let said: String = lines
        .join(" / ")
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .take(OUTPUT_MAX)
        .collect();
    if !said.is_empty() {
        verdict.text.push_str(&format!("; it said: {said}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_mean_what_they_mean_to_sendmail() {
        for (status, end, code, text) in [
            (0, DeliveryEnd::Delivered, (0, 0), ""),
            (1, DeliveryEnd::Failed, (3, 0), "unknown mailer error 1"),
            (63, DeliveryEnd::Failed, (3, 0), "unknown mailer error 63"),
            (64, DeliveryEnd::Failed, (0, 0), "Bad usage"),
            (67, DeliveryEnd::Failed, (1, 1), "User unknown"),
            (69, DeliveryEnd::Failed, (0, 0), "Service unavailable"),
            (71, DeliveryEnd::Deferred, (0, 0), "Operating system error"),
            (74, DeliveryEnd::Deferred, (0, 0), "I/O error"),
            (75, DeliveryEnd::Deferred, (0, 0), "the program asked to try again"),
            (77, DeliveryEnd::Failed, (0, 0), "Insufficient permission"),
            (78, DeliveryEnd::Failed, (3, 5), "Local configuration error"),
            (255, DeliveryEnd::Failed, (3, 0), "unknown mailer error 255"),
        ] {
            assert_eq!(exit_verdict(status, b""), Verdict { end, status: code, text: text.into() }, "{status}");
        }
    }

    #[test]
    fn the_first_of_the_output_is_told() {
        let verdict = exit_verdict(67, b"\n  no such list \r\nask\x1b[31m ann\nthird\nfourth\n");
        assert_eq!(verdict.text, "User unknown; it said: no such list / ask?[31m ann / third");
        let flood = exit_verdict(1, &vec![b'x'; 10_000]);
        assert_eq!(flood.text.len(), "unknown mailer error 1; it said: ".len() + OUTPUT_MAX);
        assert_eq!(exit_verdict(0, b"done").text, "");
    }
}

//! Errors of the operating system in words.

use std::io;

/// The beginning of the part that Rust's library adds to the words of the system.
pub const NUMBER: &str = " (os error ";

/// The words for an error, without the number that Rust's library adds.
#[must_use]
pub fn words(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// A text without the numbers of errors that Rust's library adds to their words: `Permission denied (os error 13)`.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let (mut rest, mut out) = (text, String::with_capacity(text.len()));
    while let Some((before, behind)) = rest.split_once(NUMBER) {
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = behind.split_at(digits);
        out.push_str(before);
        rest = match after.strip_prefix(')') {
            Some(after) if digits > 0 => after,
            _ => {
                out.push_str(NUMBER);
                out.push_str(number);
                after
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_words_and_no_numbers() {
        assert_eq!(words(&io::Error::from_raw_os_error(13)), "Permission denied");
        assert_eq!(words(&io::Error::other("x")), "x");
        for (text, expected) in [
            ("a: No such file (os error 2); b: In use (os error 98)", "a: No such file; b: In use"),
            (" (os error )", " (os error )"),
            ("x (os error 12x", "x (os error 12x"),
            ("x (os error  (os error 1)", "x (os error "),
            ("", ""),
        ] {
            assert_eq!(without_numbers(text), expected);
        }
    }
}

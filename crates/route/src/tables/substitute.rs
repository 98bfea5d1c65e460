//! `%1` in a value: the parts of the key that were left open.
//!
//! `%0` is the key, `%1` to `%9` are parts; one that there is not is nothing. `%%` is a percent sign, and so is one
//! before anything else. That is how sendmail's maps do it.

use std::borrow::Cow;

/// Fills in a value.
#[must_use]
pub fn substitute(value: &str, key: &str, parts: &[&str]) -> String {
    if !value.contains('%') {
        return value.to_owned();
    }
    let mut text = String::with_capacity(value.len() + key.len());
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.peek().copied() {
            Some('%') => {
                chars.next();
                text.push('%');
            }
            Some(digit @ '0'..='9') => {
                chars.next();
                match digit {
                    '0' => text.push_str(key),
                    _ => text.push_str(part(parts, digit)),
                }
            }
            _ => text.push('%'),
        }
    }
    text
}

fn part<'a>(parts: &[&'a str], digit: char) -> &'a str {
    let number = digit.to_digit(10).map_or(0, |number| number as usize);
    number.checked_sub(1).and_then(|at| parts.get(at)).copied().unwrap_or_default()
}

/// The greatest number behind a percent sign, for those who check a value.
#[must_use]
pub fn highest(value: &str) -> Option<u32> {
    let value: Cow<'_, str> = if value.contains("%%") { value.replace("%%", "").into() } else { value.into() };
    let numbers = value.split('%').skip(1).filter_map(|rest| rest.chars().next()?.to_digit(10));
    numbers.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_filled_in_as_sendmail_does() {
        let parts = ["x.y", "y"];
        for (value, text) in [
            ("relay:%1.a.%2.b.%0.example", "relay:x.y.a.y.b..sub.test.example"),
            ("relay:%1%2%3%9%%x", "relay:x.yy%x"),
            ("100% of %q%", "100% of %q%"),
            ("plain", "plain"),
        ] {
            assert_eq!(substitute(value, ".sub.test", &parts), text);
        }
        assert_eq!(
            [highest("a%1b%3"), highest("%%9"), highest("none %x"), highest("%0")],
            [Some(3), None, None, Some(0)]
        );
    }
}

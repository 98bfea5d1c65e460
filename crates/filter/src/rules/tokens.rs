//! Words, strings, patterns and signs of a rule file, line by line.

use std::fmt;

/// A token of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word or number without quotes.
    Word(String),
    /// A text in double quotes, without them.
    Text(String),
    /// A pattern between slashes.
    Pattern(String),
    /// One of the signs.
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "\"{word}\""),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Pattern(pattern) => write!(f, "/{pattern}/"),
            Self::Sign(sign) => write!(f, "\"{sign}\""),
        }
    }
}

/// The signs, longer ones first.
const SIGNS: [&str; 12] = ["!=", "!~", "<=", ">=", "{", "}", "=", "~", "<", ">", ",", "%"];

/// Splits a line into tokens, without the line end.
///
/// # Errors
/// A quote or slash has no partner, or a character begins nothing.
pub(super) fn split(line: &str) -> Result<Vec<Token>, String> {
    let mut out = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, behind) = match first {
            '#' => break,
            '"' => {
                let (text, behind) = delimited(rest, '"')?;
                (Token::Text(text), behind)
            }
            '/' => {
                let (pattern, behind) = delimited(rest, '/')?;
                (Token::Pattern(pattern), behind)
            }
            first if is_word_character(first) => {
                let end = rest.find(|c: char| !is_word_character(c) && !"/:*@".contains(c)).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(end);
                (Token::Word(word.to_owned()), behind)
            }
            '@' | '*' | ':' => return Err(format!("put a text with \"{first}\" at its beginning in quotes")),
            first => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), rest.get(sign.len()..).unwrap_or_default()),
                None => return Err(format!("\"{}\" begins nothing", first.escape_debug())),
            },
        };
        out.push(token);
        rest = behind.trim_start();
    }
    Ok(out)
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+')
}

/// Takes a text between two marks. A backslash before the mark makes it part of the text; in a quoted text one before a
/// backslash does so, too, while a pattern has its own use for those.
fn delimited(text: &str, mark: char) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == mark {
            return Ok((out, text.get(at + 1..).unwrap_or_default()));
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        match characters.next() {
            Some((_, next)) if next == mark => out.push(mark),
            Some((_, '\\')) if mark == '"' => out.push('\\'),
            Some((_, next)) if mark == '/' => out.extend(['\\', next]),
            Some((_, next)) => return Err(format!("\"\\{next}\" in a text: write \"\\\\\" for a backslash")),
            None => break,
        }
    }
    Err(format!("a text that begins with {mark} has no {mark} at its end; inside it, write \\{mark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        match split(line) {
            Ok(tokens) => tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn lines() {
        assert_eq!(
            shown(r#"header Subject !~ /a\/b\.(c|"d")/  # comment"#),
            r#""header" "Subject" "!~" /a/b\.(c|"d")/"#
        );
        assert_eq!(
            shown(r#"  client address = 192.0.2.0/24,2001:db8::1,"a \"b\" \\""#),
            r#""client" "address" "=" "192.0.2.0/24" "," "2001:db8::1" "," "a \"b\" \\""#
        );
        assert_eq!(shown("script=\"Han\" over 25%{}"), r#""script" "=" "Han" "over" "25" "%" "{" "}""#);
        assert_eq!(shown("# only"), "");
        assert!(shown("x = \"abc").starts_with("! a text that begins with \""));
        assert!(shown("x ~ /abc\\/").starts_with("! a text that begins with /"));
        assert!(shown("x = \"a\\n\"").starts_with("! \"\\n\" in a text"));
        assert!(shown("sender = @example.com").starts_with("! put a text with"));
        assert!(shown("x ^ y").starts_with("! \"^\" begins nothing"));
    }
}

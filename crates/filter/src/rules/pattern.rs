//! Patterns of rules: their flags, limits and literals.

use regex::{Regex, RegexBuilder};

use crate::literals::required;

/// Octets of the program of one pattern.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Compiles a pattern of a rule: any case of letters, `^` and `$` at line ends.
pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder.case_insensitive(true).multi_line(true).crlf(true);
    builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX * 2).nest_limit(50);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => format!("/{text}/ is too large a pattern; write fewer repetitions"),
        // The last line of the message says what is wrong; the others draw the pattern.
        error => {
            let error = error.to_string();
            format!("/{text}/ is no regular expression: {}", error.lines().last().unwrap_or_default().trim())
        }
    })
}

/// Returns folded texts of which each match holds one.
pub(super) fn literals(text: &str) -> Vec<String> {
    let mut builder = regex_syntax::ParserBuilder::new();
    let parsed = builder.case_insensitive(true).multi_line(true).crlf(true).nest_limit(50).build().parse(text);
    parsed.ok().and_then(|hir| required(&hir)).unwrap_or_default()
}

//! Problems about a file as a whole.

use super::{Problem, Severity};
use std::path::Path;

/// Makes a problem of a file, without a line.
pub(crate) fn problem_of_file(severity: Severity, file: &Path, text: String, suggestion: Option<String>) -> Problem {
    Problem {
        severity,
        file: file.display().to_string(),
        line: 0,
        column: 0,
        width: 0,
        source: String::new(),
        key: String::new(),
        text,
        expected: String::new(),
        suggestion,
    }
}

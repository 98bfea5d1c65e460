//! Sizes: a long file or function is a reason to look again, a very long file is an error.

use super::Finding;
use crate::source::Source;

/// Lines of a file above which it is reported.
const FILE_LINES_NOTE: usize = 800;
/// Lines of a file above which the run fails.
const FILE_LINES_MAX: usize = 1_000;
/// Lines of a function above which it is reported; clippy's `too_many_lines` asks for a written reason before that.
const FUNCTION_LINES_NOTE: usize = 110;

/// Checks the length of a file and of its functions.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.lines;
    if lines > FILE_LINES_MAX {
        let message =
            format!("{lines} lines, the most is {FILE_LINES_MAX}; split it where its header needs an \"and\"");
        findings.push(Finding::error(&source.path, 0, message));
    } else if lines > FILE_LINES_NOTE {
        let message = format!("{lines} lines; look whether it holds two ideas");
        findings.push(Finding::note(&source.path, 0, message));
    }
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_NOTE {
            let message =
                format!("function {} has {} lines; look whether it has two levels", function.name, function.lines);
            findings.push(Finding::note(&source.path, function.line, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::source::Source;

    #[track_caller]
    fn finds(text: &str, wanted: &[bool]) {
        let mut findings = Vec::new();
        check(&Source::new("crates/mail/src/a.rs", text), &mut findings);
        let seen: Vec<bool> = findings.iter().map(|f| f.error).collect();
        assert_eq!(seen, wanted, "{findings:?}");
    }

    #[test]
    fn long_files() {
        finds(&"// a\n".repeat(800), &[]);
        finds(&"// a\n".repeat(801), &[false]);
        finds(&"// a\n".repeat(1_001), &[true]);
    }

    #[test]
    fn long_functions() {
        finds(&format!("fn a() {{\n{}}}", "b();\n".repeat(108)), &[]);
        finds(&format!("fn a() {{\n{}}}", "b();\n".repeat(110)), &[false]);
        finds(&format!("const A: &str = \"fn a() {{\n{}}}\";", "b();\n".repeat(110)), &[]);
    }
}

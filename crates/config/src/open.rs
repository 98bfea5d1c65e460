//! Chooses the file of a configuration, and reads its bytes.

use super::Machine;
use super::build::load;
use super::loaded::Loaded;
use super::problem::{Problem, Severity, SourceLocation};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file that is read if none is named and it exists.
pub const DEFAULT_PATH: &str = "/etc/mailrace/mailrace.toml";

/// The variable of the environment that names a file.
pub const VARIABLE: &str = "MAILRACE_CONFIG";

/// Chooses the file: the one that was named, else that of the environment, else [`DEFAULT_PATH`] if it exists, else
/// none.
#[must_use]
pub fn choose(
    named: Option<PathBuf>,
    environment: Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let of_environment = environment.filter(|value| !value.is_empty()).map(PathBuf::from);
    let default = || Some(PathBuf::from(DEFAULT_PATH)).filter(|path| exists(path));
    named.or(of_environment).or_else(default)
}

/// Reads the bytes of a file, and applies overrides `KEY=VALUE`; `path` is its name in messages.
///
/// # Errors
/// All problems, as [`load`] lists them.
pub fn load_bytes(
    bytes: Vec<u8>,
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    decode(bytes, path).and_then(|text| load(&text, path, overrides, machine))
}

/// TOML is UTF-8.
pub(crate) fn decode(bytes: Vec<u8>, path: Option<&Path>) -> Result<String, Vec<Problem>> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = error.as_bytes().get(start..).unwrap_or_default();
        let source = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let place = SourceLocation {
            file: path.map_or_else(String::new, |path| path.display().to_string()),
            line: line + 1,
            column: String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1,
            width: 1,
            source: String::from_utf8_lossy(source).into_owned(),
        };
        let mut problem =
            SourceLocation::problem(Some(&place), Severity::Error, "", "not TOML: a byte that is not UTF-8");
        problem.suggestion = Some("save the file as UTF-8".to_owned());
        vec![problem]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_the_file() {
        let path = |text: &str| Some(PathBuf::from(text));
        let variable = |text: &str| Some(OsString::from(text));
        assert_eq!(choose(path("a"), variable("b"), |_| true), path("a"));
        assert_eq!(choose(None, variable("b"), |_| true), path("b"));
        assert_eq!(choose(None, variable(""), |_| true), path(DEFAULT_PATH));
        assert_eq!(choose(None, None, |_| false), None);
    }

    #[test]
    fn bytes_of_a_file() {
        let (file, machine) = (Path::new("/etc/m.toml"), Machine::default());
        let read = |bytes: &[u8]| load_bytes(bytes.to_vec(), Some(file), &[], &machine);
        let loaded = read("\u{feff}log.level = 3\r\nspool.path = 's'\r\n".as_bytes()).expect("fine");
        assert_eq!((loaded.config.log.level, loaded.config.spool.path), (3, PathBuf::from("/etc/s")));
        let problems = read(b"log.level = 3\nhostname = \"b\xfccher\"\n").expect_err("Latin 1");
        assert_eq!((problems[0].line, problems[0].column, problems.len()), (2, 14, 1));
    }
}

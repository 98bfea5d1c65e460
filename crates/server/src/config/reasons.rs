//! The rules by which replies get their reason: those of `delivery.classes`, or those that come with mailrace.

use observe::reason::Rules;
use os::safe_file::{Refusal, Trust};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Octets of the file.
const FILE_OCTETS_MAX: u64 = 1 << 20;

/// Reads the rules of a file, of any owner, to show them; without one, those that come with mailrace.
///
/// # Errors
/// Every fault, with file and line.
pub fn read_reasons(path: Option<&Path>) -> Result<Rules, Vec<String>> {
    rules_of(path, |path| Ok(File::open(path)?))
}

/// Reads the rules that a server uses: a file that others could have written is refused.
///
/// # Errors
/// Every fault, with file and line.
pub(crate) fn read_safe_reasons(path: Option<&Path>, trust: &Trust) -> Result<Rules, Vec<String>> {
    rules_of(path, |path| trust.open(path).map(|(file, _)| file))
}

fn rules_of(path: Option<&Path>, open: impl Fn(&Path) -> Result<File, Refusal>) -> Result<Rules, Vec<String>> {
    let Some(path) = path else { return Ok(Rules::usual()) };
    let shown = path.display();
    let mut text = String::new();
    let read = open(path).and_then(|file| Ok(file.take(FILE_OCTETS_MAX + 1).read_to_string(&mut text)?));
    read.map_err(|error| vec![format!("delivery.classes: {shown} cannot be read: {error}")])?;
    if text.len() as u64 > FILE_OCTETS_MAX {
        return Err(vec![format!("delivery.classes: {shown} is longer than {FILE_OCTETS_MAX} octets")]);
    }
    parse(path, &text)
}

/// Returns the rules in the text of a file.
///
/// # Errors
/// Every fault, with file and line.
pub(super) fn parse(path: &Path, text: &str) -> Result<Rules, Vec<String>> {
    let shown = path.display();
    Rules::parse(text).map_err(|faults| {
        let line = |fault: &observe::reason::RuleError| format!("{shown} line {}: {}", fault.line, fault.text);
        faults.iter().map(line).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_reads_no_file_that_others_can_write() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("classes");
        std::fs::write(&path, Rules::usual_text()).unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(read_reasons(Some(&path)).is_ok(), "a command shows what they say");
            read_safe_reasons(Some(&path), &Trust::secrets("", "")).map(drop)
        };
        assert_eq!(read(0o644), Ok(()));
        let faults = read(0o646).unwrap_err();
        assert!(faults[0].contains("can be written by everybody") && faults[0].contains("chmod go-w "), "{faults:?}");
    }

    #[test]
    fn faults_name_the_file_and_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("classes");
        assert!(read_reasons(None).is_ok());
        let missing = read_reasons(Some(&path)).unwrap_err();
        assert!(missing[0].contains("cannot be read: No such file"), "{missing:?}");
        std::fs::write(&path, "spam * * - *\nfrob * * - *\n\nspam\n").unwrap();
        let faults = read_reasons(Some(&path)).unwrap_err();
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].ends_with(
                "/classes line 2: \"frob\" is no reason; reasons are rate, block, spam, message, config, \
             recipient, capacity, greylist, network, protocol, auth, blacklist, envelope, other"
            ),
            "{faults:?}"
        );
        std::fs::write(&path, Rules::usual_text()).unwrap();
        assert_eq!(read_reasons(Some(&path)).unwrap().iter().len(), Rules::usual().iter().len());
        std::fs::write(&path, [0xff]).unwrap();
        assert!(read_reasons(Some(&path)).is_err());
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        assert!(read_reasons(Some(&path)).unwrap_err()[0].contains("longer than"));
    }
}

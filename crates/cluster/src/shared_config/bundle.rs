//! The octets of a bundle: files with their names, in the order of the names, so that the same files give the same
//! octets.
//!
//! `mailrace-bundle-1`, line end; for each file the length of its name (2), of its content (4), both little-endian,
//! the name, the content.

use std::collections::BTreeMap;
use std::fmt;

/// Octets of a bundle.
pub const BUNDLE_OCTETS_MAX: usize = 64 << 20;
/// Files of a bundle.
pub const BUNDLE_FILES_MAX: usize = 4_096;
/// Octets of a name.
const NAME_OCTETS_MAX: usize = 255;
const MAGIC: &[u8] = b"mailrace-bundle-1\n";

/// A file of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleFile<'a> {
    /// Its name below the directory, with slashes.
    pub name: &'a str,
    /// Its content.
    pub content: &'a [u8],
}

/// Files by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle {
    files: BTreeMap<String, Vec<u8>>,
    octets: usize,
}

/// Why something is no bundle, or a file does not fit into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleError {
    /// A name that a file of a bundle cannot have.
    Name {
        /// The name.
        name: String,
        /// The fault.
        why: &'static str,
    },
    /// Two files of one name, or a file in the place of a directory.
    Twice(String),
    /// More files than [`BUNDLE_FILES_MAX`].
    TooMany,
    /// More octets than [`BUNDLE_OCTETS_MAX`].
    TooLarge,
    /// The octets are not those of a bundle.
    Damaged,
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, why } => {
                write!(f, "\"{}\" cannot be the name of a shared file: {why}", name.escape_debug())
            }
            Self::Twice(name) => write!(f, "\"{name}\" is there twice, as a file and as a file or directory"),
            Self::TooMany => write!(f, "more than {BUNDLE_FILES_MAX} files; remove those that no key names"),
            Self::TooLarge => write!(
                f,
                "the files are larger than {} MiB together; remove those that no key names, or put large maps into a \
                 directory or database",
                BUNDLE_OCTETS_MAX >> 20
            ),
            Self::Damaged => f.write_str("the octets are not those of a bundle"),
        }
    }
}

impl Bundle {
    /// Adds a file.
    ///
    /// # Errors
    /// The name cannot be, or there is no more room.
    pub fn add(&mut self, name: &str, content: Vec<u8>) -> Result<(), BundleError> {
        if let Some(why) = bundle_path_fault(name) {
            return Err(BundleError::Name { name: name.to_owned(), why });
        }
        if self.files.len() >= BUNDLE_FILES_MAX {
            return Err(BundleError::TooMany);
        }
        let octets = self.octets + name.len() + content.len();
        if octets > BUNDLE_OCTETS_MAX {
            return Err(BundleError::TooLarge);
        }
        let is_below = |above: &str, name: &str| name.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        // Names between `a` and `a/` in the order may be many, so a directory is looked for by itself.
        let in_place_of_directory =
            self.files.range(format!("{name}/")..).next().is_some_and(|(one, _)| is_below(name, one));
        let below_file =
            name.match_indices('/').any(|(at, _)| self.files.contains_key(name.get(..at).unwrap_or_default()));
        if in_place_of_directory || below_file || self.files.contains_key(name) {
            return Err(BundleError::Twice(name.to_owned()));
        }
        self.files.insert(name.to_owned(), content);
        self.octets = octets;
        Ok(())
    }

    /// The files in the order of their names.
    pub fn files(&self) -> impl Iterator<Item = BundleFile<'_>> {
        self.files.iter().map(|(name, content)| BundleFile { name, content })
    }

    /// The octets that are stored and named.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(MAGIC.len() + self.octets + 6 * self.files.len());
        octets.extend_from_slice(MAGIC);
        for BundleFile { name, content } in self.files() {
            octets.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
            octets.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
            octets.extend_from_slice(name.as_bytes());
            octets.extend_from_slice(content);
        }
        octets
    }

    /// Reads the octets of [`Bundle::encode`].
    ///
    /// # Errors
    /// They are not those of a bundle within the limits.
    pub fn decode(octets: &[u8]) -> Result<Self, BundleError> {
        let mut rest = octets.strip_prefix(MAGIC).ok_or(BundleError::Damaged)?;
        let mut bundle = Self::default();
        let mut last = String::new();
        while let Some((head, behind)) = rest.split_first_chunk::<6>() {
            let [a, b, c, d, e, f] = *head;
            let name = usize::from(u16::from_le_bytes([a, b]));
            let content = usize::try_from(u32::from_le_bytes([c, d, e, f])).map_err(|_| BundleError::Damaged)?;
            let (name, behind) = behind.split_at_checked(name).ok_or(BundleError::Damaged)?;
            let (content, behind) = behind.split_at_checked(content).ok_or(BundleError::Damaged)?;
            let name = std::str::from_utf8(name).map_err(|_| BundleError::Damaged)?;
            // One order only, so that one set of files has one name.
            if name <= last.as_str() {
                return Err(BundleError::Damaged);
            }
            name.clone_into(&mut last);
            bundle.add(name, content.to_vec())?;
            rest = behind;
        }
        if rest.is_empty() { Ok(bundle) } else { Err(BundleError::Damaged) }
    }
}

/// The fault of the name of a file; `None`: nothing. A name stays below the directory of the bundle whoever wrote
/// it, and can be shown on a line.
#[must_use]
pub fn bundle_path_fault(name: &str) -> Option<&'static str> {
    if name.len() > NAME_OCTETS_MAX {
        return Some("it is longer than 255 octets");
    }
    if name.chars().any(|one| one.is_control() || one == '\\') {
        return Some("it has a control character or a backslash");
    }
    let is_wrong =
        |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(' ') || part.starts_with(' ');
    name.split('/').any(is_wrong).then_some("a part of it is empty, begins with a dot, or begins or ends with a blank")
}

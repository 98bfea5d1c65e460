//! From needs to the directories that rules are made for, and back: whether the rules in force allow a need.
//!
//! The kernel judges the path of a file after it has followed all links. So a need counts for the directory of its
//! name (a new file may be put there) and for the directory of the link's present target.

use super::needs::{Access, Need, Scope};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Directories, and single files, without links in their names, with the access below each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots(BTreeMap<PathBuf, Access>);

impl Roots {
    /// Finds the directories of needs. A path in a directory that has the same rights is covered by it.
    #[must_use]
    pub fn of(needs: &[Need]) -> Self {
        let mut all: BTreeMap<PathBuf, Access> = BTreeMap::new();
        for need in needs {
            for root in roots(need) {
                let access = all.entry(root).or_default();
                *access = access.with(need.access);
            }
        }
        let all = Self(all);
        let is_needed = |root: &Path, access: Access| !all.above(root).any(|(_, of)| of.covers(access));
        let kept = all.0.iter().filter(|(root, access)| is_needed(root, **access));
        Self(kept.map(|(root, access)| (root.clone(), *access)).collect())
    }

    /// Returns each with its rights, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, Access)> {
        self.0.iter().map(|(root, access)| (root.as_path(), *access))
    }

    /// Returns whether a need is met. One for something that is not there is.
    #[must_use]
    pub fn allow(&self, need: &Need) -> bool {
        roots(need).iter().all(|root| {
            // The kernel adds up the rights of all parent directories.
            let granted =
                self.above(root).chain(self.0.get_key_value(root).map(|(path, access)| (path.as_path(), *access)));
            granted
                .fold(None, |sum: Option<Access>, (_, access)| Some(sum.unwrap_or_default().with(access)))
                .is_some_and(|access| access.covers(need.access))
        })
    }

    fn above<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = (&'a Path, Access)> {
        path.ancestors()
            .skip(1)
            .filter_map(|above| self.0.get_key_value(above))
            .map(|(path, access)| (path.as_path(), *access))
    }

    fn named(&self, is_wanted: impl Fn(Access) -> bool) -> String {
        let names = self.iter().filter(|(_, access)| is_wanted(*access)).map(|(root, _)| root.display().to_string());
        names.collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "writes below {}; reads below {}",
            self.named(|access| access.write),
            self.named(|access| !access.write)
        )
    }
}

/// Returns the directories, or files, that a need leads to; none for something that is not there.
fn roots(need: &Need) -> Vec<PathBuf> {
    let found = std::fs::canonicalize(&need.path).ok();
    match need.scope {
        Scope::Only | Scope::BelowIfThere => found.into_iter().collect(),
        Scope::Below => found.or_else(|| nearest(&need.path)).into_iter().collect(),
        Scope::Beside => {
            // A directory that is missing is made by an operator; nothing is written beside where it would be.
            let directory = directory_of(&need.path);
            let named = if need.access.write { std::fs::canonicalize(directory).ok() } else { nearest(directory) };
            let led_to =
                found.and_then(|found| if stays(&found) { Some(found) } else { found.parent().map(Path::to_owned) });
            let is_root = |root: &PathBuf| root == Path::new("/");
            let mut roots: Vec<PathBuf> = named.into_iter().chain(led_to).collect();
            if roots.iter().any(is_root) || roots.iter().any(|root| root.starts_with("/dev")) {
                // A rule for the root directory would be one for everything, and devices are not replaced.
                roots.retain(|root| !is_root(root) && root != Path::new("/dev"));
                roots.extend(std::fs::canonicalize(&need.path));
            }
            roots.dedup();
            roots
        }
    }
}

/// Returns whether a rule is for the path itself: a directory, a device, or the target of a descriptor.
fn stays(found: &Path) -> bool {
    found.is_dir() || found.starts_with("/dev") || found.starts_with("/proc")
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => path,
    }
}

/// Returns a directory without links in its name, or the nearest one above it that is there, unless that is the root
/// directory.
fn nearest(path: &Path) -> Option<PathBuf> {
    let mut all = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    let is_named_root = path == Path::new("/");
    all.find_map(|above| std::fs::canonicalize(above).ok()).filter(|found| is_named_root || found != Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::super::needs::{EXECUTE, READ, WRITE};
    use super::*;
    use std::os::unix::fs::symlink;

    fn need(path: impl Into<PathBuf>, scope: Scope, access: Access) -> Need {
        Need { origin: "test", path: path.into(), scope, access }
    }

    #[test]
    fn a_file_that_is_replaced_or_a_link_is_allowed_by_its_directories() {
        let place = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(place.path()).unwrap();
        let at = |name: &str| top.join(name);
        for directory in ["live", "archive", "spool", "other"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("archive/key1"), "").unwrap();
        symlink("../archive/key1", at("live/key")).unwrap();
        let key = need(at("live/key"), Scope::Beside, READ);
        let spool = need(at("spool"), Scope::Below, WRITE);
        let roots = Roots::of(&[key.clone(), spool.clone()]);
        let found: Vec<_> = roots.iter().map(|(path, access)| (path.to_owned(), access)).collect();
        assert_eq!(found, [(at("archive"), READ), (at("live"), READ), (at("spool"), WRITE)]);
        // A certificate is renewed: the link leads to a new file in the same directory, or a file is put in its place.
        std::fs::remove_file(at("live/key")).unwrap();
        std::fs::write(at("archive/key2"), "").unwrap();
        symlink("../archive/key2", at("live/key")).unwrap();
        assert!(roots.allow(&key) && roots.allow(&spool));
        std::fs::remove_file(at("live/key")).unwrap();
        assert!(roots.allow(&key), "it is not there, and its directory is allowed");
        // A link out of the directories is refused, and so is a right that the rules lack.
        symlink(at("other/key"), at("live/key")).unwrap();
        assert!(roots.allow(&key), "nothing is there");
        std::fs::write(at("other/key"), "").unwrap();
        assert!(!roots.allow(&key));
        assert!(!roots.allow(&need(at("live"), Scope::Below, WRITE)));
        assert!(!roots.allow(&need(at("spool"), Scope::Below, EXECUTE)));
        assert!(roots.allow(&need(at("spool/00"), Scope::Below, READ)));
        assert!(!roots.allow(&need(at("spool2"), Scope::Below, READ)), "{}: the nearest is above", top.display());
    }

    #[test]
    fn no_rule_is_for_everything_unless_it_is_named() {
        assert_eq!(Roots::of(&[need("/no-such-file.toml", Scope::Beside, READ)]), Roots::default());
        assert_eq!(Roots::of(&[need("/no/such/directory", Scope::Below, WRITE)]), Roots::default());
        assert_eq!(Roots::of(&[need("/no/such", Scope::BelowIfThere, READ)]), Roots::default());
        let null = Roots::of(&[need("/dev/null", Scope::Beside, WRITE)]);
        assert_eq!(null.iter().collect::<Vec<_>>(), [(Path::new("/dev/null"), WRITE)]);
        let all = Roots::of(&[
            need("/", Scope::Below, READ),
            need("/etc", Scope::Below, READ),
            need("/tmp", Scope::Below, WRITE),
        ]);
        assert_eq!(all.iter().collect::<Vec<_>>(), [(Path::new("/"), READ), (Path::new("/tmp"), WRITE)]);
        assert!(all.allow(&need("/etc/passwd", Scope::Beside, READ)));
        assert_eq!(all.to_string(), "writes below /tmp; reads below /");
    }

    #[test]
    fn rights_on_the_way_add_up() {
        let roots = Roots::of(&[need("/usr", Scope::Below, EXECUTE), need("/usr/share", Scope::Below, WRITE)]);
        assert!(roots.allow(&need("/usr/share", Scope::Below, EXECUTE.with(WRITE))));
        assert!(!roots.allow(&need("/usr", Scope::Below, WRITE)));
    }
}

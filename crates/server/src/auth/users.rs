//! The password file: users, their hashes, and reading it again when it changes.
//!
//! One line per hash, `user:HASH`; empty lines and lines that begin with `#` are ignored. A line that cannot be read
//! is left out and reported with its number; if the whole file cannot be read, the present users stay. Everything
//! here blocks.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::hash::{Cost, Hash};
use super::scram::{self, Keys};
use super::{Problem, prepare};
use arc_swap::ArcSwap;
use os::safe_file::{Refusal, Trust};

/// Some 200,000 users.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Several hashes, so that a password can change while devices still use the old one.
const HASHES_PER_USER_MAX: usize = 8;

/// Result of a password check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Right,
    Wrong,
    /// The user is not in the file.
    Unknown,
    /// The check failed, for this reason.
    Failed(String),
}

/// Users as read at one time.
#[derive(Debug, Default)]
pub(super) struct Users {
    hashes: HashMap<Box<str>, Vec<Hash>>,
    /// The user whose hash is checked for an unknown user, so that this takes as long: one of the usual cost.
    usual: Option<Box<str>>,
    /// Iterations and octets of salt as most users with SCRAM keys have them; `None` if there is no such user.
    usual_scram: Option<(NonZeroU32, usize)>,
}

impl Users {
    /// Reads the text of a password file; problems are added with the number of their line.
    pub(super) fn parse(path: &Path, text: &[u8], problems: &mut Vec<Problem>) -> Self {
        let mut hashes: HashMap<Box<str>, Vec<Hash>> = HashMap::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let entry = entry(line).and_then(|(user, hash)| match hashes.get(&user[..]).map_or(0, Vec::len) {
                HASHES_PER_USER_MAX => {
                    Err(format!("user {user:?} has {HASHES_PER_USER_MAX} hashes before; take one away"))
                }
                _ => Ok((user, hash)),
            });
            match entry {
                Ok((user, hash)) => hashes.entry(user.into()).or_default().push(hash),
                Err(reason) => {
                    problems.push(Problem::new(path.display(), Some(number), format!("{reason}; line left out")))
                }
            }
        }
        let (usual, usual_scram) = (usual(&hashes), usual_scram(&hashes));
        Self { hashes, usual, usual_scram }
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn have_scram(&self) -> bool {
        self.usual_scram.is_some()
    }

    /// Checks a prepared password. Takes as long for a wrong one as for an unknown user, whose answer is
    /// [`Answer::Unknown`] only if `elsewhere` says that another source may know the user; then it takes no time.
    pub(super) fn check(&self, user: &str, password: &str, elsewhere: bool) -> Answer {
        let Some(hashes) = self.hashes.get(user) else {
            if elsewhere {
                return Answer::Unknown;
            }
            let usual = self.usual.as_ref().and_then(|user| self.hashes.get(user));
            return match usual.map(|hashes| check(hashes, password)) {
                Some(Answer::Failed(reason)) => Answer::Failed(reason),
                // Even if the password fits, it is that of another user.
                _ => Answer::Wrong,
            };
        };
        check(hashes, password)
    }

    /// Returns the SCRAM keys of a user, or made-up keys for an unknown one; `None` if no user has any.
    pub(super) fn scram(&self, user: &str, secret: &[u8; scram::KEY_OCTETS]) -> Option<Keys> {
        let (iterations, salt_octets) = self.usual_scram?;
        let decoy = Keys::decoy_keys(user, secret, iterations, salt_octets);
        let keys = self.hashes.get(user).and_then(|hashes| hashes.iter().find_map(scram_keys));
        Some(keys.cloned().unwrap_or(decoy))
    }
}

/// Hashes that are checked when a client sends its password: SCRAM keys only for a user who has nothing else, because a
/// check of both would take twice the time of others.
fn checked(hashes: &[Hash]) -> impl Iterator<Item = &Hash> {
    let only_scram = hashes.iter().all(|hash| matches!(hash, Hash::Scram(_)));
    hashes.iter().filter(move |hash| only_scram || !matches!(hash, Hash::Scram(_)))
}

fn check(hashes: &[Hash], password: &str) -> Answer {
    let mut answer = Answer::Wrong;
    for hash in checked(hashes) {
        match hash.matches_password(password) {
            Ok(true) => return Answer::Right,
            Ok(false) => {}
            Err(reason) => answer = Answer::Failed(reason),
        }
    }
    answer
}

fn scram_keys(hash: &Hash) -> Option<&Keys> {
    match hash {
        Hash::Scram(keys) => Some(keys),
        _ => None,
    }
}

fn usual(hashes: &HashMap<Box<str>, Vec<Hash>>) -> Option<Box<str>> {
    let mut users: BTreeMap<Vec<Cost>, (usize, &Box<str>)> = BTreeMap::new();
    for (user, hashes) in hashes {
        users.entry(checked(hashes).map(Hash::cost).collect()).or_insert((0, user)).0 += 1;
    }
    users.into_values().max_by_key(|(count, _)| *count).map(|(_, user)| user.clone())
}

fn usual_scram(hashes: &HashMap<Box<str>, Vec<Hash>>) -> Option<(NonZeroU32, usize)> {
    let mut forms: BTreeMap<(NonZeroU32, usize), usize> = BTreeMap::new();
    for keys in hashes.values().filter_map(|hashes| hashes.iter().find_map(scram_keys)) {
        *forms.entry((keys.iterations, keys.salt.len())).or_default() += 1;
    }
    forms.into_iter().max_by_key(|(_, count)| *count).map(|(form, _)| form)
}

fn entry(line: &[u8]) -> Result<(String, Hash), String> {
    let line = str::from_utf8(line).map_err(|_| "not UTF-8; write the file in UTF-8".to_owned())?;
    let (user, hash) = line.split_once(':').ok_or("no colon; write user:HASH")?;
    let user = prepare::user(user).ok_or(prepare::BAD_USER)?;
    let hash = Hash::parse(hash).map_err(|reason| format!("user {user:?}: {reason}"))?;
    Ok((user, hash))
}

/// Attributes that tell a version of the file from the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UsersStamp {
    inode: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl UsersStamp {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The password file and the users last read from it.
#[derive(Debug)]
pub(super) struct UserFile {
    path: PathBuf,
    trust: Trust,
    users: ArcSwap<Users>,
    /// The version that was read, or that could not be read; `None` for a file that was not there.
    seen: Mutex<Option<UsersStamp>>,
}

impl UserFile {
    /// Reads the file; the second value are its faults.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn open(path: &Path, trust: Trust) -> Result<(Self, Vec<Problem>), Problem> {
        let mut problems = Vec::new();
        let (users, stamp) = read(path, &trust, &mut problems).map_err(|refusal| unreadable(path, &refusal, None))?;
        let users = ArcSwap::from_pointee(users);
        let file = Self { path: path.to_owned(), trust, users, seen: Mutex::new(Some(stamp)) };
        Ok((file, problems))
    }

    /// Returns the users, without a look at the disk.
    pub(super) fn users(&self) -> Arc<Users> {
        self.users.load_full()
    }

    /// Returns the users, read again if the file has changed. Problems are added once for each version of the file.
    pub(super) fn fresh_users(&self, problems: &mut Vec<Problem>) -> Arc<Users> {
        let now = std::fs::metadata(&self.path).ok().as_ref().map(UsersStamp::of);
        // A thread that finds the lock taken leaves reading to the thread that holds it and uses the present users.
        if let Ok(mut seen) = self.seen.try_lock()
            && *seen != now
        {
            *seen = now;
            self.read_again(&mut seen, problems);
        }
        self.users()
    }

    /// Reads the file again, changed or not.
    pub(super) fn reload(&self, problems: &mut Vec<Problem>) {
        self.read_again(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner), problems);
    }

    fn read_again(&self, seen: &mut Option<UsersStamp>, problems: &mut Vec<Problem>) {
        match read(&self.path, &self.trust, problems) {
            Ok((users, stamp)) => {
                self.users.store(Arc::new(users));
                *seen = Some(stamp);
            }
            Err(refusal) => {
                problems.push(unreadable(&self.path, &refusal, Some(self.users().len())));
            }
        }
    }
}

/// `users`: how many stay that were read before.
fn unreadable(path: &Path, refusal: &Refusal, users: Option<usize>) -> Problem {
    let stay = users.map_or_else(String::new, |users| format!("; the {users} users read before stay"));
    let (is_refusal, next_step) = match (refusal, users) {
        // Its text names the command to run.
        (Refusal::Unsafe(_), _) => (true, ""),
        (Refusal::Io(_), Some(_)) => (false, "; make it readable"),
        (Refusal::Io(_), None) => (false, "; name a file in auth.file"),
    };
    let reason = format!("cannot read the password file: {refusal}{stay}{next_step}");
    Problem { is_refusal, ..Problem::new(path.display(), None, reason) }
}

fn read(path: &Path, trust: &Trust, problems: &mut Vec<Problem>) -> Result<(Users, UsersStamp), Refusal> {
    let (mut file, metadata) = trust.open(path)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("not a file of at most {FILE_BYTES_MAX} bytes")).into());
    }
    let mut text = Vec::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    if metadata.mode() & 0o004 != 0 {
        let mode = metadata.mode() & 0o7777;
        let reason = format!("mode {mode:04o} opens the hashes to everybody on this machine; chmod 0640 it");
        problems.push(Problem::new(path.display(), None, reason));
    }
    Ok((Users::parse(path, &text, problems), UsersStamp::of(&metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{ANNA, BERT, CARL};
    use std::os::unix::fs::PermissionsExt as _;

    fn parse(text: &str) -> (Users, Vec<String>) {
        let mut problems = Vec::new();
        let users = Users::parse(Path::new("users"), text.as_bytes(), &mut problems);
        (users, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn broken_lines_are_left_out_and_named() {
        let (users, problems) = parse(&format!("# users\n\n{ANNA}\r\nbert\n  {CARL}\nx\u{7}y:$5$\nanna:clear\n:$6$\n"));
        assert_eq!(users.len(), 2);
        assert_eq!(users.check("anna", "anna's", false), Answer::Right);
        let expected =
            ["users line 4: no colon", "users line 6: the user name", "users line 7: user \"anna\": neither"];
        assert_eq!(problems.len(), 4, "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected) && problem.ends_with("; line left out"), "{problem}");
        }
    }

    #[test]
    fn several_hashes_of_a_user() {
        let other = BERT.replace("bert:", "anna:");
        let (users, problems) = parse(&format!("{ANNA}\n{other}\n"));
        assert_eq!(problems, [""; 0]);
        for (password, answer) in [("anna's", Answer::Right), ("bert's", Answer::Right), ("x", Answer::Wrong)] {
            assert_eq!(users.check("anna", password, false), answer);
        }
        let (_, problems) = parse(&format!("{ANNA}\n").repeat(9));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("users line 9: user \"anna\" has 8 hashes"), "{problems:?}");
    }

    #[test]
    fn an_unknown_user_is_wrong_even_with_the_password_of_the_stand_in() {
        let (users, _) = parse(ANNA);
        assert_eq!(users.usual.as_deref(), Some("anna"));
        assert_eq!(users.check("nobody", "anna's", false), Answer::Wrong);
        assert_eq!(users.check("nobody", "anna's", true), Answer::Unknown);
        assert_eq!(Users::default().check("nobody", "x", false), Answer::Wrong);
    }

    #[test]
    fn the_stand_in_has_the_usual_cost() {
        let (users, _) = parse(&format!("{ANNA}\n{}\n{CARL}\n", ANNA.replace("anna:", "anne:")));
        assert!(matches!(users.usual.as_deref(), Some("anna" | "anne")), "{:?}", users.usual);
    }

    #[test]
    fn scram_keys_for_everybody_or_nobody() {
        let secret = [1; scram::KEY_OCTETS];
        assert_eq!(parse(ANNA).0.scram("anna", &secret), None);
        let (users, _) = parse(&format!("{ANNA}\n{CARL}\n"));
        let carl = users.scram("carl", &secret).unwrap();
        for stranger in ["anna", "nobody"] {
            let keys = users.scram(stranger, &secret).unwrap();
            assert_eq!((keys.iterations, keys.salt.len()), (carl.iterations, carl.salt.len()));
            assert!(!keys.matches_password("carl's"));
        }
        assert!(carl.matches_password("carl's"));
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_lost_one_keeps_its_users() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        std::fs::write(&path, ANNA).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let (file, problems) = UserFile::open(&path, Trust::secrets("", "")).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let mut problems = Vec::new();
        assert_eq!(file.fresh_users(&mut problems).len(), 1);

        std::fs::write(&path, format!("{ANNA}\n{BERT}\nbroken\n")).unwrap();
        assert_eq!(file.fresh_users(&mut problems).len(), 2);
        assert_eq!(problems.len(), 1);
        assert_eq!(file.fresh_users(&mut problems).len(), 2);
        assert_eq!(problems.len(), 1, "reported once");

        std::fs::remove_file(&path).unwrap();
        assert_eq!((0..3).map(|_| file.fresh_users(&mut problems).len()).collect::<Vec<_>>(), [2; 3]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[1].to_string().contains("the 2 users read before stay"), "{}", problems[1]);

        std::fs::write(&path, ANNA).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(file.fresh_users(&mut problems).len(), 1);
        assert!(problems[2].to_string().contains("mode 0644"), "{}", problems[2]);
        file.reload(&mut problems);
        assert_eq!(problems.len(), 4, "a reload says it again");
    }

    #[test]
    fn a_file_that_others_can_write_makes_no_users() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        std::fs::write(&path, ANNA).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(&path, 0o640);
        let trust = || Trust::secrets("", "");
        let (file, problems) = UserFile::open(&path, trust()).unwrap();
        assert_eq!(problems, []);
        // A local user who can write the file adds a login for himself.
        std::fs::write(&path, format!("{ANNA}\n{BERT}\n")).unwrap();
        for (of_file, of_directory) in [(0o642, 0o700), (0o666, 0o700), (0o640, 0o777), (0o640, 0o703)] {
            mode(&path, of_file);
            mode(dir.path(), of_directory);
            let mut problems = Vec::new();
            file.reload(&mut problems);
            assert_eq!(file.users().len(), 1, "{of_file:o} {of_directory:o}: the users of before stay");
            let [problem] = problems.as_slice() else { panic!("{problems:?}") };
            assert!(
                problem.is_refusal() && problem.to_string().ends_with("; the 1 users read before stay"),
                "{problem}"
            );
            let refused = UserFile::open(&path, trust()).unwrap_err();
            assert!(refused.is_refusal() && refused.to_string().contains("chmod go-w"), "{refused}");
        }
        // The group of the server is trusted as the server is.
        for of_file in [0o640, 0o660] {
            mode(&path, of_file);
            mode(dir.path(), 0o700);
            let mut problems = Vec::new();
            file.reload(&mut problems);
            assert_eq!((file.users().len(), problems), (2, Vec::new()), "{of_file:o}");
        }
    }

    #[test]
    fn a_file_that_was_never_there_is_an_error() {
        let error = UserFile::open(Path::new("/nonexistent/users"), Trust::secrets("", "")).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/users: cannot read the password file: "), "{error}");
    }
}

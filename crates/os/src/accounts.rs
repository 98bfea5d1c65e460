//! Users and groups of the machine, read from `/etc/passwd` and `/etc/group`.
//!
//! Asked at start for the user to become, by the control socket for the groups of a peer, and for users who get mail.
//! The files are read here and not through the C library, whose look-ups load code at run time (a static program
//! cannot) and may wait for a network. Users that exist only elsewhere (LDAP, systemd's user database) are found by
//! [`nss`](super::nss) where mail is for them or they call; the user of the server is named by number then, or by
//! `User=` of the service unit.
//!
//! Lines that do not parse are passed over, as the C library does.

use super::login::Login;
use super::{clock, nss};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file of groups.
const GROUP: &str = "/etc/group";
/// A file that was changed so shortly ago may change again without another time of its change.
const YOUNG: Duration = Duration::from_secs(2);

/// A user: a line of `/etc/passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The login name; the number as text for a user that has no line.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The primary group; `None` for a user that has no line.
    pub gid: Option<u32>,
}

/// The two files as they were at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    passwd: String,
    group: String,
    /// Whether the C library is asked for users that are not in them.
    has_nss: bool,
}

/// The accounts of the machine, read again when a file has changed.
#[derive(Debug)]
pub struct Kept {
    passwd: PathBuf,
    has_nss: bool,
    last: Mutex<Option<([Stamp; 2], Arc<Accounts>)>>,
}

/// The properties that differ when a file was changed: device, inode, size, times of change. `None`: it is not there.
type Stamp = Option<[i64; 7]>;

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl Accounts {
    /// Reads the files of the machine. One that is missing counts as empty.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn read() -> io::Result<Self> {
        Self::read_with("/etc/passwd".as_ref())
    }

    /// The same with another file in the place of `/etc/passwd`.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn read_with(passwd: &Path) -> io::Result<Self> {
        Ok(Self { passwd: text_of(passwd)?, group: text_of(GROUP.as_ref())?, has_nss: false })
    }

    /// Takes the text of the two files.
    #[must_use]
    pub fn from_text(passwd: &str, group: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: group.to_owned(), has_nss: false }
    }

    /// The same, with the users whom the C library finds elsewhere.
    #[must_use]
    pub const fn with_nss(mut self, has_nss: bool) -> Self {
        self.has_nss = has_nss;
        self
    }

    /// Finds a user by his name alone, in the files and then elsewhere. Blocks.
    ///
    /// # Errors
    /// The user is not in the files, and no service answered whether he is elsewhere.
    pub fn find(&self, name: &str) -> io::Result<Option<Login>> {
        match self.login(name) {
            None if self.has_nss => nss::login(name),
            found => Ok(found),
        }
    }

    /// Finds a user by his number, in the files and then elsewhere. Blocks.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_uid(&self, uid: u32) -> io::Result<Option<Login>> {
        match self.login_of(uid) {
            None if self.has_nss => nss::login_of(uid),
            found => Ok(found),
        }
    }

    /// Finds the number of a group by its name or by the number itself, in the files and then elsewhere. Blocks.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_group(&self, wanted: &str) -> io::Result<Option<u32>> {
        match self.group(wanted) {
            None if self.has_nss => nss::group(wanted),
            found => Ok(found),
        }
    }

    /// Whether the user belongs to the group, with the users and groups from elsewhere. Blocks.
    #[must_use]
    pub fn finds_member(&self, uid: u32, gid: u32) -> bool {
        self.is_member(uid, gid)
            || self.find_uid(uid).is_ok_and(|found| {
                found.is_some_and(|login| {
                    login.groups.contains(&gid) || self.groups().any(|group| group.gid == gid && group.has(&login.name))
                })
            })
    }

    /// Finds a user by its name or, if there is none of that name, by its number. A number needs no line.
    #[must_use]
    pub fn user(&self, wanted: &str) -> Option<User> {
        let number = id(wanted);
        let by_name = self.users().find(|user| user.name == wanted);
        by_name.or_else(|| {
            let uid = number?;
            Some(self.user_of(uid).unwrap_or_else(|| User { name: wanted.to_owned(), uid, gid: None }))
        })
    }

    /// Finds a user who has a line, by his name alone.
    #[must_use]
    pub fn login(&self, name: &str) -> Option<Login> {
        let is_his = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'));
        self.passwd.lines().filter(is_his).find_map(|line| self.login_in(line))
    }

    /// Finds a user who has a line, by his number.
    #[must_use]
    pub fn login_of(&self, uid: u32) -> Option<Login> {
        let is_his = |line: &&str| line.split(':').nth(2).and_then(id) == Some(uid);
        self.passwd.lines().filter(is_his).find_map(|line| self.login_in(line))
    }

    fn login_in(&self, line: &str) -> Option<Login> {
        let fields: Vec<&str> = line.split(':').collect();
        let &[name, _password, uid, gid, _comment, home, shell] = fields.as_slice() else { return None };
        let (uid, gid) = (id(uid)?, id(gid)?);
        let mut groups = vec![gid];
        groups.extend(self.groups_of(name).into_iter().filter(|other| *other != gid));
        Some(Login { name: name.to_owned(), uid, gid, groups, home: home.to_owned(), shell: shell.to_owned() })
    }

    /// Finds the number of a group by its name or by the number itself.
    #[must_use]
    pub fn group(&self, wanted: &str) -> Option<u32> {
        self.groups().find(|group| group.name == wanted).map(|group| group.gid).or_else(|| id(wanted))
    }

    /// The groups whose lines name the user, in the order of the file. The primary group need not be among them.
    #[must_use]
    pub fn groups_of(&self, name: &str) -> Vec<u32> {
        self.groups().filter(|group| group.has(name)).map(|group| group.gid).collect()
    }

    /// Whether the user belongs to the group, by its primary group or by name.
    #[must_use]
    pub fn is_member(&self, uid: u32, gid: u32) -> bool {
        self.user_of(uid).is_some_and(|user| {
            user.gid == Some(gid) || self.groups().any(|group| group.gid == gid && group.has(&user.name))
        })
    }

    /// The home directory of the user of this name.
    #[must_use]
    pub fn home(&self, name: &str) -> Option<&str> {
        let line = self.passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let home = line.split(':').nth(5).filter(|home| home.starts_with('/'))?;
        (!name.is_empty()).then_some(home)
    }

    /// Number and home directory of every user.
    pub fn homes(&self) -> impl Iterator<Item = (u32, &str)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':').skip(2);
            Some((id(fields.next()?)?, fields.nth(2)?))
        })
    }

    /// The name and the shell of the first user with this number.
    #[must_use]
    pub fn name_and_shell(&self, uid: u32) -> Option<(&str, &str)> {
        let number = uid.to_string();
        let line = self.passwd.lines().find(|line| line.split(':').nth(2) == Some(number.as_str()))?;
        let mut fields = line.split(':');
        Some((fields.next().filter(|name| !name.is_empty())?, fields.nth(5)?))
    }

    /// User and group of all names, by name.
    #[must_use]
    pub fn owners(&self) -> std::collections::HashMap<Box<str>, (u32, u32)> {
        let mut owners = std::collections::HashMap::new();
        for user in self.users() {
            // The first line of a name counts, as for the C library.
            let owner = (user.uid, user.gid.unwrap_or(user.uid));
            owners.entry(user.name.into()).or_insert(owner);
        }
        owners
    }

    /// The names of all users.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.passwd.lines().filter_map(|line| line.split(':').next()).filter(|name| !name.is_empty())
    }

    fn user_of(&self, uid: u32) -> Option<User> {
        self.users().find(|user| user.uid == uid)
    }

    fn users(&self) -> impl Iterator<Item = User> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            let (uid, gid) = (id(fields.next()?)?, id(fields.next()?)?);
            Some(User { name: name.to_owned(), uid, gid: Some(gid) })
        })
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, _password) = (fields.next()?, fields.next()?);
            Some(Group { name, gid: id(fields.next()?)?, members: fields.next()? })
        })
    }
}

impl Kept {
    /// With this file in the place of `/etc/passwd`. Nothing is read yet.
    #[must_use]
    pub const fn new(passwd: PathBuf) -> Self {
        Self { passwd, has_nss: false, last: Mutex::new(None) }
    }

    /// The same, with the users whom the C library finds elsewhere.
    #[must_use]
    pub const fn with_nss(mut self, has_nss: bool) -> Self {
        self.has_nss = has_nss;
        self
    }

    /// The accounts as they are now. For a thread that may wait.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn now(&self) -> io::Result<Arc<Accounts>> {
        let stamps = [stamp(&self.passwd), stamp(GROUP.as_ref())];
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, accounts)) = &*last
            && *known == stamps
        {
            return Ok(Arc::clone(accounts));
        }
        let accounts = Arc::new(Accounts::read_with(&self.passwd)?.with_nss(self.has_nss));
        let young = i64::try_from((Duration::from_micros(clock::unix_us()).saturating_sub(YOUNG)).as_secs());
        let is_old = |stamp: &Stamp| stamp.is_none_or(|[.., changed, _]| young.is_ok_and(|young| changed < young));
        *last = stamps.iter().all(is_old).then(|| (stamps, Arc::clone(&accounts)));
        Ok(accounts)
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (device, inode, size) = (number(found.dev()), number(found.ino()), number(found.len()));
    Some([device, inode, size, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()])
}

impl Group<'_> {
    fn has(&self, user: &str) -> bool {
        self.members.split(',').any(|member| member.trim() == user)
    }
}

/// A user or group number. The largest one is no id: system calls read it as "unchanged".
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX && text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn text_of(path: &Path) -> io::Result<String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts::from_text(
            "root:x:0:0:root:/root:/bin/sh\nbroken\nmail:x:8:8::/var/mail:\nann:x:1000:1000::/:\n+::::::\n42:x:7:7::/:\n",
            "root:x:0:\nmail:x:8:ann, bob\nann:x:1000:\nstaff:x:50:annabel,ann\nbroken:x:1\n",
        )
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let accounts = accounts();
        assert_eq!(accounts.user("mail"), Some(User { name: "mail".into(), uid: 8, gid: Some(8) }));
        assert_eq!(accounts.user("1000").map(|user| user.name), Some("ann".into()));
        assert_eq!(accounts.user("42").map(|user| user.uid), Some(7), "a name of digits is a name first");
        assert_eq!(accounts.user("4711"), Some(User { name: "4711".into(), uid: 4711, gid: None }));
        for nobody in ["", "broken", "+", "-1", "+1", "4294967295", "4294967296"] {
            assert_eq!(accounts.user(nobody), None, "{nobody:?}");
        }
    }

    #[test]
    fn logins_have_homes_and_groups() {
        let ann = accounts().login("ann").unwrap();
        assert_eq!((ann.uid, ann.home.as_str(), ann.shell.as_str()), (1000, "/", ""));
        assert_eq!(ann.groups, [1000, 8, 50]);
        assert_eq!(accounts().login_of(8).map(|login| login.home), Some("/var/mail".into()));
        assert_eq!((accounts().login("1000"), accounts().login("broken")), (None, None));
    }

    #[test]
    fn changed_accounts_are_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        let kept = Kept::new(path.clone());
        assert_eq!(kept.now().unwrap().login("ann"), None);
        // Within one tick of the clock, and of the same size.
        for (name, other) in [("ann", "bob"), ("bob", "ann")].repeat(50) {
            std::fs::write(&path, format!("{name}:x:1000:1000::/:\n")).unwrap();
            let now = kept.now().unwrap();
            assert!(now.login(name).is_some() && now.login(other).is_none());
        }
        // The machine's own are older than that.
        let kept = Kept::new("/etc/passwd".into());
        let (one, two) = (kept.now().unwrap(), kept.now().unwrap());
        let is_old =
            |path: &str| stamp(path.as_ref()).is_none_or(|stamp| (stamp[5] as u64) + 60 < clock::unix_us() / 1_000_000);
        assert!(Arc::ptr_eq(&one, &two) || !is_old("/etc/passwd") || !is_old(GROUP));
    }

    #[test]
    fn groups_are_found_by_name_and_by_member() {
        let accounts = accounts();
        assert_eq!((accounts.group("staff"), accounts.group("51"), accounts.group("none")), (Some(50), Some(51), None));
        assert_eq!(accounts.groups_of("ann"), [8, 50]);
        assert_eq!(accounts.groups_of("an"), [] as [u32; 0]);
        assert!(accounts.is_member(1000, 1000) && accounts.is_member(1000, 50) && !accounts.is_member(1000, 0));
        assert!(!accounts.is_member(9999, 50));
    }
}

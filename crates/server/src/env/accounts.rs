//! Users and groups of the machine, read from `/etc/passwd` and `/etc/group`.
//!
//! Asked at start for the user to become, and by the control socket for the groups of a peer. The files are read here and not
//! through the C library, whose look-ups load code at run time (a static program cannot) and may wait for a network. Users that
//! exist only elsewhere (LDAP, systemd's user database) are named by number, or by `User=` of the service unit.
//!
//! Lines that do not parse are passed over, as the C library does.

use std::io;
use std::path::Path;

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

/// A user with what a delivery needs of his line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The login name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups, the primary one first.
    pub groups: Vec<u32>,
    /// The home directory; may be empty.
    pub home: String,
    /// The login shell; may be empty.
    pub shell: String,
}

/// The two files as they were at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    passwd: String,
    group: String,
}

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
        Ok(Self { passwd: text_of(passwd)?, group: text_of("/etc/group".as_ref())? })
    }

    /// Takes the text of the two files.
    #[must_use]
    pub fn from_text(passwd: &str, group: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: group.to_owned() }
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
        self.logins().find(|login| login.name == name)
    }

    /// Finds a user who has a line, by his number.
    #[must_use]
    pub fn login_of(&self, uid: u32) -> Option<Login> {
        self.logins().find(|login| login.uid == uid)
    }

    fn logins(&self) -> impl Iterator<Item = Login> {
        self.passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let &[name, _password, uid, gid, _comment, home, shell] = fields.as_slice() else { return None };
            let (uid, gid) = (id(uid)?, id(gid)?);
            let mut groups = vec![gid];
            groups.extend(self.groups_of(name).into_iter().filter(|other| *other != gid));
            Some(Login { name: name.to_owned(), uid, gid, groups, home: home.to_owned(), shell: shell.to_owned() })
        })
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
    fn groups_are_found_by_name_and_by_member() {
        let accounts = accounts();
        assert_eq!((accounts.group("staff"), accounts.group("51"), accounts.group("none")), (Some(50), Some(51), None));
        assert_eq!(accounts.groups_of("ann"), [8, 50]);
        assert_eq!(accounts.groups_of("an"), [] as [u32; 0]);
        assert!(accounts.is_member(1000, 1000) && accounts.is_member(1000, 50) && !accounts.is_member(1000, 0));
        assert!(!accounts.is_member(9999, 50));
    }
}

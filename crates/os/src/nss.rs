//! Users whom the C library finds: in LDAP through SSSD or nslcd, in systemd's database, as `/etc/nsswitch.conf` says.
//!
//! A question may load code and may wait for a network: it belongs on a thread that may wait. A library that is linked
//! statically knows the files alone, so such a program does not ask.
//!
//! A missing user is told apart from a failed look-up: the first returns mail, the second lets it wait.

use super::login::Login;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The longest name that is asked for; systems end at 32, directories at 256.
const NAME_BYTES_MAX: usize = 256;
/// Says which services are asked.
const SWITCH: &str = "/etc/nsswitch.conf";
/// Services that need nothing that runs: where only these are named, an error means that there is none.
const ALWAYS_THERE: [&str; 3] = ["files", "compat", "systemd"];
/// Where SSSD answers, and what it is configured by.
const SSSD_SOCKET: &str = "/var/lib/sss/pipes/nss";
const SSSD_CONFIG: [&str; 2] = ["/etc/sssd/sssd.conf", "/etc/sssd/conf.d"];

/// Whether this program can ask.
#[must_use]
pub const fn is_there() -> bool {
    cfg!(all(target_env = "gnu", not(target_feature = "crt-static")))
}

/// The user of this name. Blocks.
///
/// # Errors
/// The services gave no answer. The text names the services.
pub fn login(name: &str) -> io::Result<Option<Login>> {
    if !is_there() || !is_askable(name) {
        return Ok(None);
    }
    found("passwd", name, User::from_name(name)).map(|user| user.as_ref().map(login_of_user))
}

/// The user of this number. Blocks.
///
/// # Errors
/// As [`login`].
pub fn login_of(uid: u32) -> io::Result<Option<Login>> {
    Ok(user_of(uid)?.as_ref().map(login_of_user))
}

/// The user of this number as a line of `/etc/passwd`. Blocks.
///
/// # Errors
/// As [`login`].
pub fn line_of(uid: u32) -> io::Result<Option<String>> {
    Ok(user_of(uid)?.map(|user| {
        let (comment, home) = (user.gecos.to_string_lossy(), user.dir.to_string_lossy());
        format!("{}:x:{uid}:{}:{comment}:{home}:{}", user.name, user.gid, user.shell.to_string_lossy())
    }))
}

/// The number of the group of this name. Blocks.
///
/// # Errors
/// As [`login`].
pub fn group(name: &str) -> io::Result<Option<u32>> {
    if !is_there() || !is_askable(name) {
        return Ok(None);
    }
    found("group", name, Group::from_name(name)).map(|group| group.map(|group| group.gid.as_raw()))
}

fn user_of(uid: u32) -> io::Result<Option<User>> {
    if !is_there() || uid == u32::MAX {
        return Ok(None);
    }
    found("passwd", &uid.to_string(), User::from_uid(Uid::from_raw(uid)))
}

/// A name that could be in a line of `/etc/passwd`, and is no path.
fn is_askable(name: &str) -> bool {
    let is_odd = |byte: u8| byte.is_ascii_control() || b":/,".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('-') && !name.bytes().any(is_odd)
}

fn login_of_user(user: &User) -> Login {
    let gid = user.gid.as_raw();
    let all = CString::new(user.name.as_str()).ok().and_then(|name| getgrouplist(&name, user.gid).ok());
    let others = all.unwrap_or_default().into_iter().map(Gid::as_raw).filter(|other| *other != gid);
    Login {
        name: user.name.clone(),
        uid: user.uid.as_raw(),
        gid,
        groups: std::iter::once(gid).chain(others).collect(),
        home: user.dir.to_string_lossy().into_owned(),
        shell: user.shell.to_string_lossy().into_owned(),
    }
}

/// Tells an absence from an error.
fn found<T>(database: &str, wanted: &str, answer: nix::Result<Option<T>>) -> io::Result<Option<T>> {
    let services = || {
        let text = std::fs::read_to_string(SWITCH).unwrap_or_default();
        services(&text, database)
    };
    let told = |why: String, services: &[String]| {
        io::Error::other(format!(
            "whether there is \"{wanted}\" cannot be said now: {SWITCH} asks \"{database}: {}\": {why}; see whether these services run",
            services.join(" ")
        ))
    };
    match answer {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) => {
            let services = services();
            // Some builds of its library say "not there" while the service is down.
            if services.iter().any(|service| service == "sss") && is_configured(&SSSD_CONFIG) && !answers(SSSD_SOCKET) {
                return Err(told(format!("SSSD does not answer on {SSSD_SOCKET}"), &services));
            }
            Ok(None)
        }
        Err(error) => {
            let services = services();
            let is_known = |service: &String| ALWAYS_THERE.contains(&service.as_str());
            // Libraries may put an absence into these words (getpwnam(3)), as others do that cannot reach their
            // service.
            if matches!(error, Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM)
                && services.iter().all(is_known)
            {
                return Ok(None);
            }
            Err(told(error.desc().to_owned(), &services))
        }
    }
}

/// Returns the services of a database, without the actions after each.
fn services(text: &str, database: &str) -> Vec<String> {
    let line = text.lines().find_map(|line| {
        let (name, services) = line.split('#').next()?.split_once(':')?;
        (name.trim() == database).then_some(services)
    });
    // Without a line the library asks the files.
    let words = line.unwrap_or("files").replace('[', " [").replace(']', "] ");
    let mut is_action = false;
    let mut services = Vec::new();
    for word in words.split_ascii_whitespace() {
        is_action |= word.starts_with('[');
        if !is_action {
            services.push(word.to_owned());
        }
        is_action &= !word.ends_with(']');
    }
    services
}

fn is_configured(files: &[&str]) -> bool {
    files.iter().any(|file| Path::new(file).exists())
}

fn answers(socket: &str) -> bool {
    // A socket that this process may not use still shows that the service is there.
    !UnixStream::connect(socket)
        .is_err_and(|error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read_without_their_actions() {
        let text = "# passwd: nis\nshadow: files\npasswd:\tfiles [NOTFOUND=return success=continue] sss  systemd # x\n";
        assert_eq!(services(text, "passwd"), ["files", "sss", "systemd"]);
        assert_eq!(services(text, "group"), ["files"]);
        assert_eq!(services("passwd: files[!UNAVAIL=return]ldap\n", "passwd"), ["files", "ldap"]);
    }

    #[test]
    fn users_of_this_machine_are_found_and_others_are_not() {
        if !is_there() {
            return;
        }
        let root = login("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid, root.home.starts_with('/')), (0, 0, true));
        assert_eq!(login_of(0).unwrap().unwrap().name, "root");
        assert!(line_of(0).unwrap().unwrap().starts_with("root:x:0:0:"));
        assert_eq!(group("root").unwrap(), Some(0));
        for nobody in ["", "nobody-of-this-name", "a\0b", "root:x", "-x", "../root", &"x".repeat(300)] {
            assert_eq!(login(nobody).unwrap(), None, "{nobody:?}");
        }
    }
}

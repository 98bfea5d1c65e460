//! Looks at the files of this machine for the checks of a configuration.

use super::{Config, DkimKey, FileStatus, Files, Local, Mailbox, Tls, reasons};
use crate::signing::PrivateKey;
use os::accounts::Accounts;
use os::error::words;
use os::safe_file::Trust;
use os::{machine, privileges};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn reason_faults(&self, path: &Path) -> Vec<String> {
        let is_small = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= 1 << 20);
        let text = is_small.then(|| std::fs::read_to_string(path).ok()).flatten();
        text.and_then(|text| reasons::parse(path, &text).err()).unwrap_or_default()
    }

    fn unsafe_secret(&self, config: &Config, path: &Path) -> Option<String> {
        // A pipe, as of a shell that makes the configuration, belongs to the user that started the command.
        let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
        let trust = || Trust::secrets(&config.server.user, &config.server.group);
        is_file.then(|| trust().complaint(path)).flatten()
    }

    fn user_without_rights(&self, config: &Config, path: &Path) -> Option<String> {
        let accounts = Accounts::read().ok()?;
        let plan = privileges::plan(machine::is_root(), &config.server.user, &config.server.group, &accounts).ok()?;
        let privileges::Plan::Become(account) = plan else { return None };
        (!account.can_read(path)).then_some(account.name)
    }

    fn unsafe_map(&self, config: &Config, path: &Path) -> Option<String> {
        let is_file = std::fs::metadata(path).is_ok_and(|found| found.is_file());
        let (user, group) = (&config.server.user, &config.server.group);
        let trust = || Trust::maps_of_server(user, group, config.maps.group_writable);
        is_file.then(|| trust().complaint(path)).flatten()
    }

    fn mailboxes_of_default_user(&self, local: &Local) -> Option<String> {
        let accounts = Accounts::read_with(&local.accounts).ok()?;
        let text = Local::default_user_of(&local.default_user, |name| accounts.login(name).is_some());
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let login = accounts.login(user).or_else(|| accounts.login_of(user.parse().ok()?))?;
        let groups = match accounts.group(group) {
            Some(gid) => vec![gid],
            None => login.groups,
        };
        if user == local.mailbox_user {
            return Some("owns all mailboxes, by local.mailbox_user".to_owned());
        }
        let (Mailbox::Mbox(template) | Mailbox::Maildir(template)) = &local.mailbox else { return None };
        if template.needs_home() {
            return None;
        }
        let mail = accounts.group(&local.mailbox_group).filter(|gid| *gid != 0 && groups.contains(gid));
        if mail.is_some() {
            return Some(format!("is in the group {}, which local.mailbox_group names", local.mailbox_group));
        }
        let template = template.to_string();
        let directory = Path::new(template.split('%').next()?.rsplit_once('/')?.0);
        let found = std::fs::metadata(directory).ok().filter(|found| found.uid() != 0 || found.gid() != 0)?;
        if found.uid() == login.uid && login.uid != 0 {
            return Some(format!("owns {}", directory.display()));
        }
        let is_member = found.gid() != 0 && groups.contains(&found.gid());
        is_member.then(|| format!("is in the group of {} ({})", directory.display(), found.gid()))
    }

    fn certificates(&self, settings: &Tls) -> Vec<(String, String)> {
        let wrong = crate::tls::Acceptor::load(settings).err().unwrap_or_default();
        wrong.into_iter().map(|problem| (problem.object().to_owned(), problem.to_string())).collect()
    }

    fn dkim_key_fault(&self, key: &DkimKey) -> Option<String> {
        PrivateKey::read(&key.file).err().map(|fault| fault.to_string())
    }

    fn look(&self, path: &Path) -> FileStatus {
        use std::os::unix::fs::PermissionsExt as _;
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return FileStatus::Missing,
            Err(error) => return FileStatus::Unreadable(words(&error)),
        };
        if metadata.is_dir() {
            return FileStatus::Directory;
        }
        // Only a plain file is opened: opening a pipe would wait for its writer.
        match if metadata.is_file() { std::fs::File::open(path).map(drop) } else { Ok(()) } {
            Ok(()) => FileStatus::File { open_to_others: metadata.permissions().mode() & 0o004 != 0 },
            Err(error) => FileStatus::Unreadable(words(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Machine, check_files, load, render};

    #[test]
    fn the_files_of_this_machine() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("a");
        std::fs::write(&file, "x").expect("written");
        assert_eq!(RealFiles.look(place.path()), FileStatus::Directory);
        assert!(matches!(RealFiles.look(&file), FileStatus::File { .. }));
        assert_eq!(RealFiles.look(&place.path().join("b")), FileStatus::Missing);
    }

    /// Programs of aliases run as `local.default_user`; `check` warns of a user that can read the mailboxes of others.
    #[test]
    fn a_default_user_that_reaches_mailboxes_is_warned_of() {
        let place = tempfile::tempdir().unwrap();
        let (passwd, aliases) = (place.path().join("passwd"), place.path().join("aliases"));
        std::fs::write(&aliases, "a: b\n").unwrap();
        // The file of groups is the machine's.
        std::fs::write(&passwd, "").unwrap();
        let mail = Accounts::read_with(&passwd).unwrap().group("mail").expect("a group mail");
        std::fs::write(
            &passwd,
            format!("inside:x:4001:{mail}::/:/bin/sh\nowner:x:4002:4002::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
        )
        .unwrap();
        let warned = |user: &str| {
            let text = format!(
                "[maps]\naliases = [{aliases:?}]\n[local]\ndomains = [\"here.test\"]\naccounts = {passwd:?}\n\
                 mailbox = \"mbox:/nowhere/%u\"\nmailbox_group = \"mail\"\nmailbox_user = \"owner\"\ndefault_user = {user:?}\n"
            );
            let loaded =
                load(&text, None, &[], &Machine::default()).unwrap_or_else(|problems| panic!("{}", render(&problems)));
            let said = render(&check_files(&loaded, &RealFiles));
            said.contains("local.default_user = ").then_some(said)
        };
        assert!(warned("inside").is_some_and(|text| text.contains("is in the group mail") && text.contains("useradd")));
        assert!(warned("owner").is_some_and(|text| text.contains("owns all mailboxes")));
        assert_eq!(warned("nobody"), None);
        assert_eq!(warned(""), None);
    }
}

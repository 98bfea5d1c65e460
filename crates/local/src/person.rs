//! The user of a delivery, and the files it may touch.
//!
//! A pure decision on an order, the settings and the accounts of the machine. It is made where the delivery is made: by
//! a process that still is root, or by the server for itself alone. No delivery has the rights of root.

use super::command::{self, Command};
use super::order::{DeliveryRequest, Settings, Verdict, What};
use config::{Local, Names};
use os::accounts::Accounts;
use os::login::Login;
use std::path::PathBuf;

/// The rights of the process that delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Root's, given up for those of one user.
    Anybody,
    /// Those of this user alone.
    Own(u32),
}

/// The user of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUser {
    /// Names, numbers and groups.
    pub login: Login,
    /// The detail of the address.
    pub detail: Option<String>,
    /// The local part without the detail.
    pub user: String,
    /// His mailbox, if the order is for a mailbox.
    pub mailbox: Option<PathBuf>,
}

/// Why no program runs without root.
pub const NO_PROGRAMS: &str = "programs are not run with the rights of the server, which was not started as root: start it as root with \
    server.user set, hand mail for programs to an LMTP server, or set local.programs_as_server = true if its programs may read spool and keys";

/// Finds the user whose rights an order is carried out with.
///
/// # Errors
/// There is none, or not with these rights.
pub fn find_target_user(
    order: &DeliveryRequest,
    settings: &Settings,
    accounts: &Accounts,
    rights: Rights,
) -> Result<TargetUser, Verdict> {
    if let (What::Program { command, .. }, Rights::Own(_), false) = (&order.what, rights, settings.programs_as_server)
        && !matches!(command::parse(command), Ok(Command::Exit(_)))
    {
        return Err(Verdict::deferred((3, 5), NO_PROGRAMS));
    }
    let mut person = match &order.what {
        What::Mailbox => of_mailbox(order, settings, accounts)?,
        What::Program { user, .. } | What::File { user, .. } => of_alias(user, order, settings, accounts, rights)?,
    };
    if let (What::File { .. }, Rights::Own(_), false) = (&order.what, rights, settings.programs_as_server) {
        // Its home is that of the server, which may hold the spool and keys: "%h" in local.files is none of it.
        person.login.home.clear();
    }
    let login = &person.login;
    if login.uid == 0 {
        let text = match &order.what {
            What::Mailbox => {
                format!("nothing is delivered as root (user {}); make {} an alias of a person", login.name, person.user)
            }
            What::Program { .. } | What::File { .. } => {
                format!("nothing is delivered as root (user {}); name another user in local.default_user", login.name)
            }
        };
        return Err(Verdict::deferred((2, 0), text));
    }
    match rights {
        Rights::Anybody => Ok(person),
        Rights::Own(uid) if uid == login.uid => Ok(person),
        Rights::Own(uid) => {
            let own = accounts.find_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |login| login.name);
            Err(Verdict::deferred(
                (3, 5),
                format!(
                    "only root can deliver as user {}, and mailrace was started as {own}; start it as root, or hand mail for users \
                     to an LMTP server in local.mailbox",
                    login.name
                ),
            ))
        }
    }
}

/// The person to whom a mailbox belongs.
fn of_mailbox(order: &DeliveryRequest, settings: &Settings, accounts: &Accounts) -> Result<TargetUser, Verdict> {
    let Some(template) = settings.template() else {
        let text =
            format!("local.mailbox = \"{}\" has no mailbox files; the mail waits for another value", settings.mailbox);
        return Err(Verdict::deferred((3, 5), text));
    };
    let unknown = || Verdict::failed((1, 1), "User unknown");
    let (login, user, detail) = if settings.mailbox_user.is_empty() {
        owner(order, accounts)?.ok_or_else(unknown)?
    } else {
        let (user, detail) = split_detail(&order.local, order.delimiter);
        (configured_login("local.mailbox_user", &settings.mailbox_user, accounts)?, user.to_lowercase(), detail)
    };
    let domain = order.domain.to_lowercase();
    let home = settings.mailbox_user.is_empty().then_some(login.home.as_str());
    let names = Names { user: &user, domain: &domain, home };
    let Some(mailbox) = template.path(&names) else {
        let text = format!("local.mailbox = \"{}\" makes no name of a mailbox for user {user}", settings.mailbox);
        return Err(if settings.mailbox_user.is_empty() { Verdict::deferred((2, 0), text) } else { unknown() });
    };
    let mut person = TargetUser { login, detail: detail.map(str::to_owned), user, mailbox: Some(mailbox) };
    if !template.needs_home()
        && !settings.mailbox_group.is_empty()
        && let Some(group) = accounts.find_group(&settings.mailbox_group).map_err(unanswered)?
        && !person.login.groups.contains(&group)
        // A group of root in `local.mailbox_group` is ignored: it would give more rights than its writer expects.
        && group != 0
    {
        person.login.groups.push(group);
    }
    Ok(person)
}

/// The user whose name is the local part: all of it, or what is before the detail; as it is, or in small letters.
#[expect(clippy::type_complexity, reason = "user, name and detail, taken apart at once")]
fn owner<'o>(
    order: &'o DeliveryRequest,
    accounts: &Accounts,
) -> Result<Option<(Login, String, Option<&'o str>)>, Verdict> {
    let (user, detail) = split_detail(&order.local, order.delimiter);
    for (name, detail) in [(order.local.as_str(), None), (user, detail)] {
        for name in [name, &name.to_lowercase()] {
            if let Some(login) = accounts.find(name).map_err(unanswered)? {
                let name = login.name.clone();
                return Ok(Some((login, name, detail)));
            }
        }
    }
    Ok(None)
}

/// Returns the verdict when the account look-up failed: the mail waits.
fn unanswered(error: std::io::Error) -> Verdict {
    Verdict::deferred((3, 0), error.to_string())
}

/// Splits `joe+lists` into `joe` and its detail, `lists`.
pub fn split_detail(local: &str, delimiter: Option<char>) -> (&str, Option<&str>) {
    match delimiter.and_then(|delimiter| local.split_once(delimiter)) {
        Some((user, detail)) if !user.is_empty() => (user, Some(detail)),
        _ => (local, None),
    }
}

/// The person as whom an alias, or a user's `.forward`, has something done.
fn of_alias(
    user: &str,
    order: &DeliveryRequest,
    settings: &Settings,
    accounts: &Accounts,
    rights: Rights,
) -> Result<TargetUser, Verdict> {
    let is_default = user.is_empty();
    let login = match rights {
        // Without root there is no other user.
        Rights::Own(uid) if is_default => accounts.find_uid(uid).map_err(unanswered)?.unwrap_or_else(|| nameless(uid)),
        _ if is_default => {
            let is_there = |name: &str| accounts.find(name).is_ok_and(|found| found.is_some());
            configured_login("local.default_user", Local::default_user_of(&settings.default_user, is_there), accounts)?
        }
        _ => accounts.find(user).map_err(unanswered)?.ok_or_else(|| {
            Verdict::deferred((3, 5), format!("there is no user {user}, as whom this is to be done; see /etc/passwd"))
        })?,
    };
    if !is_default && login.uid < settings.uid_min && rights == Rights::Anybody {
        return Err(Verdict::deferred(
            (3, 5),
            format!(
                "user {user} has the number {}, below local.uid_min = {}; nothing is run or written for it",
                login.uid, settings.uid_min
            ),
        ));
    }
    let (before, detail) = split_detail(&order.local, order.delimiter);
    Ok(TargetUser { login, user: before.to_owned(), detail: detail.map(str::to_owned), mailbox: None })
}

/// Finds a user of the configuration: `USER` or `USER:GROUP`, each a name or a number.
///
/// # Errors
/// There is no such user, or the look-up failed.
pub fn configured_login(key: &str, text: &str, accounts: &Accounts) -> Result<Login, Verdict> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let no = |what: &str, file: &str| {
        Verdict::deferred((3, 5), format!("{key} = \"{text}\": there is no such {what}; see {file}"))
    };
    let mut found = accounts.find(user).map_err(unanswered)?;
    if let (None, Ok(uid)) = (&found, user.parse()) {
        found = accounts.find_uid(uid).map_err(unanswered)?;
    }
    let mut login = found.ok_or_else(|| no("user", "/etc/passwd"))?;
    if let Some(group) = group {
        let gid = accounts.find_group(group).map_err(unanswered)?.ok_or_else(|| no("group", "/etc/group"))?;
        login.groups = vec![gid];
        login.gid = gid;
    }
    Ok(login)
}

/// A user without a line in /etc/passwd, as in a container.
fn nameless(uid: u32) -> Login {
    let gid = rustix::process::getegid().as_raw();
    Login { name: uid.to_string(), uid, gid, groups: vec![gid], home: "/".into(), shell: "/bin/sh".into() }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::order;
    use super::super::order::DeliveryEnd;
    use super::*;
    use config::Config;

    fn accounts() -> Accounts {
        Accounts::from_text(
            "root:x:0:0::/root:/bin/sh\nmail:x:8:8::/var/mail:/bin/false\nnobody:x:65534:65534::/nonexistent:\njoe:x:1000:1000::/users/joe:/bin/bash\n\
             joe+x:x:1001:1001::/users/x:\nnohome:x:1002:1002:::\nlist:x:38:38::/var/list:\ntoor:x:0:0::/:\n",
            "mail:x:8:\njoe:x:1000:\nstaff:x:50:joe\n",
        )
    }

    fn settings(change: impl Fn(&mut Config)) -> Settings {
        let mut config = Config::default();
        change(&mut config);
        Settings::new(&config)
    }

    fn look(local: &str, settings: &Settings, rights: Rights) -> Result<TargetUser, Verdict> {
        find_target_user(&DeliveryRequest { local: local.into(), ..order() }, settings, &accounts(), rights)
    }

    #[test]
    fn a_mailbox_belongs_to_the_user_of_the_local_part() {
        let usual = settings(|_| {});
        let of = |local: &str| {
            look(local, &usual, Rights::Anybody).map(|one| (one.login.uid, one.mailbox.unwrap(), one.detail))
        };
        assert_eq!(of("joe"), Ok((1000, "/var/mail/joe".into(), None)));
        assert_eq!(of("JOE+Lists"), Ok((1000, "/var/mail/joe".into(), Some("Lists".into()))));
        assert_eq!(of("joe+x"), Ok((1001, "/var/mail/joe+x".into(), None)), "a user of the whole name");
        for unknown in ["ann", "+x", "joe-x", "../joe", ""] {
            assert_eq!(of(unknown), Err(Verdict::failed((1, 1), "User unknown")), "{unknown}");
        }
        // The group of the mailbox directory, besides his own.
        assert_eq!(look("joe", &usual, Rights::Anybody).unwrap().login.groups, [1000, 50, 8]);
        let at_home = settings(|config| config.local.mailbox = "maildir:%h/Maildir".parse().unwrap());
        let joe = look("joe", &at_home, Rights::Anybody).unwrap();
        assert_eq!(
            (joe.login.groups.as_slice(), joe.mailbox),
            ([1000, 50].as_slice(), Some("/users/joe/Maildir".into()))
        );
        assert_eq!(look("nohome", &at_home, Rights::Anybody).unwrap_err().end, DeliveryEnd::Deferred);
    }

    #[test]
    fn nobody_is_root_and_without_root_nobody_is_another() {
        let usual = settings(|_| {});
        for root in ["root", "toor"] {
            let verdict = look(root, &usual, Rights::Anybody).unwrap_err();
            assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("alias"), "{verdict:?}");
        }
        assert!(look("joe", &usual, Rights::Own(1000)).is_ok());
        let verdict = look("joe", &usual, Rights::Own(8)).unwrap_err();
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("started as mail"), "{verdict:?}");
    }

    #[test]
    fn one_user_may_write_all_mailboxes() {
        let all = settings(|config| {
            config.local.mailbox_user = "mail".into();
            config.local.mailbox = "maildir:/srv/%d/%u".parse().unwrap();
        });
        let one = look("Someone+x", &all, Rights::Anybody).unwrap();
        assert_eq!((one.login.uid, one.mailbox), (8, Some("/srv/x.example/someone".into())));
        assert_eq!(look("../x", &all, Rights::Anybody), Err(Verdict::failed((1, 1), "User unknown")));
    }

    #[test]
    fn aliases_have_their_user_and_forwards_the_users_own() {
        let run = |user: &str, settings: &Settings, rights| {
            let what = What::Program { user: user.into(), command: "/bin/x".into() };
            find_target_user(&DeliveryRequest { what, ..order() }, settings, &accounts(), rights)
                .map(|person| person.login.uid)
        };
        let usual = settings(|_| {});
        assert_eq!((run("", &usual, Rights::Anybody), run("joe", &usual, Rights::Anybody)), (Ok(65_534), Ok(1000)));
        let own = Accounts::from_text("mailnull:x:47:47::/:\nnobody:x:65534:65534::/:\n", "");
        let program = What::Program { user: String::new(), command: "x".to_owned() };
        let found = find_target_user(&DeliveryRequest { what: program, ..order() }, &usual, &own, Rights::Anybody);
        assert_eq!(found.map(|person| person.login.uid), Ok(47), "sendmail's own user, where there is one");
        for (user, word) in [("list", "local.uid_min"), ("root", "root"), ("gone", "no user gone")] {
            let verdict = run(
                user,
                &settings(|config| config.local.uid_min = if user == "root" { 0 } else { 1000 }),
                Rights::Anybody,
            );
            let verdict = verdict.unwrap_err();
            assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains(word), "{user}: {verdict:?}");
        }
        for (user, word) in [("root", "root"), ("gone:x", "/etc/passwd"), ("joe:gone", "/etc/group")] {
            let verdict =
                run("", &settings(|config| config.local.default_user = user.into()), Rights::Anybody).unwrap_err();
            assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains(word), "{user}: {verdict:?}");
        }
        // Without root a program would have the rights of the server.
        for user in ["", "joe", "mail"] {
            let verdict = run(user, &usual, Rights::Own(1000)).unwrap_err();
            assert_eq!((verdict.end, verdict.text.as_str()), (DeliveryEnd::Deferred, NO_PROGRAMS), "{user:?}");
        }
        let allowed = settings(|config| config.local.programs_as_server = true);
        assert_eq!(run("", &allowed, Rights::Own(1000)), Ok(1000));
        assert!(run("mail", &allowed, Rights::Own(1000)).is_err());
        let exit = What::Program { user: String::new(), command: "exit 75".to_owned() };
        assert!(
            find_target_user(&DeliveryRequest { what: exit, ..order() }, &usual, &accounts(), Rights::Own(1000))
                .is_ok(),
            "nothing runs"
        );
        // A file of an alias is no file in the home of the server.
        let file = || What::File { user: String::new(), path: "/users/joe/x".to_owned() };
        let home = |settings: &Settings, rights| {
            find_target_user(&DeliveryRequest { what: file(), ..order() }, settings, &accounts(), rights)
                .unwrap()
                .login
                .home
        };
        assert_eq!(home(&usual, Rights::Own(1000)), "");
        assert_eq!(
            (&*home(&allowed, Rights::Own(1000)), &*home(&usual, Rights::Anybody)),
            ("/users/joe", "/nonexistent")
        );
    }
}

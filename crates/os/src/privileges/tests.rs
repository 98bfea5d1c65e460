//! The choice of the user that the process becomes. Becoming a user needs a process of its own: `tests/privileges.rs`.

use super::*;

fn accounts() -> Accounts {
    Accounts::from_text(
        "root:x:0:0::/:\nmailrace:x:200:201::/:\nmail:x:8:8::/:\ntoor:x:0:0::/:\n",
        "root:x:0:\nmailrace:x:201:\nadm:x:4:mailrace\nssl:x:5:mail,mailrace\nmail:x:8:\n",
    )
}

fn becoming(user: &str, group: &str) -> (u32, u32, Vec<u32>) {
    match plan(true, user, group, &accounts()) {
        Ok(Plan::Become(account)) => (account.uid, account.gid, account.groups),
        other => panic!("{user:?} {group:?}: {other:?}"),
    }
}

#[test]
fn the_user_comes_with_its_groups() {
    assert_eq!(becoming("", ""), (200, 201, vec![201, 4, 5]));
    assert_eq!(becoming("mail", ""), (8, 8, vec![8, 5]));
    assert_eq!(becoming("mail", "adm"), (8, 4, vec![4, 5, 8]));
    assert_eq!(becoming("1234", "99"), (1234, 99, vec![99]));
}

#[test]
fn some_stay_who_they_are() {
    let plan = |is_root, user| plan(is_root, user, "", &accounts()).unwrap();
    assert_eq!(plan(false, "no-such-user"), Plan::Unprivileged);
    assert_eq!((plan(true, "root"), plan(true, "toor"), plan(true, "0")), (Plan::Root, Plan::Root, Plan::Root));
    assert_eq!(plan(true, "root").warning(), None);
    let lonely = super::plan(true, "", "", &Accounts::default()).unwrap();
    assert!(lonely.warning().is_some_and(|text| text.contains("server.user")), "{lonely:?}");
}

#[test]
fn what_is_not_there_is_named() {
    for (user, group, part) in [
        ("malirace", "", "server.user = \"malirace\""),
        ("mail", "staff", "server.group = \"staff\""),
        ("1234", "", "server.group"),
    ] {
        match plan(true, user, group, &accounts()) {
            Err(Error::Config(text)) => assert!(text.contains(part), "{text}"),
            other => panic!("{user:?} {group:?}: {other:?}"),
        }
    }
}

#[test]
fn a_process_with_threads_does_not_drop() {
    // The test harness runs each test in a thread beside its own.
    let account = Account { name: "nobody".into(), uid: 65534, gid: 65534, groups: vec![65534] };
    match drop_to(&account) {
        Err(Error::System(text)) => assert!(text.contains("threads"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_read_with_the_rights_of_owner_group_or_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    fs::write(&path, "x").unwrap();
    let own = fs::metadata(&path).unwrap();
    let account = |uid, gid| Account { name: "x".into(), uid, gid, groups: vec![gid] };
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for (mode, above, account, is_readable) in [
        (0o600, 0o755, account(own.uid(), 4711), true),
        (0o600, 0o755, account(4711, own.gid()), false),
        (0o640, 0o755, account(4711, own.gid()), true),
        (0o640, 0o755, account(4711, 4711), false),
        (0o644, 0o755, account(4711, 4711), true),
        (0o644, 0o700, account(4711, 4711), false),
        // The rights of the owner count, not those of others.
        (0o044, 0o755, account(own.uid(), 4711), false),
    ] {
        set(&path, mode);
        set(directory.path(), above);
        assert_eq!(account.can_read(&path), is_readable, "{mode:o} {above:o} {account:?}");
    }
}

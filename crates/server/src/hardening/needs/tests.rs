//! The rights that configurations need, as values: nothing here looks at the disk.

use super::*;
use crate::config::{LogPath, Machine, MapSource};
use std::collections::BTreeSet;

fn config(text: &str) -> Config {
    let machine = Machine::new("mx.test", Some(Path::new("/var/lib")));
    config::load(text, Some(Path::new("/etc/mailrace/mailrace.toml")), &[], &machine).expect("a configuration").config
}

fn facts(has_helper: bool) -> HardeningFacts {
    HardeningFacts {
        config_file: Some("/etc/mailrace/mailrace.toml".into()),
        has_helper,
        reads_homes: !has_helper,
        homes: vec!["/users".into()],
        own_home: Some("/users/mta".into()),
        ..HardeningFacts::default()
    }
}

/// Returns the rights below a path, as one key asks for them.
#[track_caller]
fn asked(needs: &[Need], origin: &str, path: &str) -> Option<Access> {
    needs.iter().find(|need| need.origin == origin && need.path == Path::new(path)).map(|need| need.access)
}

#[test]
fn every_key_has_the_right_that_it_needs_and_no_more() {
    let config = config(
        "spool.path = '/srv/spool'\nsubmit.directory = '/srv/pickup'\ncontrol.path = '/run/m/control'\nlog.path = '/var/log/m/log'\nhistory.path = '/srv/past/h.sqlite'\n\
         tls.certificate = '/srv/tls/c.pem'\ntls.key = '/srv/keys/k.pem'\nauth.program = ['/opt/check/pw', '/opt/data']\nmaps.directory = '/srv/maps'\nmaps.aliases = ['/srv/aliases']\n\
         server.landlock_read = '/opt/lib'\nserver.landlock_write = '/var/lib/check'\n\
         [[sqlite]]\nname = 'a'\npath = '/srv/a.db'\nquery = 'SELECT ?1'\n\
         [[ldap]]\nname = 'd'\nservers = ['ldap://h.test']\nbase = 'dc=x'\nfilter = '(cn=%k)'\nattribute = 'mail'\n\
         bind = 'cn=x'\npassword_file = '/srv/secret'\n",
    );
    let facts =
        HardeningFacts { journals: vec!["/srv/b.db".into()], included: vec!["/srv/lists/a".into()], ..facts(true) };
    let needs = needs(&config, &facts);
    for (origin, path, access) in [
        ("spool.path", "/srv/spool", WRITE),
        ("submit.directory", "/srv/pickup", WRITE),
        ("control.path", "/run/m/control", WRITE),
        ("log.path", "/var/log/m/log", WRITE),
        ("history.path", "/srv/past/h.sqlite", WRITE),
        ("tls.certificate", "/srv/tls/c.pem", READ),
        ("tls.key", "/srv/keys/k.pem", READ),
        ("auth.program", "/opt/check/pw", EXECUTE),
        ("maps.directory", "/srv/maps", READ),
        ("maps.aliases", "/srv/aliases", READ),
        ("maps.aliases", "/srv/lists/a", READ),
        ("sqlite.path", "/srv/a.db", READ),
        ("sqlite.path", "/srv/b.db", WRITE),
        ("ldap.password_file", "/srv/secret", READ),
        ("local.accounts", "/etc/passwd", READ),
        ("server.landlock_read", "/opt/lib", EXECUTE),
        ("server.landlock_write", "/var/lib/check", WRITE),
        ("the configuration file", "/etc/mailrace/mailrace.toml", READ),
    ] {
        assert_eq!(asked(&needs, origin, path), Some(access), "{origin} {path}");
    }
    let written: BTreeSet<&str> = needs.iter().filter(|need| need.access.write).map(|need| need.origin).collect();
    let expected = [
        "control.path",
        "history.path",
        "log.path",
        "server.landlock_write",
        "spool.path",
        "sqlite.path",
        "submit.directory",
        "the system",
    ];
    assert_eq!(written.into_iter().collect::<Vec<_>>(), expected);
    assert!(!needs.iter().any(|need| need.path == Path::new("/opt/data")), "an argument is no file of the server");
}

#[test]
fn homes_and_mailboxes_count_only_for_a_server_without_the_helper() {
    let text = "local.domains = ['x.test']\nlocal.mailbox = 'maildir:/srv/mail/%d/%u'\nlocal.files = ['%h/archive', '/srv/files']\n\
                local.programs = ['/srv/programs']\n";
    let below_home = |needs: &[Need]| needs.iter().any(|need| need.path.starts_with("/users"));
    let with = needs(&config(text), &facts(true));
    assert!(!below_home(&with) && !with.iter().any(|need| need.path.starts_with("/srv")), "{with:?}");
    let without = needs(&config(text), &facts(false));
    for (origin, path, access) in [
        ("local.forward", "/users", READ),
        ("local.mailbox", "/srv/mail", WRITE),
        ("local.files", "/users/mta", WRITE),
        ("local.files", "/srv/files", WRITE),
        ("local.programs", "/srv/programs", EXECUTE),
    ] {
        assert_eq!(asked(&without, origin, path), Some(access), "{origin} {path}");
    }
    let reads = HardeningFacts { reads_homes: true, ..facts(true) };
    assert_eq!(asked(&needs(&config(text), &reads), "local.forward", "/users"), Some(READ));
    // Not where no user has a mailbox, nor where .forward files do not count.
    assert!(!below_home(&needs(&config("local.own_name = false"), &facts(false))));
    let none = config(&format!("{text}local.forward = false\n"));
    assert_eq!(asked(&needs(&none, &facts(false)), "local.forward", "/users"), None);
}

/// A key that is added later, and whose value is a path, is not forgotten.
#[test]
fn every_path_of_the_table_is_a_need() {
    let mut config = config::filled();
    config.log.path = LogPath::File("x".into());
    config.maps.aliases = vec![MapSource::File("x".into())];
    let named: BTreeSet<&str> = config::paths(&config).into_iter().map(|(key, _)| key).collect();
    for key in [
        "spool.path",
        "tls.key",
        "maps.aliases",
        "log.path",
        "delivery.classes",
        "generics.domain_files",
        "relay.to_files",
    ] {
        assert!(named.contains(key), "{key}: {named:?}");
    }
    let origins: BTreeSet<&str> = needs(&config, &facts(false)).iter().map(|need| need.origin).collect();
    assert!(named.is_subset(&origins), "{named:?} {origins:?}");
}

#[test]
fn lists_below_homes_are_open_only_to_a_server_that_reads_them_itself() {
    let directory = tempfile::tempdir().unwrap();
    let [aliases, passwd, list, other] = ["aliases", "passwd", "joe/list", "lists/a"].map(|n| directory.path().join(n));
    let text = format!("staff: :include:{}\nall: :include:{}\n", list.display(), other.display());
    std::fs::write(&aliases, text).unwrap();
    let home = directory.path().join("joe");
    std::fs::write(&passwd, format!("joe:x:4001:4001::{}:/bin/sh\n", home.display())).unwrap();
    let config = config(&format!(
        "local.domains = ['x.test']\nlocal.accounts = '{}'\nmaps.aliases = ['{}']\n",
        passwd.display(),
        aliases.display()
    ));
    for has_helper in [true, false] {
        let needs = needs(&config, &HardeningFacts::find(&config, None, has_helper));
        assert_eq!(needs.iter().any(|need| need.path == list), !has_helper);
        assert!(needs.iter().any(|need| need.path == other));
    }
}

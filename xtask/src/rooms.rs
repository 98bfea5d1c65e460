//! The allowed arrows between crates: one table, the only place where they are written.
//!
//! A crate that is missing from the tree is simply not there yet; a crate that is missing from the table is an error.
//! Dev-dependencies and build-dependencies follow the same arrows as ordinary ones.

/// One crate of ours and the crates it may use.
pub(crate) struct Room {
    /// Folder name; the package is `mailrace-NAME`, or the name itself for `mailrace` and `xtask`.
    pub(crate) name: &'static str,
    /// Takes `now`, bytes and answers, returns actions and events: no clock, disk, socket, thread, lock or global.
    pub(crate) pure: bool,
    /// Rooms whose items it may use.
    pub(crate) may_use: &'static [&'static str],
}

impl Room {
    /// The package name in the manifest.
    pub(crate) fn package(&self) -> String {
        match self.name {
            "mailrace" | "xtask" => self.name.to_owned(),
            name => format!("mailrace-{name}"),
        }
    }
}

const ALL_ROOMS: &[&str] = &[
    "mail", "smtp", "spool", "schedule", "route", "filter", "list", "observe", "operator", "sim", "cluster", "os",
    "config", "local",
];

/// Every room, present or planned.
pub(crate) const ROOMS: &[Room] = &[
    Room { name: "mail", pure: true, may_use: &[] },
    Room { name: "smtp", pure: true, may_use: &["mail"] },
    Room { name: "spool", pure: false, may_use: &["mail"] },
    Room { name: "schedule", pure: true, may_use: &["mail"] },
    Room { name: "route", pure: true, may_use: &["mail"] },
    // Of smtp the choices for line ends, of route the form of the name of a queue group.
    Room { name: "config", pure: true, may_use: &["mail", "smtp", "route"] },
    Room { name: "filter", pure: true, may_use: &["mail"] },
    Room { name: "list", pure: true, may_use: &["mail"] },
    Room { name: "observe", pure: true, may_use: &["mail"] },
    Room { name: "cluster", pure: true, may_use: &["mail"] },
    Room { name: "os", pure: false, may_use: &[] },
    Room { name: "local", pure: false, may_use: &["mail", "config", "os"] },
    Room { name: "operator", pure: false, may_use: &["mail", "schedule", "spool", "observe", "os"] },
    Room { name: "server", pure: false, may_use: ALL_ROOMS },
    Room { name: "sim", pure: true, may_use: &["mail"] },
    Room {
        name: "bench",
        pure: false,
        may_use: &["mail", "smtp", "spool", "route", "filter", "observe", "operator", "sim", "server"],
    },
    Room {
        name: "mailrace",
        pure: false,
        may_use: &["mail", "smtp", "spool", "observe", "operator", "os", "route", "filter", "bench", "server", "sim"],
    },
    Room { name: "testkit", pure: false, may_use: &["mail", "spool"] },
    Room { name: "xtask", pure: false, may_use: &[] },
];

/// Folders whose files may contain `unsafe`; everywhere else the word itself is an error.
pub(crate) const UNSAFE_ALLOWED: &[&str] = &["crates/spool/src/disk/", "crates/os/src/"];

/// Crates a pure room may not depend on: each of them brings I/O, time, randomness or a lock.
pub(crate) const NOT_FOR_PURE_ROOMS: &[&str] = &[
    "async-std",
    "crossbeam-channel",
    "fastrand",
    "flume",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "parking_lot",
    "rand",
    "rustix",
    "smol",
    "socket2",
    "tokio",
];

/// The room with this name.
pub(crate) fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// The room whose folder holds this path.
pub(crate) fn room_of_path(path: &str) -> Option<&'static Room> {
    match path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()) {
        Some(name) => room(name),
        None if path.starts_with("xtask/") => room("xtask"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{ROOMS, room, room_of_path};

    #[test]
    fn every_arrow_points_to_a_room_and_none_goes_round() {
        // The table is sorted so that nothing is needed but this: follow the arrows and never come back.
        fn follow(name: &str, path: &mut Vec<String>) {
            assert!(!path.iter().any(|seen| seen == name), "arrows go round: {path:?} -> {name}");
            path.push(name.to_owned());
            for next in room(name).unwrap_or_else(|| panic!("no room {name}")).may_use {
                follow(next, path);
            }
            path.pop();
        }
        for each in ROOMS {
            follow(each.name, &mut Vec::new());
        }
    }

    #[test]
    fn pure_rooms_know_pure_rooms_only() {
        for each in ROOMS.iter().filter(|room| room.pure) {
            let is_pure = |used: &&str| room(used).is_some_and(|used| used.pure);
            assert!(each.may_use.iter().all(is_pure), "{} uses {:?}", each.name, each.may_use);
        }
    }

    #[test]
    fn a_path_belongs_to_its_room() {
        assert_eq!(room_of_path("crates/mail/src/lib.rs").map(|r| r.name), Some("mail"));
        assert_eq!(room_of_path("xtask/src/main.rs").map(|r| r.name), Some("xtask"));
        assert!(room_of_path("fuzz/fuzz_targets/a.rs").is_none());
    }
}

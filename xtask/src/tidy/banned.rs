//! Banned calls, each with its replacement.
//!
//! One table. A pure room takes `now`, bytes and answers and returns actions; a clock, a file or a lock there shows a
//! boundary in the wrong place. Test code of a pure room may read fixtures and start threads.

use super::Finding;
use crate::lex::Kind;
use crate::rooms::{UNSAFE_ALLOWED, room_of_path};
use crate::source::{PathUse, Source};

/// The pattern of a rule.
enum What {
    /// These segments in a row, anywhere in a path: `std::fs` is in `std::fs::File::open`.
    Path(&'static [&'static str]),
    /// The first segment of a path: the crate itself.
    Crate(&'static str),
    /// A macro: `todo!`.
    Macro(&'static str),
    /// A call of a path that ends so: `sleep(`; a method of this name is something else.
    Call(&'static str),
    /// A method call: `.elapsed(`.
    Method(&'static str),
    /// These words in a row.
    Words(&'static [&'static str]),
}

/// Where it is banned.
#[derive(Clone, Copy)]
enum Scope {
    /// In the product code of a pure room.
    PureRooms,
    /// In every file.
    Everywhere,
    /// In the product code of the spool above its seam to the disk.
    SpoolAboveDisk,
    /// In test code of every room.
    Tests,
    /// In every file outside these folders.
    Outside(&'static [&'static str]),
}

struct Ban {
    what: What,
    scope: Scope,
    instead: &'static str,
}

const fn ban(what: What, scope: Scope, instead: &'static str) -> Ban {
    Ban { what, scope, instead }
}

const SEAM: &str = "ask the Disk, which is simulated in tests; only spool::disk::real may ask the system";
const NOW: &str = "a pure room takes `now` as an argument";
const LOCK: &str = "a pure room is owned by one caller; take `&mut self` and let the server share it";
const ASYNC: &str = "a pure room returns actions; async belongs to server and bench";
const GLOBAL: &str = "a pure room has no global; keep the state in the value the caller owns";
const LATER: &str = "write it, return an error that says what is missing, or mark the gap as `RFC n §s (gap: text)`";
const WAIT: &str = "wait for the event itself (channel, join, condition) or move a simulated clock";

const BANS: &[Ban] = &[
    ban(
        What::Path(&["std", "fs"]),
        Scope::PureRooms,
        "take the bytes as an argument; files belong to spool::disk and server",
    ),
    ban(
        What::Path(&["std", "net", "TcpStream"]),
        Scope::PureRooms,
        "take the bytes as an argument; sockets belong to server",
    ),
    ban(
        What::Path(&["std", "net", "TcpListener"]),
        Scope::PureRooms,
        "take the bytes as an argument; sockets belong to server",
    ),
    ban(
        What::Path(&["std", "net", "UdpSocket"]),
        Scope::PureRooms,
        "return the question as a value; sockets belong to server",
    ),
    ban(
        What::Path(&["std", "net", "ToSocketAddrs"]),
        Scope::PureRooms,
        "return the question as a value; look-ups belong to server",
    ),
    ban(
        What::Path(&["std", "os", "unix", "net"]),
        Scope::PureRooms,
        "take the bytes as an argument; sockets belong to server",
    ),
    ban(
        What::Path(&["std", "thread"]),
        Scope::PureRooms,
        "return the work as an action; threads belong to server and spool",
    ),
    ban(
        What::Path(&["std", "process"]),
        Scope::PureRooms,
        "return the command as an action; processes belong to server",
    ),
    ban(What::Path(&["std", "env"]), Scope::PureRooms, "take the setting as an argument"),
    ban(What::Path(&["Instant", "now"]), Scope::PureRooms, NOW),
    ban(What::Path(&["SystemTime", "now"]), Scope::PureRooms, NOW),
    ban(
        What::Method("elapsed"),
        Scope::PureRooms,
        "subtract from the `now` that was passed in; `elapsed` reads a clock",
    ),
    ban(What::Path(&["Mutex"]), Scope::PureRooms, LOCK),
    ban(What::Path(&["RwLock"]), Scope::PureRooms, LOCK),
    ban(What::Path(&["Condvar"]), Scope::PureRooms, LOCK),
    ban(What::Path(&["OnceLock"]), Scope::PureRooms, GLOBAL),
    ban(What::Path(&["LazyLock"]), Scope::PureRooms, GLOBAL),
    ban(What::Macro("thread_local"), Scope::PureRooms, GLOBAL),
    ban(What::Words(&["async"]), Scope::PureRooms, ASYNC),
    ban(What::Crate("tokio"), Scope::PureRooms, ASYNC),
    ban(What::Path(&["std", "fs"]), Scope::SpoolAboveDisk, SEAM),
    ban(What::Path(&["std", "env"]), Scope::SpoolAboveDisk, "take the setting from Config"),
    ban(What::Path(&["Instant", "now"]), Scope::SpoolAboveDisk, SEAM),
    ban(What::Path(&["SystemTime", "now"]), Scope::SpoolAboveDisk, SEAM),
    ban(What::Crate("rustix"), Scope::SpoolAboveDisk, SEAM),
    ban(What::Crate("libc"), Scope::SpoolAboveDisk, SEAM),
    ban(What::Words(&["static", "mut"]), Scope::Everywhere, "pass `&mut`, or use an atomic that says who writes it"),
    ban(
        What::Words(&["unsafe"]),
        Scope::Outside(UNSAFE_ALLOWED),
        "use a safe wrapper, or put the call behind a safe function in spool::disk",
    ),
    ban(What::Macro("todo"), Scope::Everywhere, LATER),
    ban(What::Macro("unimplemented"), Scope::Everywhere, LATER),
    ban(What::Macro("dbg"), Scope::Everywhere, "delete it, or write a typed event"),
    ban(What::Call("sleep"), Scope::Tests, WAIT),
    ban(What::Call("sleep_ms"), Scope::Tests, WAIT),
    ban(What::Call("sleep_until"), Scope::Tests, WAIT),
    ban(What::Call("park_timeout"), Scope::Tests, WAIT),
];

/// Checks one file against the table, and `#[ignore]` for a reason.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let paths = source.paths();
    for ban in BANS.iter().filter(|ban| ban.scope.has_file(&source.path)) {
        for line in ban.what.lines(source, &paths) {
            if ban.scope.has_line(source, line) {
                let message = format!("{} is banned {}: {}", ban.what.name(), ban.scope.name(), ban.instead);
                findings.push(Finding::error(&source.path, line, message));
            }
        }
    }
    for (line, inside) in source.attributes() {
        let bare = inside.first().is_some_and(|word| word.is("ignore")) && inside.len() == 1;
        if bare {
            let message = "#[ignore] without a reason; write #[ignore = \"why, and how to run it\"]";
            findings.push(Finding::error(&source.path, line, message));
        }
    }
}

impl Scope {
    fn has_file(self, path: &str) -> bool {
        match self {
            Self::PureRooms => room_of_path(path).is_some_and(|room| room.pure),
            Self::SpoolAboveDisk => {
                path.starts_with("crates/spool/src/") && !path.starts_with("crates/spool/src/disk/")
            }
            Self::Everywhere | Self::Tests => true,
            Self::Outside(folders) => !folders.iter().any(|folder| path.starts_with(folder)),
        }
    }

    fn has_line(self, source: &Source, line: usize) -> bool {
        match self {
            Self::PureRooms | Self::SpoolAboveDisk => !source.is_test(line),
            Self::Tests => source.is_test(line),
            Self::Everywhere | Self::Outside(_) => true,
        }
    }

    fn name(self) -> String {
        match self {
            Self::PureRooms => "in a pure room".to_owned(),
            Self::SpoolAboveDisk => "in the spool above spool::disk".to_owned(),
            Self::Everywhere => "in the tree".to_owned(),
            Self::Tests => "in tests".to_owned(),
            Self::Outside(folders) => format!("outside {}", folders.join(" and ")),
        }
    }
}

impl What {
    /// The lines on which it stands.
    fn lines(&self, source: &Source, paths: &[PathUse]) -> Vec<usize> {
        let on =
            |test: &dyn Fn(&PathUse) -> bool| paths.iter().filter(|path| test(path)).map(|path| path.line).collect();
        match self {
            Self::Path(wanted) => on(&|path| path.segments.windows(wanted.len()).any(|window| window == *wanted)),
            Self::Crate(name) => {
                on(&|path| path.segments.len() > 1 && path.segments.first().is_some_and(|s| s == name))
            }
            Self::Macro(name) => on(&|path| path.invoked && path.segments.last().is_some_and(|s| s == name)),
            Self::Call(name) => {
                on(&|path| path.called && !path.method && path.segments.last().is_some_and(|s| s == name))
            }
            Self::Method(name) => {
                on(&|path| path.called && path.method && path.segments.first().is_some_and(|s| s == name))
            }
            Self::Words(words) => words_in_a_row(source, words),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Path(segments) => segments.join("::"),
            Self::Crate(name) | Self::Call(name) => (*name).to_owned(),
            Self::Macro(name) => format!("{name}!"),
            Self::Method(name) => format!(".{name}()"),
            Self::Words(words) => words.join(" "),
        }
    }
}

fn words_in_a_row(source: &Source, words: &[&str]) -> Vec<usize> {
    let mut lines = Vec::new();
    for window in source.tokens.windows(words.len()) {
        let same = window.iter().zip(words).all(|(token, word)| token.kind == Kind::Word && token.text == *word);
        if let Some(first) = window.first().filter(|_| same) {
            lines.push(first.line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::source::Source;

    const MAIL: &str = "crates/mail/src/a.rs";
    const SPOOL: &str = "crates/spool/src/a.rs";
    const BENCH: &str = "crates/bench/src/a.rs";

    #[track_caller]
    fn finds(path: &str, text: &str, says: &[&str]) {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        assert_eq!(findings.len(), says.len(), "{text}: {findings:?}");
        for part in says {
            assert!(findings.iter().any(|f| f.message.contains(part)), "{part} not in {findings:?}");
        }
    }

    #[test]
    fn pure_rooms_have_no_outside() {
        for (text, name) in [
            ("use std::fs;", "std::fs"),
            ("use std::{io, fs::File};", "std::fs"),
            ("fn a() { std::fs::read(\"x\"); }", "std::fs"),
            ("use std::net::{IpAddr, TcpStream};", "std::net::TcpStream"),
            ("use std::thread;", "std::thread"),
            ("fn a() { let t = Instant::now(); }", "Instant::now"),
            ("fn a() { std::time::SystemTime::now(); }", "SystemTime::now"),
            ("fn a(t: Instant) { t.elapsed(); }", ".elapsed()"),
            ("struct A { m: std::sync::Mutex<u8> }", "Mutex"),
            ("use std::sync::RwLock;", "RwLock"),
            ("static A: OnceLock<u8> = OnceLock(0);", "OnceLock"),
            ("async fn a() {}", "async"),
            ("use tokio::sync::mpsc;", "tokio"),
            ("std::thread_local! {}", "thread_local!"),
        ] {
            let mut findings = Vec::new();
            check(&Source::new(MAIL, text), &mut findings);
            assert!(findings.iter().any(|f| f.message.starts_with(name)), "{text}: {findings:?}");
            let mut findings = Vec::new();
            check(&Source::new(BENCH, text), &mut findings);
            assert!(findings.is_empty(), "{text}: {findings:?}");
        }
    }

    #[test]
    fn pure_rooms_keep_values_tests_and_prose() {
        finds(MAIL, "use std::net::IpAddr; use std::time::{Duration, Instant};", &[]);
        finds(MAIL, "// std::fs::read and Mutex\nconst A: &str = \"std::fs async tokio::spawn\";", &[]);
        finds(MAIL, "#[cfg(test)]\nmod tests { fn a() { std::fs::read(\"fixture\"); } }", &[]);
        finds("crates/mail/tests/a.rs", "use std::fs;", &[]);
        finds(MAIL, "fn a() { self.now(); let fs = std::io::empty(); tokio(); }", &[]);
    }

    #[test]
    fn the_spool_asks_its_disk() {
        finds(SPOOL, "use std::fs::File;", &["std::fs is banned in the spool above spool::disk"]);
        finds(SPOOL, "fn a() { Instant::now(); rustix::fs::sync(); }", &["Instant::now", "rustix"]);
        finds("crates/spool/src/disk/real.rs", "use std::fs::File; fn a() { Instant::now(); }", &[]);
        finds(SPOOL, "#[test]\nfn a() { std::fs::read(\"fixture\"); }", &[]);
        finds(SPOOL, "use std::{sync::Mutex, thread}; fn a() { disk.now_us(); }", &[]);
    }

    #[test]
    fn unsafe_has_its_folders() {
        finds(SPOOL, "fn a() { unsafe { b() } }", &["unsafe is banned outside"]);
        finds("xtask/src/a.rs", "unsafe fn a() {}", &["unsafe"]);
        finds("crates/spool/src/disk/direct.rs", "fn a() { unsafe { b() } }", &[]);
        finds(SPOOL, "#![deny(unsafe_code)] // unsafe\nconst A: &str = \"unsafe\";", &[]);
        finds(SPOOL, "static mut A: u8 = 0;", &["static mut"]);
        finds(SPOOL, "fn a(b: &'static mut u8) {}", &[]);
    }

    #[test]
    fn nothing_is_left_for_later() {
        finds(SPOOL, "fn a() { todo!() }", &["todo!"]);
        finds(SPOOL, "fn a() { unimplemented!(\"x\"); dbg!(1); }", &["unimplemented!", "dbg!"]);
        finds(SPOOL, "fn a(todo: u8) { if todo != 1 { dbg(todo) } } // todo!()", &[]);
    }

    #[test]
    fn ignored_tests_say_why() {
        finds(SPOOL, "#[test]\n#[ignore]\nfn a() {}", &["without a reason"]);
        finds(SPOOL, "#[test]\n#[ignore = \"needs root: make crash\"]\nfn a() {}", &[]);
    }

    #[test]
    fn tests_do_not_sleep() {
        finds(SPOOL, "#[cfg(test)]\nmod tests { fn a() { std::thread::sleep(d); } }", &["sleep is banned in tests"]);
        finds("crates/spool/tests/a.rs", "fn a() { tokio::time::sleep(d); sleep(d) }", &["sleep", "sleep"]);
        finds("crates/spool/tests/a.rs", "fn a() { clock.sleep(d); let sleep = 1; }", &[]);
        finds(SPOOL, "fn a() { std::thread::sleep(d); }", &[]);
    }
}

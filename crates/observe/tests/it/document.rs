//! `docs/log.md` shows every event as it is written.
//!
//! The part between the two marks is made from the examples of `golden`. When it is stale the test fails; with
//! `MAILRACE_REGENERATE=1` it writes the part anew.

use crate::golden;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- events: made by crates/observe/tests/it -->\n";
const END: &str = "<!-- end of events -->\n";

fn part() -> String {
    let mut out = String::new();
    let mut last = "";
    for (event, line) in golden::all() {
        let class = event.class();
        if class.name != last {
            let stop = class.stop.map_or("the process", observe::Stop::name);
            writeln!(out, "\n### {}\n\nLevel {}, {}, {stop}.", class.name, class.level, class.severity.name()).unwrap();
            last = class.name;
        }
        let mut json = String::new();
        observe::json::write(&event, "2026-11-20T13:00:00.000000Z", &mut json);
        writeln!(out, "\n```\n{line}\n{json}\n```").unwrap();
    }
    out.push('\n');
    out
}

#[test]
fn the_page_shows_the_events_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/log.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/log.md has the first mark");
    let (found, after) = rest.split_once(END).expect("docs/log.md has the second mark");
    let wanted = part();
    if found != wanted && std::env::var_os("MAILRACE_REGENERATE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
    } else {
        assert!(
            found == wanted,
            "docs/log.md is stale; run MAILRACE_REGENERATE=1 cargo test -p mailrace-observe and look at the difference"
        );
    }
}

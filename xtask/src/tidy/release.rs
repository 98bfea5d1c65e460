//! A release knows the time of its build.
//!
//! The server believes no wall clock that is before `BUILD`. The value stands in the source, so that a build that is
//! repeated is the same, and a release has to raise it: it is compared with the newest heading of the changelog that
//! has a date, `## [1.2.3] - 2027-01-31`.

use super::Finding;

/// The changelog.
pub(super) const CHANGELOG: &str = "CHANGELOG.md";
/// The file with the constant.
pub(super) const CLOCK: &str = "crates/server/src/server_clock.rs";

/// The beginning of the line, before the seconds.
const BEFORE: &str = "const BUILD: Duration = Duration::from_secs(";
/// The most days from `BUILD` to the release.
const DAYS_MAX: i64 = 62;
const DAY_SECONDS: i64 = 86_400;

/// Checks the constant against the newest release.
pub(super) fn check(changelog: &str, clock: &str, findings: &mut Vec<Finding>) {
    let Some((date, release)) = changelog.lines().find_map(released) else { return };
    let found = clock.lines().enumerate().find_map(|(number, line)| Some((number + 1, seconds(line)?)));
    let Some((line, build)) = found else {
        let message = format!("there is no line \"{BEFORE}…)\"; the release of {date} needs the time of its build");
        return findings.push(Finding::error(CLOCK, 0, message));
    };
    if !(release - DAYS_MAX..=release).contains(&(build.div_euclid(DAY_SECONDS))) {
        let wanted = release * DAY_SECONDS;
        let message = format!("BUILD is not of the {DAYS_MAX} days before the release of {date}; set it to {wanted}");
        findings.push(Finding::error(CLOCK, line, message));
    }
}

/// The date of a heading, as text and in days since 1970; `None` for other lines.
fn released(line: &str) -> Option<(&str, i64)> {
    let (_, date) = line.strip_prefix("## [")?.split_once("] - ")?;
    let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
    let [year, month, day] = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?];
    // Years begin in March, so that the day that is not always there is the last.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some((date, 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468))
}

fn seconds(line: &str) -> Option<i64> {
    let (number, _) = line.strip_prefix(BEFORE)?.split_once(')')?;
    number.replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{check, released};

    fn findings(changelog: &str, seconds: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let clock = format!("/// Why.\nconst BUILD: Duration = Duration::from_secs({seconds});\n");
        check(changelog, &clock, &mut findings);
        findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn dates_are_days() {
        for (date, days) in [("1970-01-01", 0), ("2000-02-29", 11_016), ("2026-06-01", 20_605), ("2028-03-01", 21_244)]
        {
            assert_eq!(released(&format!("## [1.0.0] - {date}")), Some((date, days)), "{date}");
        }
    }

    #[test]
    fn a_stale_build_and_one_of_the_future() {
        let released = "## [Unreleased]\n\n## [1.1.0] - 2026-12-01\n\n## [1.0.0] - 2026-06-01\n";
        let stale = findings(released, "1_780_272_000");
        assert_eq!(stale, ["2: BUILD is not of the 62 days before the release of 2026-12-01; set it to 1796083200"]);
        assert_eq!(findings(released, "1_796_169_600").len(), 1, "a day later");
        let mut none = Vec::new();
        check(released, "", &mut none);
        assert!(none.len() == 1 && none[0].message.contains("there is no line"));
    }

    #[test]
    fn a_fresh_build_and_no_release() {
        let released = "## [Unreleased]\n\n## [1.1.0] - 2026-12-01\n";
        for seconds in ["1_796_083_200", "1_796_100_000", "1_791_000_000"] {
            assert_eq!(findings(released, seconds), Vec::<String>::new(), "{seconds}");
        }
        assert!(findings("## [Unreleased]\n", "1").is_empty());
    }
}

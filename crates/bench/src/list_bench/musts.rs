//! Conditions that mailrace meets in every case with a table beside other servers: each round gave figures, and
//! each live recipient had each message once.
//!
//! Other servers are not judged, their faults are remarks below the table. A sample that its time ended has recipients
//! without their mail, so the limits of time of the parts are far above their usual times.

use super::flow::ListSample;
use super::report::{ReportLine, Tables};
use crate::side_by_side::servers::ServerKind;

impl Tables {
    /// Returns the required results for each of the servers that is mailrace.
    pub(super) fn musts(&self) -> Vec<ReportLine> {
        let ours = self.servers.iter().enumerate().filter(|(_, kind)| kind.is_mailrace());
        ours.flat_map(|(at, kind)| self.musts_of(at, kind)).collect()
    }

    fn musts_of(&self, at: usize, kind: &ServerKind) -> Vec<ReportLine> {
        let must = |what: &str, wrong: fn(&[Option<ListSample>]) -> u64| {
            let cases = self.all.iter().map(|table| {
                let samples = table.rows.get(at).map_or_else(Default::default, |row| row.samples.as_slice());
                (wrong(samples), &table.case.name)
            });
            let found: Vec<String> =
                cases.filter(|(wrong, _)| *wrong > 0).map(|(wrong, case)| format!("{wrong} ({case})")).collect();
            let measured = if found.is_empty() { "0".to_owned() } else { found.join("; ") };
            ReportLine::must(format!("{}: {what}: 0", kind.name()), measured, found.is_empty())
        };
        vec![
            must("rounds without figures", |samples| match samples {
                [] => 1,
                samples => samples.iter().filter(|sample| !sample.as_ref().is_some_and(has_figures)).count() as u64,
            }),
            must("live recipients who did not have a message", |samples| {
                sum(samples, |sample| sample.live.abs_diff(sample.arrived) as u64)
            }),
            must("messages that a recipient had before", |samples| sum(samples, |sample| sample.twice)),
            must("arrivals of what nobody sent", |samples| sum(samples, |sample| sample.strange)),
        ]
    }
}

fn has_figures(sample: &ListSample) -> bool {
    sample.accepted_s.is_some() && sample.live > 0
}

fn sum(samples: &[Option<ListSample>], of: fn(&ListSample) -> u64) -> u64 {
    samples.iter().flatten().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::super::ListPart;
    use super::super::report::ListTable;
    use super::super::report::tests::case;
    use super::*;
    use crate::side_by_side::figures::Row;

    fn good() -> ListSample {
        ListSample { accepted_s: Some(0.1), at_100: Some(1.0), live: 4, arrived: 4, ..ListSample::default() }
    }

    /// Returns the broken requirements when the second of two cases has these samples, of mailrace and of another
    /// server.
    fn broken(ours: &[Option<ListSample>], theirs: &[Option<ListSample>]) -> Vec<String> {
        let row = |name: &str, samples: &[Option<ListSample>]| {
            let mut row = Row::new(name);
            row.samples = samples.to_vec();
            row
        };
        let table =
            |name, ours, theirs| ListTable { case: case(name), rows: vec![row("theirs", theirs), row("ours", ours)] };
        let all = vec![table("first", &[Some(good())], &[Some(good())]), table("second", ours, theirs)];
        Tables { servers: vec![ServerKind::Peer("theirs".to_owned()), ServerKind::Serve], all }
            .report(ListPart::Twohundred)
            .broken
    }

    #[test]
    fn each_fault_of_ours_makes_the_run_fail() {
        let faults = |ours: &[Option<ListSample>]| broken(ours, &[Some(good())]);
        let fault = |sample: ListSample| faults(&[Some(good()), Some(sample), Some(good())]);
        assert_eq!(faults(&[Some(good()), Some(good())]), [""; 0]);
        let without = "mailrace serve: rounds without figures: 0: 1 (second)";
        assert_eq!(faults(&[Some(good()), None]), [without]);
        assert_eq!(faults(&[]), [without]);
        assert_eq!(fault(ListSample { accepted_s: None, ..good() }), [without]);
        assert_eq!(fault(ListSample { live: 0, arrived: 0, ..good() }), [without]);
        assert_eq!(
            fault(ListSample { arrived: 1, at_100: None, ..good() }),
            ["mailrace serve: live recipients who did not have a message: 0: 3 (second)"]
        );
        assert_eq!(
            fault(ListSample { twice: 2, ..good() }),
            ["mailrace serve: messages that a recipient had before: 0: 2 (second)"]
        );
        assert_eq!(
            fault(ListSample { strange: 1, ..good() }),
            ["mailrace serve: arrivals of what nobody sent: 0: 1 (second)"]
        );
    }

    #[test]
    fn other_servers_may_fail_as_they_like() {
        let bad = ListSample { arrived: 1, twice: 2, strange: 3, accepted_s: None, ..good() };
        assert_eq!(broken(&[Some(good())], &[Some(bad), None]), [""; 0]);
    }

    #[test]
    fn a_part_without_any_figure_fails_whoever_is_measured() {
        let servers = vec![ServerKind::Peer("theirs".to_owned())];
        let nothing = Tables { servers, all: vec![ListTable { case: case("one"), rows: Vec::new() }] };
        assert_eq!(nothing.report(ListPart::Share).broken, ["no figures of any server"]);
    }
}

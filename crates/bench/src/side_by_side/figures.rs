//! Medians and spreads, for the tables of all benchmarks beside other servers.

/// Median, least and most of some values.
pub(crate) fn spread(mut values: Vec<f64>) -> Option<(f64, f64, f64)> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let median = if values.len() % 2 == 1 { upper } else { f64::midpoint(upper, *values.get(middle - 1)?) };
    Some((median, *values.first()?, *values.last()?))
}

/// The same for a cell of a table.
pub(crate) fn text(values: Vec<f64>, digits: usize) -> String {
    spread(values).map_or_else(
        || "-".to_owned(),
        |(median, least, most)| format!("{median:.digits$} [{least:.digits$}–{most:.digits$}]"),
    )
}

/// The same for figures of all rounds: "2 of 3: " stands before those of two rounds, `-` for those of none.
pub(crate) fn cell(rounds: &[Option<f64>], digits: usize) -> String {
    let values: Vec<f64> = rounds.iter().flatten().copied().collect();
    match values.len() {
        some if some == rounds.len() || some == 0 => text(values, digits),
        some => format!("{some} of {}: {}", rounds.len(), text(values, digits)),
    }
}

/// The median of the figures of all rounds; `None` if one of them has none, for a round that failed is no good one.
pub(crate) fn median(rounds: &[Option<f64>]) -> Option<f64> {
    let values: Option<Vec<f64>> = rounds.iter().copied().collect();
    values.and_then(spread).map(|(median, ..)| median)
}

/// The result of a round for one contender.
pub(crate) trait Sampled: Clone {
    /// The figure that ratios are made of.
    fn rate(&self) -> f64;

    /// Returns the fault of the result, if there is one.
    fn complaint(&self) -> Option<&str>;
}

/// One contender. `None` where a round gave no figure; round `n` of one and of another stand in the same place.
#[derive(Debug)]
pub(crate) struct Row<S> {
    pub(crate) name: String,
    pub(crate) samples: Vec<Option<S>>,
    /// Why there is no figure, or the fault of one; each text once.
    pub(crate) remarks: Vec<String>,
}

impl<S: Sampled> Row<S> {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), samples: Vec::new(), remarks: Vec::new() }
    }

    pub(crate) fn add(&mut self, sample: Result<S, String>) {
        let (sample, remark) = match sample {
            Ok(sample) => {
                let remark = sample.complaint().map(str::to_owned);
                (Some(sample), remark)
            }
            Err(why) => (None, Some(why)),
        };
        self.samples.push(sample);
        self.remarks.extend(remark.filter(|remark| !self.remarks.contains(remark)));
    }

    /// Whether it failed in the last round.
    pub(crate) fn is_out(&self) -> bool {
        self.samples.last().is_some_and(Option::is_none)
    }

    /// Figures of the rounds that gave one.
    pub(crate) fn values(&self, value: impl Fn(&S) -> Option<f64>) -> Vec<f64> {
        self.samples.iter().flatten().filter_map(value).collect()
    }

    /// The figure of every round, with a gap for each that gave none.
    pub(crate) fn rounds(&self, value: impl Fn(&S) -> Option<f64>) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| sample.as_ref().and_then(&value)).collect()
    }

    /// Quotients of the rates of the same round; a round without one of them gives none.
    pub(crate) fn ratios(&self, by: &Self) -> Vec<f64> {
        let rate = |sample: &Option<S>| sample.as_ref().map(Sampled::rate);
        self.samples.iter().zip(&by.samples).filter_map(|(of, by)| Some(rate(of)? / rate(by)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(vec![4.0, 1.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(spread(vec![]), None);
    }

    #[test]
    fn a_round_without_a_figure_is_told_and_spoils_the_median() {
        assert_eq!(cell(&[Some(1.0), Some(3.0)], 1), "2.0 [1.0–3.0]");
        assert_eq!(cell(&[None, Some(3.0), None], 1), "1 of 3: 3.0 [3.0–3.0]");
        assert_eq!((cell(&[None, None], 1), cell(&[], 1)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(median(&[Some(1.0), Some(3.0), Some(2.0)]), Some(2.0));
        assert_eq!([median(&[Some(1.0), None, Some(2.0)]), median(&[])], [None, None]);
    }

    impl Sampled for f64 {
        fn rate(&self) -> f64 {
            *self
        }

        fn complaint(&self) -> Option<&str> {
            (*self > 20.0).then_some("fast")
        }
    }

    #[test]
    fn ratios_pair_rounds_and_leave_gaps() {
        let row = |rates: &[f64]| {
            let mut row = Row::new("a");
            rates.iter().for_each(|rate| row.add(if *rate > 0.0 { Ok(*rate) } else { Err("no".to_owned()) }));
            row
        };
        assert_eq!(row(&[10.0, 0.0, 30.0]).ratios(&row(&[5.0, 5.0, 10.0])), [2.0, 3.0]);
        assert_eq!(row(&[0.0, 0.0, 30.0, 40.0]).remarks, ["no", "fast"]);
    }
}

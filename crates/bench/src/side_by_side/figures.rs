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

/// Quotients of values of the same round; a round without one of them gives none.
pub(crate) fn ratios(of: impl Iterator<Item = Option<f64>>, by: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    of.zip(by).filter_map(|(of, by)| Some(of? / by?)).collect()
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
    fn ratios_pair_rounds_and_leave_gaps() {
        let of = [Some(10.0), None, Some(30.0)];
        let by = [Some(5.0), Some(5.0), Some(10.0)];
        assert_eq!(ratios(of.into_iter(), by.into_iter()), [2.0, 3.0]);
    }
}

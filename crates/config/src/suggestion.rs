//! Suggestions for a wrong word: the nearest word by edit distance.

/// The nearest of the candidates, if one is near: a third of the letters of the longer word may be wrong.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // No key is longer; the time for a distance grows with both lengths.
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    let letters = lower.chars().count();
    let most = |candidate: &str| ((letters.max(candidate.len()) + 1) / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last_a = None;
    for (i, letter) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let at = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&row, j) + usize::from(letter != *other)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = j > 0 && last_a == Some(*other) && b.get(j - 1) == Some(&letter);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
        last_a = Some(letter);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, wanted) in [
            ("", "", 0),
            ("", "ab", 2),
            ("form", "from", 1),
            ("kitten", "sitting", 3),
            ("abc", "abc", 0),
            ("size", "sizes", 1),
            ("ü", "u", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (wanted, wanted), "{a} {b}");
        }
    }

    #[test]
    fn only_what_is_near() {
        let words = ["relay.from", "relay.to", "spool.path"];
        assert_eq!(nearest("relay.form", words), Some("relay.from"));
        assert_eq!(nearest("Spool.Pth", words), Some("spool.path"));
        assert_eq!(nearest("something else", words), None);
        assert_eq!(
            (nearest("lvl", ["level"]), nearest("x", ["to"]), nearest("foo", ["to"])),
            (Some("level"), None, None)
        );
        assert_eq!(nearest(&"x".repeat(100_000), words), None);
    }
}

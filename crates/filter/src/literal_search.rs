//! Finds all literals of a rule set in a text, in one pass.
//!
//! Most of the time of an evaluation would be spent here, and nearly all of it on waiting: each step of an automaton
//! needs the result of the step before. So a long text is cut into pieces, and the search steps through all of them at
//! the same time. The pieces overlap, so that a literal at a border is found.

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::dfa::DFA;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored, BuildError, StartKind};

/// Octets of all literals up to which the automaton takes its fastest and largest form.
const FAST_LITERAL_OCTETS_MAX: usize = 64 << 10;
/// Pieces of a text through which the search steps at the same time.
const PIECES: usize = 4;
/// Octets of a piece below which the text is searched as one.
const PIECE_OCTETS_MIN: usize = 16;

/// An automaton for the literals of a rule set.
#[derive(Clone, Debug)]
pub(crate) enum LiteralSearch {
    /// A table with a row for each state.
    Table {
        /// The automaton.
        table: Box<DFA>,
        /// Octets by which pieces overlap: one less than the longest literal has.
        overlap: usize,
    },
    /// For many literals: smaller and slower.
    Compact(AhoCorasick),
}

impl LiteralSearch {
    /// Makes the automaton. A literal is named by its position.
    ///
    /// # Errors
    /// The literals are too large together.
    pub(crate) fn new(literals: &[&str]) -> Result<Self, BuildError> {
        let octets: usize = literals.iter().map(|literal| literal.len()).sum();
        if octets <= FAST_LITERAL_OCTETS_MAX {
            // A prefilter would make the start a special state.
            let table = DFA::builder().start_kind(StartKind::Unanchored).prefilter(false).build(literals)?;
            let overlap = table.max_pattern_len().saturating_sub(1);
            return Ok(Self::Table { table: Box::new(table), overlap });
        }
        AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(literals).map(Self::Compact)
    }

    /// Calls `found` with each literal of a text, at least once for each that is there.
    pub(crate) fn find_all(&self, text: &str, found: &mut impl FnMut(usize)) {
        match self {
            Self::Table { table, overlap } => {
                let Ok(start) = table.start_state(Anchored::No) else { return };
                let text = text.as_bytes();
                let piece = text.len().saturating_sub(*overlap) / PIECES;
                match piece < PIECE_OCTETS_MIN.max(*overlap) {
                    true => step(table, start, text, found),
                    false => step_together(table, start, text, piece, found),
                }
            }
            Self::Compact(automaton) => {
                automaton.find_overlapping_iter(text).for_each(|one| found(one.pattern().as_usize()));
            }
        }
    }
}

/// Steps through a text.
fn step(table: &DFA, mut state: StateID, text: &[u8], found: &mut impl FnMut(usize)) {
    for octet in text {
        state = table.next_state(Anchored::No, state, *octet);
        if table.is_special(state) {
            report(table, state, found);
        }
    }
}

/// Steps through all pieces of a text at the same time. A piece begins `piece` octets behind the one before it, and
/// the last one ends with the text; the others are as long as it, which is longer by the overlap.
fn step_together(table: &DFA, start: StateID, text: &[u8], piece: usize, found: &mut impl FnMut(usize)) {
    let [a, b, c, d] = [0, 1, 2, 3].map(|number| text.get(number * piece..).unwrap_or_default());
    let mut states = [start; PIECES];
    for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
        let [state_a, state_b, state_c, state_d] = states;
        let next = |state, octet: &u8| table.next_state(Anchored::No, state, *octet);
        states = [next(state_a, a), next(state_b, b), next(state_c, c), next(state_d, d)];
        if states.iter().any(|state| table.is_special(*state)) {
            states.iter().for_each(|state| report(table, *state, found));
        }
    }
}

fn report(table: &DFA, state: StateID, found: &mut impl FnMut(usize)) {
    if table.is_match(state) {
        (0..table.match_len(state)).for_each(|at| found(table.match_pattern(state, at).as_usize()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A literal at each place of a text that has pieces, also across their borders.
    #[test]
    fn a_literal_is_found_wherever_it_stands() {
        let literal = "needle in a haystack";
        let search = LiteralSearch::new(&["no", literal]).unwrap();
        for length in [90, 95, 96, 400, 401, 402, 403, 1_000] {
            for at in 0..=length - literal.len() {
                let text = format!("{}{literal}{}", "x".repeat(at), "x".repeat(length - literal.len() - at));
                let mut found = Vec::new();
                search.find_all(&text, &mut |literal| found.push(literal));
                assert!(found.contains(&1) && !found.contains(&0), "{length} {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn both_forms_find_each_literal_that_is_there(
            literals in prop::collection::btree_set("[ab\u{e4}]{1,9}", 1..12),
            // Short ones, and those with pieces.
            text in prop_oneof!["[abc\u{e4}]{0,60}", "[c]{0,80}[ab]{0,9}[c\u{e4}]{200,300}[ab\u{e4}]{0,9}[c]{0,200}"],
        ) {
            let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
            let expected: Vec<usize> = (0..literals.len()).filter(|number| text.contains(literals[*number])).collect();
            let compact = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(&literals).unwrap();
            for search in [LiteralSearch::new(&literals).unwrap(), LiteralSearch::Compact(compact)] {
                let mut found = Vec::new();
                search.find_all(&text, &mut |literal| found.push(literal));
                found.sort_unstable();
                found.dedup();
                prop_assert_eq!(&found, &expected, "{:?}", search);
            }
        }
    }
}

//! Finds all literals of a rule set in a text, in one pass.
//!
//! Half of the time of an evaluation is spent here. For literals of the usual number the search steps through the table
//! of a deterministic automaton by itself: the general search of the library takes a third more instructions for each
//! octet, since it may stop and go on anywhere.

use aho_corasick::automaton::Automaton as _;
use aho_corasick::dfa::DFA;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored, BuildError, StartKind};

/// Octets of all literals up to which the automaton takes its fastest and largest form.
const FAST_LITERAL_OCTETS_MAX: usize = 64 << 10;

/// An automaton for the literals of a rule set.
#[derive(Clone, Debug)]
pub(crate) enum LiteralSearch {
    /// A table with a row for each state.
    Table(Box<DFA>),
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
            let table = DFA::builder().start_kind(StartKind::Unanchored).build(literals)?;
            return Ok(Self::Table(Box::new(table)));
        }
        AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(literals).map(Self::Compact)
    }

    /// Calls `found` with each literal at each of its places in a text, also where they overlap.
    pub(crate) fn find_all(&self, text: &str, found: &mut impl FnMut(usize)) {
        match self {
            Self::Table(table) => {
                let Ok(mut state) = table.start_state(Anchored::No) else { return };
                for octet in text.bytes() {
                    state = table.next_state(Anchored::No, state, octet);
                    if table.is_special(state) && table.is_match(state) {
                        (0..table.match_len(state)).for_each(|at| found(table.match_pattern(state, at).as_usize()));
                    }
                }
            }
            Self::Compact(automaton) => {
                automaton.find_overlapping_iter(text).for_each(|one| found(one.pattern().as_usize()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_forms_find_each_place_of_each_literal(
            literals in prop::collection::btree_set("[ab\u{e4}]{1,4}", 1..12),
            text in "[abc\u{e4}]{0,60}",
        ) {
            let literals: Vec<&str> = literals.iter().map(String::as_str).collect();
            let mut expected: Vec<usize> = Vec::new();
            for (number, literal) in literals.iter().enumerate() {
                let places = (0..text.len()).filter(|at| text.as_bytes()[*at..].starts_with(literal.as_bytes()));
                expected.extend(places.map(|_| number));
            }
            let compact = AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(&literals).unwrap();
            for search in [LiteralSearch::new(&literals).unwrap(), LiteralSearch::Compact(compact)] {
                let mut found = Vec::new();
                search.find_all(&text, &mut |literal| found.push(literal));
                found.sort_unstable();
                prop_assert_eq!(&found, &expected, "{:?}", search);
            }
        }
    }
}

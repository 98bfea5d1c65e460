//! The conditions of rules: a tree of groups whose leaves are [`Test`]s.

use std::net::IpAddr;

use regex::Regex;
use unicode_script::Script;

use crate::mime::Damage;
use crate::texts::{Kinds, Text};

/// How the members of a group decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Any,
    All,
    None,
}

impl Combine {
    pub(crate) fn for_word(word: &str) -> Option<Self> {
        match word {
            "any" => Some(Self::Any),
            "all" => Some(Self::All),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// A group of conditions, or the index of a test in the rule set.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Group(Combine, Vec<Self>),
    Test(usize),
}

impl Condition {
    /// Returns tests of which at least one must hold for the condition to hold; `None` if it may hold without any.
    /// `is_prefiltered` tells of a test whether the pass over the literals can rule it out.
    pub(crate) fn needed(&self, is_prefiltered: &impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        match self {
            Self::Test(index) => is_prefiltered(*index).then(|| vec![*index]),
            Self::Group(Combine::None, _) => None,
            Self::Group(Combine::All, members) => {
                members.iter().filter_map(|member| member.needed(is_prefiltered)).min_by_key(Vec::len)
            }
            Self::Group(Combine::Any, members) => {
                let sets: Option<Vec<Vec<usize>>> =
                    members.iter().map(|member| member.needed(is_prefiltered)).collect();
                sets.map(|sets| sets.concat())
            }
        }
    }

    /// Decides the condition, asking for as few tests as it can.
    pub(crate) fn holds(&self, test: &mut impl FnMut(usize) -> bool) -> bool {
        match self {
            Self::Test(index) => test(*index),
            Self::Group(Combine::Any, members) => members.iter().any(|member| member.holds(test)),
            Self::Group(Combine::All, members) => members.iter().all(|member| member.holds(test)),
            Self::Group(Combine::None, members) => !members.iter().any(|member| member.holds(test)),
        }
    }

    /// Lists the tests in their order.
    pub(crate) fn tests(&self, out: &mut Vec<usize>) {
        match self {
            Self::Test(index) => out.push(*index),
            Self::Group(_, members) => members.iter().for_each(|member| member.tests(out)),
        }
    }
}

/// The texts that a test looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) kinds: Kinds,
    /// The names of header fields, in any case of letters; empty: all.
    pub(crate) names: Vec<String>,
}

impl Field {
    /// Whether the test looks at this text.
    pub(crate) fn covers(&self, text: &Text<'_>) -> bool {
        let has_name = || self.names.iter().any(|name| text.name.eq_ignore_ascii_case(name));
        self.kinds.overlaps(text.kinds) && (self.names.is_empty() || !text.kinds.overlaps(Kinds::HEADER) || has_name())
    }

    /// Returns the piece of a text that a comparison sees: of a named field the value, else the whole.
    pub(crate) fn view<'a>(&self, text: &'a Text<'_>) -> &'a str {
        let from = if self.names.is_empty() { 0 } else { text.value_at };
        text.text.get(from..).unwrap_or_default()
    }
}

/// How a text is compared.
#[derive(Clone, Debug)]
pub(crate) enum Comparison {
    /// The pattern matches somewhere.
    Matches(Regex),
    /// The text is one of these, in any case of letters; folded.
    Equals(Vec<String>),
    /// The text is one of these addresses or names of hosts, or belongs to one of these domains; folded.
    BelongsTo(Vec<String>),
    /// The text holds one of these, in any case of letters; folded.
    Contains(Vec<String>),
    /// There is such a text.
    Present,
}

/// The numbers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Size,
    HeaderSize,
    Recipients,
    Parts,
    Attachments,
}

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
}

impl Order {
    pub(crate) const fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::AtLeast => left >= right,
            Self::More => left > right,
        }
    }
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads `192.0.2.0/24` or a single address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { address, bits })
    }

    pub(crate) fn holds(self, address: IpAddr) -> bool {
        let mask = |all: u32| u128::MAX.checked_shl(all.saturating_sub(self.bits)).unwrap_or(0);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let own = u128::from(own.to_bits()) & mask(32);
                own == u128::from(other.to_bits()) & mask(32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() & mask(128) == other.to_bits() & mask(128),
            _ => false,
        }
    }
}

/// The question of a leaf.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    Text(Field, Comparison),
    /// A text of the field has this share of its letters in the script, or more.
    Script {
        field: Field,
        script: Script,
        percent: usize,
    },
    Number(Quantity, Order, u64),
    Client(Vec<Network>),
    /// An authentication method had one of these results.
    Authentication {
        method: String,
        results: Vec<String>,
    },
    /// One of these faults, or any if the list is empty.
    Damage(Vec<Damage>),
    NotFullyScanned,
}

/// A leaf of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) question: Question,
    /// The answer counts the other way round.
    pub(crate) is_negated: bool,
    /// Folded texts of which one must be there for a positive answer; empty: not known.
    pub(crate) literals: Vec<String>,
    /// Counted from 1.
    pub(crate) line: usize,
    /// The condition as the file spells it.
    pub(crate) source: String,
}

impl Test {
    /// Whether the pass over the literals can rule the test out.
    pub(crate) fn is_prefiltered(&self) -> bool {
        !self.literals.is_empty() && !self.is_negated
    }

    /// The texts that the test needs.
    pub(crate) fn kinds(&self) -> Kinds {
        match &self.question {
            Question::Text(field, _) | Question::Script { field, .. } => field.kinds,
            Question::Number(Quantity::Parts | Quantity::Attachments, ..) => Kinds::STRUCTURE,
            Question::Damage(_) | Question::NotFullyScanned => {
                Kinds::STRUCTURE | Kinds::BODY | Kinds::DECODED_HEADER | Kinds::CHARSET
            }
            Question::Number(..) | Question::Client(_) | Question::Authentication { .. } => Kinds::NOTHING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (network, address, is_in) in [
            ("192.0.2.0/24", "192.0.2.77", true),
            ("192.0.2.0/24", "192.0.3.1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "192.0.2.1", false),
        ] {
            let found = Network::parse(network).unwrap().holds(address.parse().unwrap());
            assert_eq!(found, is_in, "{network} {address}");
        }
        for wrong in ["", "192.0.2", "192.0.2.0/33", "::/129", "192.0.2.0/x"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}

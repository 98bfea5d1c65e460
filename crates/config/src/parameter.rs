//! One entry of the table: everything that is known about a key.

use super::kind::Kind;
use super::value::Value;
use super::{Config, Machine};
use std::collections::BTreeSet;

/// The source of the value of a key that is not set.
#[derive(Clone, Copy)]
pub(crate) enum Preset {
    /// This text, as after `--set KEY=`.
    Fixed(&'static str),
    /// The machine or other values decide. `text` says how.
    Derived { text: &'static str, value: fn(&Config, &Machine, usize) -> Value },
    /// The default depends on other values and on the keys that were set. `text` says how.
    ConfiguredValue { text: &'static str, value: fn(&Config, &BTreeSet<&'static str>) -> Value },
    /// There is none; the table it stands in needs it.
    Required,
}

/// When a changed value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// After a reload.
    Reload,
    /// After a restart.
    Restart,
}

/// Reads and writes the field. The number says which table of a list of tables; 0 elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) get: fn(&Config, usize) -> Option<Value>,
    pub(crate) set: fn(&mut Config, usize, &Value) -> bool,
}

/// A key.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    /// With the names of its tables, without the number of one in a list.
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) preset: Preset,
    /// As after `--set KEY=`.
    pub(crate) example: &'static str,
    /// One line, without a full stop.
    pub(crate) summary: &'static str,
    /// The reason to change it, and the effect.
    pub(crate) reason: &'static str,
    pub(crate) since: &'static str,
    pub(crate) change: Change,
    pub(crate) access: Access,
}

impl Parameter {
    /// The last part of the key.
    pub(crate) fn name(&self) -> &'static str {
        self.key.rsplit_once('.').map_or(self.key, |(_, name)| name)
    }

    /// The value it has.
    pub(crate) fn get(&self, config: &Config, index: usize) -> Option<Value> {
        (self.access.get)(config, index)
    }

    /// Gives it a value.
    ///
    /// # Panics
    /// If the kind does not belong to the field; a test of the table finds that.
    pub(crate) fn set(&self, config: &mut Config, index: usize, value: &Value) {
        assert!((self.access.set)(config, index, value), "{} cannot be {value:?}", self.key);
    }

    /// The default, if it has one that does not depend on anything.
    pub(crate) fn fixed(&self) -> Option<Value> {
        match self.preset {
            Preset::Fixed(text) => Some(self.kind.read_bare(text).expect("a test of the table reads all defaults")),
            Preset::Derived { .. } | Preset::ConfiguredValue { .. } | Preset::Required => None,
        }
    }
}

/// Names and texts of a table.
pub(crate) type Pairs = &'static [(&'static str, &'static str)];

/// How a list of tables grows.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) len: fn(&Config) -> usize,
    /// Appends a table whose fields get their values afterwards.
    pub(crate) push: fn(&mut Config),
    /// The tables if the file has none: names and texts.
    pub(crate) preset: fn(&Machine) -> &'static [Pairs],
    /// The default in words.
    pub(crate) preset_text: &'static str,
}

/// A table of the file.
#[derive(Clone, Copy)]
pub(crate) struct Section {
    /// `spool`, `dnsbl.list`; empty for the keys before the first table.
    pub(crate) key: &'static str,
    /// One line, without a full stop.
    pub(crate) summary: &'static str,
    /// For `[[lists of tables]]`.
    pub(crate) group: Option<Group>,
    pub(crate) parameters: &'static [Parameter],
}

/// The field of a parameter: `at!(spool.path)`, `at!(listen[].address)`.
macro_rules! at {
    ($($part:ident).+ [].$field:tt) => {
        $crate::parameter::Access {
            get: |config, index| config.$($part).+.get(index).map(|table| $crate::field::Field::value(&table.$field)),
            set: |config, index, value| {
                config.$($part).+.get_mut(index).is_some_and(|table| $crate::field::assign(&mut table.$field, value))
            },
        }
    };
    ($($part:ident).+) => {
        $crate::parameter::Access {
            get: |config, _| Some($crate::field::Field::value(&config.$($part).+)),
            set: |config, _, value| $crate::field::assign(&mut config.$($part).+, value),
        }
    };
}
pub(crate) use at;

//! The recipients of a transaction by the rules that are for them.

use super::content_rules::ContentRules;
use filter::Recipient;
use std::sync::Arc;

/// Scopes of the recipients of one transaction, numbered from 0 in the order in which they come.
#[derive(Debug)]
pub(crate) struct Scopes {
    /// The rules by which scopes differ; none: all recipients have one scope.
    rules: Option<Arc<ContentRules>>,
    /// The rules of each scope that are for some recipients.
    known: Vec<Vec<usize>>,
}

impl Scopes {
    /// Begins without a recipient.
    pub(super) const fn new(rules: Option<Arc<ContentRules>>) -> Self {
        Self { rules, known: Vec::new() }
    }

    /// Returns the number of a recipient's scope.
    pub(crate) fn of(&mut self, address: &str, list: Option<&str>) -> u16 {
        let Some(rules) = &self.rules else { return 0 };
        let scope = rules.set().recipient_scope(&Recipient { address, list });
        let number = self.known.iter().position(|known| *known == scope).unwrap_or_else(|| {
            self.known.push(scope);
            self.known.len() - 1
        });
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    /// Returns how many scopes there are, one at least.
    pub(crate) fn len(&self) -> usize {
        self.known.len().max(1)
    }
}

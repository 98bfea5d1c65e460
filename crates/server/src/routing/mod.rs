//! The maps and rules of the configuration, in force: what `route` decides with them, and who answers what it asks.
//!
//! A [`Routing`] is a value that a reload, or a map that has changed, replaces as a whole. Where there is neither map nor rule nor
//! local user it is plain, and a recipient costs nothing here.

use crate::lookup::Lookups;
use mail::EnhancedCode;
use route::destination::Hosts;
use route::{Answers, Ask, Stop};
use std::sync::Arc;

/// How often questions may lead to others for one recipient.
const ROUNDS_MAX: usize = 64;

/// What decides where mail goes.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    lookups: Arc<Lookups>,
}

/// Where the mail of a domain goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To these hosts.
    Hosts(Hosts),
    /// To its MX hosts.
    Mx,
    /// Nowhere.
    Refused(EnhancedCode, String),
}

impl Routing {
    /// Without maps and rules.
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    /// Whether there is nothing to ask.
    pub(crate) fn is_plain(&self) -> bool {
        true
    }

    /// What the maps say about a domain that mail is sent to.
    ///
    /// # Errors
    /// Somebody has to be asked first, or cannot answer.
    pub(crate) fn way_of(&self, _ask: &mut Ask<'_>, _domain: &str) -> Result<Way, Stop> {
        Ok(Way::Mx)
    }

    /// Decides something for which others may have to be asked.
    ///
    /// # Errors
    /// Why it cannot be decided now.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn decide<T>(
        &self,
        mut decide: impl FnMut(&mut Ask<'_>) -> Result<T, Stop>,
    ) -> Result<T, Arc<str>> {
        let mut answers = Answers::new();
        for _ in 0..ROUNDS_MAX {
            let mut ask = Ask::new(&answers);
            match decide(&mut ask) {
                Ok(decided) => return Ok(decided),
                Err(Stop::Trouble(why)) => return Err(why),
                Err(Stop::Open) => {}
            }
            for question in ask.into_open() {
                let answer = self.lookups.answer(&question).await;
                answers.insert(question, answer);
            }
        }
        Err("one look-up leads to another without end".into())
    }
}

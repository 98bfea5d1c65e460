//! Answers questions to the history.

use super::history::civil_clock;
use super::server::Server;
use operator::answers::to_fields;
use operator::control::{Answer, HistoryQuestion, Reason};
use operator::history::{HistoryExpression, SearchLimits, SearchQuestion};
use os::blocking;
use std::sync::Arc;

impl Server {
    /// Finds messages of the history.
    pub(super) async fn answer_history(&self, question: HistoryQuestion) -> Answer {
        if self.context.history.is_none() {
            let error = "there is no history: set history.path, as history.path = \"/var/lib/mailrace/history.sqlite\", and restart";
            return Answer::refused(Reason::Config, error);
        }
        let (now_us, offset) = civil_clock();
        let expression = match HistoryExpression::parse(&question.expression, now_us, offset) {
            Ok(expression) => expression,
            Err(error) => return Answer::refused(Reason::Request, error.to_string()),
        };
        let search = SearchQuestion { expression, id: question.id, after: question.after, limit: question.limit };
        let Ok(_place) = self.history_searches.try_acquire() else {
            return Answer::refused(Reason::Busy, "other searches of the history are going on; try again");
        };
        let context = Arc::clone(&self.context);
        let searching = blocking::run(move || {
            let history = context.history.as_ref().ok_or_else(|| "there is no history".to_owned())?;
            history.search(&search, SearchLimits::default())
        });
        match searching.await {
            Ok(Ok(answer)) => Answer::Done(to_fields(&answer)),
            Ok(Err(error)) => Answer::refused(Reason::Failed, error),
            Err(_) => Answer::refused(Reason::Failed, "the search broke off; the log says why"),
        }
    }
}

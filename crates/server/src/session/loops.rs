//! The end of DATA for a message that all its recipients had before: it is refused while its client still waits, so
//! that no report goes to a sender whom anybody can forge. See [`local::loops`](::local::loops) for the rules.
//!
//! Looked at are the recipients that the transaction became: one whose mail goes on to another host, by an alias or a
//! `.forward`, is none that had the message, and then all are delivered to. The header section alone counts, its first
//! hundred `Delivered-To:` fields, and a message without one costs nothing here.

use super::Connection;
use super::answers::reply;
use super::header_rewrite::HeaderRewrite;
use crate::intake::TransactionContent;
use ::local::loops::{is_loop, names_address};
use mail::{Address, Client, Reply};
use observe::Ruleset;
use route::destination::{Destination, To};
use smtp::server::Verdict;

impl Connection {
    /// Returns the refusal of a message that goes in a circle; to be asked before the plan becomes messages.
    // RFC 5321 §6.3
    pub(super) fn loop_refusal(&self) -> Option<Reply> {
        let fields = self.session.delivered_to();
        if fields.is_empty() {
            return None;
        }
        let is_from_outside = matches!(self.session.client(), Client::Network(_)) && self.session.identity().is_none();
        let mut first: Option<Address> = None;
        let had_it = |address: &Address, destination: &[u8]| {
            let text = address.to_string();
            let count = fields.iter().filter(|value| names_address(value, &text)).count();
            let goes_round = is_loop(count, is_from_outside) && is_local(destination);
            if goes_round {
                first.get_or_insert_with(|| address.clone());
            }
            goes_round
        };
        let all_had_it = self.plan.is_all(had_it);
        first.filter(|_| all_had_it).map(|address| {
            let text = format!("5.4.6 <{address}>... Mail forwarding loop: its Delivered-To: says that it was here");
            reply(554, &text)
        })
    }

    /// Refuses the message, and keeps nothing of it.
    pub(super) fn refuse_loop(&mut self, content: TransactionContent, refusal: Reply) {
        content.abandon(&self.context.message_store);
        self.header_rewrite = HeaderRewrite::Done;
        self.routing = None;
        self.screening = None;
        self.sender_check = None;
        let verdict = self.refuse(Ruleset::Eom, Verdict::Refuse(refusal));
        self.end_transaction();
        let recipients = self.verdicts_due();
        self.forget_transaction();
        let now = self.elapsed();
        self.session.finish(&vec![verdict; recipients], now);
    }
}

/// Returns whether mail ends there: in a mailbox, a program or a file of this machine.
fn is_local(destination: &[u8]) -> bool {
    Destination::parse(destination)
        .is_ok_and(|found| matches!(found.to, To::Local | To::Program { .. } | To::File { .. }))
}

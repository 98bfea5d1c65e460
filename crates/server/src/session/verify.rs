//! VRFY and EXPN (RFC 5321 §3.5), where `smtp.verify` is on and there are maps or users to ask.
//!
//! | Asked | Client | Reply |
//! |---|---|---|
//! | VRFY of a mailbox or an alias here that RCPT would take | any | `250 2.1.5 <joe@example.com>` |
//! | VRFY of another address that RCPT would take | any | 252 |
//! | VRFY of an address that RCPT would refuse | any | the reply of RCPT |
//! | EXPN of an alias | may relay | its members, an address on each line |
//! | EXPN | another | 502, and EXPN is not offered |
//!
//! VRFY says no more than RCPT does, so it costs a spammer no less to ask. EXPN gives members, which are other
//! people's addresses: it needs the right to relay, by the same decision as RCPT. A program or file of an alias is
//! shown by the name of the alias alone; replies quote nothing else of the files that lead there.

use super::Connection;
use super::answers::{nothing_to_verify, reply};
use crate::routing::expansions::{Expanded, Resolved};
use crate::routing::{Admission, Routing};
use mail::{Address, DomainName, ForwardPath, Recipient, Reply, ReplyCode};
use route::Refusal;
use route::access::Ruling;
use route::destination::To;
use route::resolve::{Delivery, Outcome};
use smtp::server::Question;
use std::sync::Arc;

/// Members that EXPN lists. For a list with more the reply says that it is too large.
const MEMBERS_MAX: usize = 100;

impl Connection {
    /// Answers VRFY or EXPN, with waiting.
    pub(super) async fn answer_look(&mut self, question: Question) {
        let routing = self.context.routing.load_full();
        let argument = self.session.argument().to_owned();
        let reply = match (routing.admission(), address(&argument, &self.session.settings().hostname)) {
            (None, _) => nothing_to_verify(question),
            (Some(_), None) => reply(501, "5.1.3 Syntax error in address; write VRFY user@domain"),
            (Some(admission), Some(address)) => {
                let found = self.look(&routing, admission, question, &address).await;
                found.unwrap_or_else(|why| {
                    self.report_unanswered(&why);
                    temporary()
                })
            }
        };
        if reply == nothing_to_verify(question) {
            self.report_not_verified(question, &reply);
        }
        let now = self.elapsed();
        self.session.answer_with(reply, now);
    }

    /// Makes the decision that RCPT would make and words it for VRFY or EXPN.
    async fn look(
        &self,
        routing: &Arc<Routing>,
        admission: &Admission,
        question: Question,
        address: &Address,
    ) -> Result<Reply, Arc<str>> {
        let subject = self.subject();
        // A certificate, a login or a network: as for RCPT.
        if question == Question::Expand && !routing.decide(|ask| subject.sends_anywhere(admission, ask)).await? {
            return Ok(nothing_to_verify(question));
        }
        let ruled = self.judge_recipient_in_time(routing, admission, &Recipient::new(address.clone())).await?;
        if let Ruling::Refuse(refusal) = &ruled.admitted.ruling {
            return Ok(refused(refusal));
        }
        Ok(match ruled.resolved {
            None => nothing_to_verify(question),
            Some(Resolved::Short(found)) => answer(admission, question, address, found.outcome),
            Some(Resolved::Long(found)) => answer_long(admission, question, address, &found),
        })
    }
}

/// Returns the answer about an address that became this.
fn answer(admission: &Admission, question: Question, address: &Address, outcome: Outcome) -> Reply {
    match (outcome, question) {
        (Outcome::Refuse(refusal), _) => refused(&refusal),
        // The client does not learn that mail to this address is discarded.
        (Outcome::Discard, _) => here(address),
        (Outcome::Deliver(deliveries), Question::Expand) => members(address, &deliveries),
        (Outcome::Deliver(deliveries), _) if is_here(admission, address, &deliveries) => here(address),
        (Outcome::Deliver(_), _) => elsewhere(address),
    }
}

/// Does the same for a list whose members all sessions share: EXPN does not list so many.
fn answer_long(admission: &Admission, question: Question, address: &Address, found: &Expanded) -> Reply {
    match (found, question) {
        (Expanded::Refused(refusal), _) => refused(refusal),
        (Expanded::Discarded, _) => here(address),
        (Expanded::Members(_), Question::Expand) => not_listed(address),
        (Expanded::Members(_), _) if is_here(admission, address, &[]) => here(address),
        (Expanded::Members(_), _) => elsewhere(address),
    }
}

fn here(address: &Address) -> Reply {
    reply(250, &format!("2.1.5 <{address}>"))
}

fn elsewhere(address: &Address) -> Reply {
    reply(252, &format!("2.5.2 <{address}>... Cannot VRFY user here; mail for it is passed on"))
}

fn too_many(address: &Address) -> Reply {
    reply(252, &format!("2.5.2 <{address}>... More than {MEMBERS_MAX} members, not listed"))
}

/// A long expansion may have few members: one that reads much text is long too.
fn not_listed(address: &Address) -> Reply {
    reply(252, &format!("2.5.2 <{address}>... Members of large lists are not listed"))
}

/// Returns the address that is asked about. A name alone is one of this host.
// RFC 5321 §4.1.1.6, §4.1.1.7: a user name or a mailbox. RFC 6531 §3.7.4.2: SMTPUTF8 may follow
fn address(argument: &str, hostname: &str) -> Option<Address> {
    let hostname = DomainName::new(hostname).ok()?;
    let text = argument.trim();
    let text = text.strip_suffix(" SMTPUTF8").map_or(text, str::trim_end);
    let inside = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    let whole = if inside.contains('@') { inside.to_owned() } else { format!("{inside}@{hostname}") };
    ForwardPath::parse(format!("<{whole}>").as_bytes()).ok()?.into_address(&hostname).ok()
}

/// Returns whether the address is a mailbox or an alias of this host: only then it is known to exist.
fn is_here(admission: &Admission, address: &Address, deliveries: &[Delivery]) -> bool {
    let is_mailbox = |one: &Delivery| matches!(one.destination.to, To::Local | To::Program { .. } | To::File { .. });
    deliveries.iter().any(is_mailbox) || admission.router.classes.is_local(address.domain())
}

fn members(address: &Address, deliveries: &[Delivery]) -> Reply {
    let mut members: Vec<String> = Vec::new();
    for one in deliveries.iter().filter(|one| !one.is_copy) {
        let member = format!("2.1.5 <{}>", one.address);
        if !members.contains(&member) {
            members.push(member);
        }
        if members.len() > MEMBERS_MAX {
            return too_many(address);
        }
    }
    let text = if members.is_empty() { format!("2.1.5 <{address}>") } else { members.join("\n") };
    Reply::new(ReplyCode::of(250), None, &text)
}

fn temporary() -> Reply {
    reply(451, "4.3.0 Temporary system failure. Please try again later.")
}

fn refused(refusal: &Refusal) -> Reply {
    // A 421 would end the session; only RCPT and MAIL do that.
    let code = if refusal.code == 421 { 450 } else { refusal.code };
    reply(code, &format!("{} {}", refusal.status, refusal.text))
}

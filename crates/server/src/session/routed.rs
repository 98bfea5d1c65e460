//! Senders and recipients where there are maps: the access map judges, then the router gives the destination of a
//! recipient.
//!
//! Maps in memory are asked while the input is still in its buffer; where an outside source has to be asked, the
//! question of the session stays open meanwhile. A transaction keeps the maps it began with. A recipient that is a
//! long list is answered by [`Expansions`](expansions::Expansions), and costs the runtime no more than any other.
//!
//! | Entry | Client hears | Message |
//! |---|---|---|
//! | refuses | its reply | without the recipient |
//! | `DISCARD` for client or sender | 250 | dropped whole |
//! | `DISCARD` for a recipient, `discard:` | 250 | dropped whole, or for him alone |
//! | `QUARANTINE` | 250 | held whole |
//! | cannot be asked | 451 4.3.0 | the client tries again |

use super::Connection;
use super::answers::reply;
use crate::admit::Facts;
use crate::dns::ClientName;
use crate::routing::expansions::{self, ClientKey, Expanded, ExpansionRequest, Resolved};
use crate::routing::plan::{NotAdded, Plan};
use crate::routing::{Admission, Routing};
use crate::tls::ClientCertificate;
use mail::{Client, Recipient, Reply, ReplyCode, ReversePath};
use observe::{Fate, Ruleset};
use route::access::demand::{Secured, Verify};
use route::access::{self, DelayChecks, Ruled, Ruling};
use route::resolve::{HoldReason, Outcome, Request, Resolution};
use route::{Ask, Refusal, Stop};
use smtp::server::{Question, Verdict};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Decisions of the maps on a sender.
pub(super) struct SenderRuled {
    client: Ruling,
    sender: Ruling,
}

/// Decisions of the maps on a recipient.
pub(super) struct RecipientRuled {
    pub(super) admitted: Ruled,
    /// `None`: the recipient was refused before.
    pub(super) resolved: Option<Resolved>,
}

/// Facts of a session that the maps judge; an owned copy that outlives a look-up.
pub(super) struct Subject {
    client: Client,
    name: ClientName,
    /// Whether names of clients are looked up at all.
    asks_names: bool,
    identity: Option<Box<str>>,
    sender: ReversePath,
    /// Bits of the encryption; `None`: there is none.
    tls_bits: Option<u16>,
    shown: Arc<ClientCertificate>,
}

/// Returns the name of a client as the access map asks for it. `asks_names`: whether names are looked up at all.
pub(super) fn client_name(name: &ClientName, asks_names: bool) -> access::ClientName<'_> {
    match name {
        ClientName::Verified(name) => access::ClientName::Verified(name),
        ClientName::Forged(_) => access::ClientName::Forged,
        ClientName::None => access::ClientName::NotFound,
        ClientName::Unknown if asks_names => access::ClientName::Unavailable,
        ClientName::Unknown => access::ClientName::NotAsked,
    }
}

impl Subject {
    fn ip(&self) -> Option<IpAddr> {
        if let Client::Network(address) = self.client { Some(address.ip().to_canonical()) } else { None }
    }

    fn client(&self) -> access::Client<'_> {
        let certificate = self.shown.verified();
        access::Client {
            ip: self.ip(),
            name: client_name(&self.name, self.asks_names),
            identity: self.identity.as_deref(),
            certificate: certificate
                .map(|names| access::Certificate { issuer: &names.issuer, subject: &names.subject }),
        }
    }

    fn secured(&self) -> Secured<'_> {
        let name = if let ClientName::Verified(name) = &self.name { Some(&**name) } else { None };
        let Some(bits) = self.tls_bits else { return Secured { name, ..Secured::default() } };
        let verify = match &*self.shown {
            ClientCertificate::NotAsked => Verify::Not,
            ClientCertificate::Nothing => Verify::No,
            ClientCertificate::Unverified { .. } => Verify::Fail,
            ClientCertificate::Verified(_) => Verify::Ok,
        };
        let names = self.shown.verified();
        Secured {
            verify,
            bits: bits.into(),
            common_name: names.and_then(|names| names.common_name.as_deref()),
            subject: names.map(|names| &*names.subject),
            issuer: names.map(|names| &*names.issuer),
            name,
        }
    }

    /// Returns the objection of `TLS_Clt:` to the connection. There is none to a process of this machine.
    fn lacks(&self, access: &access::Access, ask: &mut Ask<'_>) -> Result<Option<Refusal>, Stop> {
        if self.ip().is_none() {
            return Ok(None);
        }
        match access.tls_client(ask, &self.client())? {
            Some(demand) => access.lacks(ask, &demand, &self.secured()),
            None => Ok(None),
        }
    }

    /// Returns whether the client may send to any domain, so that its mail is ours.
    pub(super) fn sends_anywhere(&self, admission: &Admission, ask: &mut Ask<'_>) -> Result<bool, Stop> {
        let sender = admission.router.canonical_path(ask, &self.sender)?;
        let right = admission.access.client_right(ask, &self.client(), &sender, &admission.router.classes)?;
        Ok(right.is_some())
    }

    fn judge_sender(&self, admission: &Admission, ask: &mut Ask<'_>) -> Result<SenderRuled, Stop> {
        if admission.access.options().delay_checks == DelayChecks::No
            && let Some(refusal) = self.lacks(&admission.access, ask)?
        {
            return Ok(SenderRuled { client: Ruling::Refuse(refusal), sender: Ruling::Continue });
        }
        let client = admission.access.connect(ask, &self.client())?.ruling;
        let path = admission.router.canonical_path(ask, &self.sender)?;
        let sender = admission.access.sender(ask, &self.client(), &path, &admission.router.classes)?.ruling;
        Ok(SenderRuled { client, sender })
    }

    fn admit_recipient(&self, admission: &Admission, recipient: &Recipient, ask: &mut Ask<'_>) -> Result<Ruled, Stop> {
        let Admission { router, access } = admission;
        let sender = router.canonical_path(ask, &self.sender)?;
        let address = router.canonical(ask, &recipient.address)?;
        let admitted = access.recipient(ask, &self.client(), &sender, &address, &router.classes)?;
        if matches!(admitted.ruling, Ruling::Refuse(_)) {
            return Ok(admitted);
        }
        // Friends of spam are no friends of connections that others can read.
        if access.options().delay_checks != DelayChecks::No
            && let Some(refusal) = self.lacks(access, ask)?
        {
            return Ok(Ruled { ruling: Ruling::Refuse(refusal), ..admitted });
        }
        Ok(admitted)
    }

    fn resolve(&self, admission: &Admission, recipient: &Recipient, ask: &mut Ask<'_>) -> Result<Resolved, Stop> {
        let request = Request {
            sender: &self.sender,
            recipient: &recipient.address,
            client: self.ip(),
            is_local_submission: self.is_local_submission(),
        };
        admission.router.resolve(ask, &request).map(Resolved::Short)
    }

    fn judge_recipient(
        &self,
        admission: &Admission,
        recipient: &Recipient,
        ask: &mut Ask<'_>,
    ) -> Result<RecipientRuled, Stop> {
        let admitted = self.admit_recipient(admission, recipient, ask)?;
        let resolved = match admitted.ruling {
            Ruling::Refuse(_) => None,
            _ => Some(self.resolve(admission, recipient, ask)?),
        };
        Ok(RecipientRuled { admitted, resolved })
    }

    const fn is_local_submission(&self) -> bool {
        matches!(self.client, Client::Process { .. })
    }

    /// Returns the client for which a list is expanded.
    pub(super) fn key(&self) -> ClientKey {
        ClientKey::new(&self.client, self.identity.as_deref())
    }
}

impl Connection {
    /// The maps in force, if there are any. A transaction keeps those it began with.
    pub(super) fn begin_routing(&mut self) {
        let routing = self.context.routing.load_full();
        self.routing = (!routing.is_plain()).then_some(routing);
        self.plan = Plan::default();
    }

    pub(super) fn subject(&self) -> Subject {
        Subject {
            client: *self.session.client(),
            name: self.opening.name.clone(),
            asks_names: self.context.live.load().config.accept.reverse_dns,
            identity: self.session.identity().map(Into::into),
            sender: self.session.transaction().map_or(ReversePath::Null, |transaction| transaction.sender.clone()),
            tls_bits: self.session.tls().map(|tls| tls.bits),
            shown: Arc::clone(&self.opening.shown),
        }
    }

    /// Answers MAIL or RCPT by the maps, if that needs no waiting. `false`: an outside source has to be asked.
    pub(super) fn answer_routed(&mut self, routing: &Arc<Routing>, question: Question, now: Duration) -> bool {
        let Some(admission) = routing.admission() else { return false };
        let subject = self.subject();
        let verdict = if question == Question::Mail {
            let ruled = Routing::decide_at_once(|ask| subject.judge_sender(admission, ask));
            let Some(ruled) = ruled else { return false };
            self.rule_sender(ruled)
        } else {
            let Some(candidate) = self.session.candidate().cloned() else { return false };
            if self.context.expansions.is_long(&candidate.address) {
                return false;
            }
            let ruled = Routing::decide_at_once(|ask| subject.judge_recipient(admission, &candidate, ask));
            let Some(ruled) = ruled else { return false };
            self.enter_scope(&candidate, ruled.as_ref().ok().and_then(|ruled| ruled.resolved.as_ref()));
            if self.has_to_merge(&ruled) {
                return false;
            }
            let verdict = self.rule_recipient(&candidate, ruled);
            self.answer_recipient(verdict, now);
            return true;
        };
        self.session.answer(verdict, now);
        true
    }

    /// Returns whether it cannot be said yet if one more recipient makes too many messages.
    fn has_to_merge(&self, ruled: &Result<RecipientRuled, Arc<str>>) -> bool {
        match ruled.as_ref().ok().and_then(|ruled| ruled.resolved.as_ref()) {
            Some(Resolved::Short(resolution)) => self.plan.may_have_to_merge(resolution),
            Some(Resolved::Long(Expanded::Members(members))) => self.plan.may_have_to_merge_members(members),
            Some(Resolved::Long(Expanded::Refused(_) | Expanded::Discarded)) | None => false,
        }
    }

    /// Judges a recipient; a long list is expanded off the runtime.
    pub(super) async fn judge_recipient_in_time(
        &self,
        routing: &Arc<Routing>,
        admission: &Admission,
        candidate: &Recipient,
    ) -> Result<RecipientRuled, Arc<str>> {
        let subject = self.subject();
        let admitted = routing.decide(|ask| subject.admit_recipient(admission, candidate, ask)).await?;
        if matches!(admitted.ruling, Ruling::Refuse(_)) {
            return Ok(RecipientRuled { admitted, resolved: None });
        }
        let wanted = ExpansionRequest {
            client: subject.key(),
            sender: subject.sender.clone(),
            recipient: candidate.address.clone(),
            ip: subject.ip(),
            is_local_submission: subject.is_local_submission(),
        };
        let settings = expansions::ExpansionSettings::of(&self.context.live.load().config.maps);
        let resolved = self.context.expansions.resolve(routing, &wanted, &settings).await;
        let resolved = resolved.map_err(|error| Arc::from(error.to_string()))?;
        Ok(RecipientRuled { admitted, resolved: Some(resolved) })
    }

    /// The same, with waiting.
    pub(super) async fn answer_routed_in_time(&mut self, routing: &Arc<Routing>, question: Question) {
        let Some(admission) = routing.admission() else { return };
        if question == Question::Mail {
            let verdict = self.sender_in_time(routing, admission).await;
            let now = self.elapsed();
            return self.session.answer(verdict, now);
        }
        let Some(candidate) = self.session.candidate().cloned() else { return };
        let ruled = self.recipient_in_time(routing, admission, &candidate).await;
        let verdict = self.rule_recipient(&candidate, ruled);
        let now = self.elapsed();
        self.answer_recipient(verdict, now);
    }

    /// Judges the sender.
    pub(super) async fn sender_in_time(&mut self, routing: &Arc<Routing>, admission: &Admission) -> Verdict {
        let subject = self.subject();
        let ruled = routing.decide(|ask| subject.judge_sender(admission, ask)).await;
        self.rule_sender(ruled)
    }

    /// Judges a recipient, and makes room for him in the plan.
    pub(super) async fn recipient_in_time(
        &mut self,
        routing: &Arc<Routing>,
        admission: &Admission,
        candidate: &Recipient,
    ) -> Result<RecipientRuled, Arc<str>> {
        let ruled = self.judge_recipient_in_time(routing, admission, candidate).await;
        self.enter_scope(candidate, ruled.as_ref().ok().and_then(|ruled| ruled.resolved.as_ref()));
        if self.has_to_merge(&ruled) {
            let key = self.subject().key();
            let merged = self.context.expansions.merge(key, &mut self.plan).await;
            merged.map_err(|error| Arc::<str>::from(error.to_string()))?;
        }
        ruled
    }

    fn rule_sender(&mut self, ruled: Result<SenderRuled, Arc<str>>) -> Verdict {
        let ruled = match ruled {
            Ok(ruled) => ruled,
            Err(why) => return self.cannot_say(Ruleset::Mail, &why),
        };
        let mut is_accepted = false;
        if let Ruling::Refuse(refusal) = &ruled.client
            && let Verdict::Refuse(reply) = refused(refusal)
        {
            self.session.refuse_client(reply);
        }
        for (ruleset, ruling) in [(Ruleset::Relay, ruled.client), (Ruleset::Mail, ruled.sender)] {
            match ruling {
                Ruling::Continue => {}
                Ruling::Accept | Ruling::Relay => is_accepted = true,
                Ruling::Refuse(refusal) => return self.refuse(ruleset, refused(&refusal)),
                Ruling::Discard => self.discard(Ruleset::Mail, &self.from.clone()),
                Ruling::Quarantine(reason) => self.quarantine(Ruleset::Mail, &self.from.clone(), &reason),
            }
        }
        if is_accepted {
            return Verdict::Accept;
        }
        let verdict = self.context.live.load().checks.sender(&self.facts()).verdict;
        self.refuse(Ruleset::Mail, verdict)
    }

    /// Has the messages of the transaction dropped, as the access map says about `argument`.
    fn discard(&mut self, ruleset: Ruleset, argument: &str) {
        self.plan.is_discarded = true;
        self.report_ruled(ruleset, argument, Fate::Discard);
    }

    /// Has the messages of the transaction held, as the access map says about `argument`.
    fn quarantine(&mut self, ruleset: Ruleset, argument: &str, reason: &str) {
        self.plan.quarantine = Some(HoldReason::new("access", reason));
        self.report_ruled(ruleset, argument, Fate::Quarantine(reason));
    }

    pub(super) fn rule_recipient(&mut self, candidate: &Recipient, ruled: Result<RecipientRuled, Arc<str>>) -> Verdict {
        let RecipientRuled { admitted, resolved } = match ruled {
            Ok(ruled) => ruled,
            Err(why) => return self.cannot_say(Ruleset::Rcpt, &why),
        };
        match admitted.ruling {
            Ruling::Refuse(refusal) => return self.refuse(Ruleset::Rcpt, refused(&refusal)),
            Ruling::Discard => self.discard(Ruleset::Rcpt, &format!("<{}>", candidate.address)),
            Ruling::Quarantine(reason) => {
                self.quarantine(Ruleset::Rcpt, &format!("<{}>", candidate.address), &reason);
            }
            Ruling::Continue | Ruling::Accept | Ruling::Relay => {}
        }
        if !admitted.spares_checks {
            let facts: Facts<'_> = self.facts();
            let verdict = self.context.live.load().checks.recipient(&facts, candidate).verdict;
            if verdict != Verdict::Accept {
                return self.refuse(Ruleset::Rcpt, verdict);
            }
        }
        let added = match resolved {
            None => return Verdict::Accept,
            Some(
                Resolved::Short(Resolution { outcome: Outcome::Refuse(refusal), .. })
                | Resolved::Long(Expanded::Refused(refusal)),
            ) => return self.refuse(Ruleset::Rcpt, refused(&refusal)),
            Some(
                Resolved::Short(Resolution { outcome: Outcome::Discard, .. }) | Resolved::Long(Expanded::Discarded),
            ) => {
                self.plan.discard(candidate);
                return Verdict::Accept;
            }
            Some(Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), failed, .. })) => {
                self.plan.add(candidate, deliveries, failed)
            }
            Some(Resolved::Long(Expanded::Members(members))) => self.plan.add_members(candidate, members),
        };
        match added {
            Ok(()) => Verdict::Accept,
            // RFC 5321 §4.5.3.1.10: the client sends the others in another transaction
            Err(NotAdded::TooMany | NotAdded::Unmerged) => {
                let text = format!("4.5.3 <{}>... Too many lists in one transaction", candidate.address);
                self.refuse(Ruleset::Rcpt, Verdict::Refuse(reply(452, &text)))
            }
        }
    }

    /// Answers for a map that cannot be asked now.
    fn cannot_say(&mut self, ruleset: Ruleset, why: &str) -> Verdict {
        self.report_unanswered(why);
        self.refuse(ruleset, Verdict::Refuse(reply(451, "4.3.0 Temporary system failure. Please try again later.")))
    }
}

fn refused(refusal: &Refusal) -> Verdict {
    let text = format!("{} {}", refusal.status, refusal.text);
    let reply = Reply::new(ReplyCode::of(refusal.code), None, &text);
    if refusal.code == 421 { Verdict::Close(reply) } else { Verdict::Refuse(reply) }
}

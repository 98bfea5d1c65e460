//! The digest of the quarantine: a list of held mail for each recipient that decides about some, with links that
//! release it.
//!
//! | Module | Task |
//! |---|---|
//! | [`schedule`] | the times of digests |
//! | [`held_mail`] | finds mail in quarantine, and the facts that are shown |
//! | [`link`] | the signed text of a link |
//! | [`compose`] | the mail with the list |
//! | [`release`] | answers for who opens a link |
//!
//! # Design
//!
//! Once in each period the quarantine is looked through, and each recipient with mail that a rule keeps "for the
//! recipient" gets one mail with all of it. The period counts as done before the first mail is stored, so that no
//! recipient gets two; a crash leaves recipients without a list until the next period, which lists the same mail again.
//!
//! A link holds the message, the recipient's position in it, the end of its time in quarantine, and a tag by the
//! server's key ([`crate::secret_key`]), which nobody else can make. It opens a page; only a POST of that page's form
//! releases the message, since programs that check links in mail open them all. A release is a copy as that of
//! `mailrace quarantine release`, and a line of the log.
//!
//! Not here: mail that administrators decide about (filters, `quarantine administrator`), which no recipient hears of.

mod compose;
mod held_mail;
mod link;
mod release;
mod schedule;

pub(crate) use release::answer_link;

use crate::config::{Config, DigestTime};
use crate::context::Context;
use crate::dispatch::Dispatch;
use crate::intake::{Enqueue, submit_own};
use crate::state_file::StateFile;
use compose::compose;
use held_mail::{HeldMail, HeldRecipient, facts, held_by_recipient};
use mail::{
    Address, Client, Envelope, MailParams, Notify, Protocol, Received, Recipient, RecipientParams, ReversePath,
};
use observe::{Event, Severity};
use os::{blocking, clock};
use schedule::{is_believed, next_time, read_time, time_text};
use std::sync::Arc;
use std::time::Duration;

/// The file with the time of the last digest.
const FILE: &str = "digest";
/// Octets of it that are read.
const FILE_BYTES_MAX: usize = 64;
/// The longest sleep: the clock, the time zone or the configuration may change.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// Messages that one digest lists.
const LISTED_MAX: usize = 100;

/// Sends digests until the server stops.
///
/// # Cancel safety
/// Yes: recipients without a digest get theirs in the next period.
pub(crate) async fn send_digests(dispatch: Arc<Dispatch>) {
    let context = Arc::clone(&dispatch.context);
    let directory = context.live.load().config.spool.path.clone();
    let file = Arc::new(StateFile::new(&directory, FILE, "the time of the last digest"));
    let reader = Arc::clone(&file);
    let last = blocking::run(move || reader.read(FILE_BYTES_MAX)).await;
    let mut last = last.ok().and_then(Result::ok).flatten().and_then(|text| read_time(&text));
    loop {
        let time = context.live.load().config.quarantine.digest.parse::<DigestTime>().ok();
        let now = now_s();
        let pause = match (time, last.filter(|last| is_believed(*last, now))) {
            (None, _) => {
                last = None;
                SLEEP_MAX
            }
            (Some(_), None) => {
                // The first period begins now. Kept, so that restarts do not put its end off.
                last = Some(now);
                save(&context, &file, now).await;
                continue;
            }
            (Some(time), Some(before)) => {
                let next = next_time(time, before, clock::local_offset_seconds(now * 1_000_000));
                if next <= now {
                    last = Some(now);
                    save(&context, &file, now).await;
                    send_all(&dispatch).await;
                    continue;
                }
                Duration::from_secs(next - now).min(SLEEP_MAX)
            }
        };
        tokio::select! {
            () = context.stop.begun() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn now_s() -> u64 {
    clock::unix_us() / 1_000_000
}

async fn save(context: &Context, file: &Arc<StateFile>, last: u64) {
    let file = Arc::clone(file);
    file.mark_changed();
    // A panic is reported where it happens.
    if let Ok(Err(text)) = blocking::run(move || file.save(|| time_text(last))).await {
        context.record(&Event::Spool { severity: Severity::Warning, text: &text });
    }
}

/// Sends the digest of each recipient.
async fn send_all(dispatch: &Arc<Dispatch>) {
    let context = &dispatch.context;
    let config = context.live.load().config.clone();
    let domains = config.quarantine.digest_domains.clone();
    let spool = Arc::clone(&dispatch.spool);
    let now = now_s();
    let found = blocking::run(move || held_by_recipient(&spool, &domains, now)).await;
    // A panic is reported where it happens.
    let Ok(found) = found else { return };
    for HeldRecipient { address, mut held } in found {
        if context.stop.has_begun() {
            return;
        }
        let count = held.len();
        // The newest are first.
        held.truncate(LISTED_MAX);
        let spool = Arc::clone(&dispatch.spool);
        let Ok(listed) = blocking::run(move || held.iter().filter_map(|one| facts(&spool, one)).collect()).await else {
            return;
        };
        send(dispatch, &config, &address, (listed, count)).await;
    }
}

/// Stores the digest of one recipient, and puts it in line.
async fn send(dispatch: &Arc<Dispatch>, config: &Config, address: &Address, (listed, count): (Vec<HeldMail>, usize)) {
    if listed.is_empty() {
        return;
    }
    let context = &dispatch.context;
    let id = context.message_store.next_id();
    let content = compose(config, &context.secret, (address, id), &listed, count);
    let params = RecipientParams { notify: Some(Notify::NEVER), ..RecipientParams::default() };
    let envelope = Envelope {
        id,
        // RFC 3834 §3.3: nothing answers it
        sender: ReversePath::Null,
        params: MailParams { smtputf8: !address.is_ascii(), ..MailParams::default() },
        received: Received { at_us: clock::unix_us(), client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![Recipient { address: address.clone(), params }],
    };
    let queue = Arc::clone(dispatch) as Arc<dyn Enqueue>;
    let to = format!("<{address}>");
    match submit_own(context, Some(&queue), &envelope, content).await {
        Ok(()) => {
            let messages = u64::try_from(count).unwrap_or(u64::MAX);
            context.record(&Event::QuarantineDigest { id, messages, to: &to });
        }
        Err(why) => {
            let text = format!("{to} gets no digest of the quarantine before the next one: {why}");
            context.record(&Event::Spool { severity: Severity::Error, text: &text });
        }
    }
}

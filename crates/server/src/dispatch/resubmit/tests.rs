//! Copies of mail in quarantine on a simulated disk, with a power cut or a kill at each write.

use super::*;
use crate::config::Config;
use crate::intake::inline;
use crate::sabotage::{self, Sabotage};
use crate::simulation::spool_on;
use mail::{Client, Protocol, QueueId, Received, ReversePath};
use operator::queue::RecipientSelection;
use spool::disk::sim::SimDisk;
use spool::{Hold, HoldKind, Spool};

const CONTENT: &[u8] = b"Received: own\r\nSubject: x\r\n\r\nhello\r\n";
const TO: &str = "c@d.test";
const OTHER: &str = "abuse@d.test";
/// Passes of crashes whose moments depend on the spool's own writes too: each may miss the one that is sought.
const TRIES: usize = 50;

/// Recipients of messages in a spool that are in quarantine, and of those that wait for delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    kept: Vec<String>,
    sent: Vec<String>,
}

struct Trial {
    disk: SimDisk,
    spool: Arc<Spool>,
    dispatch: Arc<Dispatch>,
}

impl Trial {
    fn on(disk: SimDisk) -> Self {
        let spool = spool_on(&disk, |config| config.state_delay_ms = 0);
        let dispatch = Dispatch::trial_on(&Context::trial(Config::default(), Some(&spool)));
        Self { disk, spool, dispatch }
    }

    /// Stores a message in quarantine.
    async fn store(&self) -> QueueId {
        let context = &self.dispatch.context;
        let id = context.message_store.next_id();
        let envelope = Envelope {
            id,
            sender: ReversePath::parse(b"<a@b.test>").unwrap(),
            params: MailParams::default(),
            received: Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: vec![Recipient::new(Address::parse(TO.as_bytes()).unwrap())],
        };
        let encoded = Arc::new(Encoded::new(&envelope));
        let kind = MessageProperties::default();
        let planned = PlannedMessage { envelope: Arc::new(envelope), encoded, kind };
        let mut message = NewMessage::new(context, planned, Class::Normal);
        message.hold(Hold::new(HoldKind::Quarantine, "rule", "for the administrator"));
        let content = TransactionContent::new(id);
        let stored = content.finish(&context.message_store, vec![message], inline(CONTENT.to_vec())).await.unwrap();
        drop(intake::commit(context, Origin::Session, stored).await.unwrap());
        id
    }

    async fn resubmit(&self, id: QueueId, to: Option<&str>) -> bool {
        let to = to.map(|to| Address::parse(to.as_bytes()).unwrap());
        let meant = RecipientSelection { id, recipients: vec![0] };
        resubmit(&self.dispatch, Resubmission { meant, to }).await.is_ok()
    }

    fn found(&self) -> Found {
        let mut found = Found::default();
        for id in self.spool.messages() {
            let stored = self.spool.envelope(id).unwrap();
            let body = self.spool.body(id).unwrap().concat();
            for one in stored.recipients {
                let address = spool::envelope::decode_recipient(&one.data).unwrap().address.to_string();
                match one.state.status {
                    Status::Held => {
                        assert_eq!(body, CONTENT);
                        found.kept.push(address);
                    }
                    _ => {
                        assert!(body.starts_with(b"X-Quarantine-") && body.ends_with(CONTENT));
                        found.sent.push(address);
                    }
                }
            }
        }
        found
    }
}

/// Cuts the power, or kills the process, after each of the first operations; returns for each whether the copy was
/// acknowledged, and what the next start finds.
async fn found_after_crashes(to: Option<&str>) -> Vec<(bool, Found)> {
    let mut all = Vec::new();
    // Until it was acknowledged before the crash came.
    for operations in 0..20 {
        if all.last().is_some_and(|(is_acknowledged, _)| *is_acknowledged) {
            break;
        }
        for crash in 0..3 {
            let trial = Trial::on(SimDisk::new(1));
            let id = trial.store().await;
            trial.disk.cut_power_after(operations);
            let is_acknowledged = trial.resubmit(id, to).await;
            let disk = if crash == 2 { trial.disk.kill() } else { trial.disk.crash(crash) };
            all.push((is_acknowledged, Trial::on(disk).found()));
        }
    }
    all
}

fn is_lost(found: &Found) -> bool {
    found.kept.is_empty() && found.sent.is_empty()
}

#[tokio::test]
async fn a_released_message_is_in_quarantine_or_sent_after_any_crash() {
    let has = |found: &Found, kept: usize, sent: usize| (found.kept.len(), found.sent.len()) == (kept, sent);
    // Before the copy, between the copy and the end of the original, and after both.
    let steps = [(1, 0), (1, 1), (0, 1)];
    let mut all = found_after_crashes(None).await;
    for _ in 0..TRIES {
        if steps.iter().all(|(kept, sent)| all.iter().any(|(_, found)| has(found, *kept, *sent))) {
            break;
        }
        all.extend(found_after_crashes(None).await);
    }
    assert!(all.iter().all(|(_, found)| !is_lost(found)), "{all:?}");
    assert!(all.iter().all(|(done, found)| !done || has(found, 0, 1)), "acknowledged, and not as said: {all:?}");
    // Each step has had its crash.
    for (kept, sent) in steps {
        assert!(all.iter().any(|(_, found)| has(found, kept, sent)), "{kept} {sent}: {all:?}");
    }
}

#[tokio::test]
async fn a_forwarded_message_stays_in_quarantine_and_its_copy_is_not_lost() {
    let all = found_after_crashes(Some(OTHER)).await;
    for (is_acknowledged, Found { kept, sent }) in &all {
        assert_eq!(kept, &[TO.to_owned()]);
        assert!(if *is_acknowledged { sent == &[OTHER.to_owned()] } else { sent.len() <= 1 }, "{sent:?}");
    }
    assert!(all.iter().any(|(_, found)| found.sent.is_empty()) && all.iter().any(|(done, _)| *done));
}

/// The trial above notices an original that is done before its copy is stored.
#[tokio::test]
async fn an_original_that_ends_before_its_copy_is_noticed() {
    let _guard = sabotage::begin(Some(Sabotage::EndBeforeCopy));
    for _ in 0..TRIES {
        if found_after_crashes(None).await.iter().any(|(_, found)| is_lost(found)) {
            return;
        }
    }
    panic!("no crash lay between the end and the copy");
}

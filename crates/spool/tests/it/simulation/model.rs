//! The required content of a spool, in plain maps: the model that simulations compare with.
//!
//! For each recipient it knows the state that is durable for certain and those recorded since, of which a crash keeps
//! any one. After each recovery the model takes over the found states, once they were found to be allowed.

use mail::QueueId;
use spool::{Hold, Spool, State, Status, Store};
use std::collections::BTreeMap;

/// A recipient's state with its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub state: State,
    pub destination: Vec<u8>,
    /// Why it is held.
    pub hold: Option<Hold>,
}

#[derive(Clone, Debug)]
pub struct Recipient {
    pub data: Vec<u8>,
    pub durable: Known,
    /// Recorded later, oldest first, each with the number of the call that recorded it.
    pub recorded: Vec<(u64, Known)>,
}

impl Recipient {
    /// The state in memory.
    pub fn present(&self) -> &Known {
        self.recorded.last().map_or(&self.durable, |(_, known)| known)
    }

    fn allows(&self, found: &Known) -> bool {
        *found == self.durable || self.recorded.iter().any(|(_, known)| known == found)
    }

    fn may_be_done(&self) -> bool {
        self.durable.state.status == Status::Done
            || self.recorded.iter().any(|(_, known)| known.state.status == Status::Done)
    }

    fn is_done(&self) -> bool {
        self.present().state.status == Status::Done
    }
}

#[derive(Clone, Debug)]
pub struct Message {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    /// Where the body begins behind the header section.
    pub body_offset: u64,
    pub recipients: Vec<Recipient>,
    /// 250 was said.
    pub acknowledged: bool,
    /// The first queue id of the messages that are stored with it or not at all.
    pub group: u64,
}

impl Message {
    pub fn finished(&self) -> bool {
        self.recipients.iter().all(Recipient::is_done)
    }
}

/// The content that is allowed in the spool.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub messages: BTreeMap<u64, Message>,
}

impl Model {
    /// Marks the states of the call with this number as durable, and drops those that they replaced.
    pub fn recorded_is_durable(&mut self, call: u64) {
        for message in self.messages.values_mut() {
            for recipient in &mut message.recipients {
                if recipient.recorded.iter().any(|(of, _)| *of == call) {
                    while recipient.recorded.first().is_some_and(|(of, _)| *of <= call) {
                        recipient.durable = recipient.recorded.remove(0).1;
                    }
                }
            }
        }
        self.messages.retain(|_, message| {
            !message.recipients.iter().all(|r| r.durable.state.status == Status::Done && r.recorded.is_empty())
        });
    }

    /// A call was refused.
    pub fn unrecord(&mut self, call: u64) {
        for recipient in self.messages.values_mut().flat_map(|message| &mut message.recipients) {
            recipient.recorded.retain(|(of, _)| *of != call);
        }
    }

    /// Compares a running spool: exactly the present states.
    pub fn check_running(&self, spool: &Spool) -> Result<(), String> {
        let found: Vec<u64> = spool.messages().into_iter().map(QueueId::to_u64).collect();
        let mut waiting = 0;
        for (id, message) in &self.messages {
            if !message.acknowledged {
                continue;
            }
            if found.contains(id) == message.finished() {
                return Err(format!(
                    "{id:x}: finished is {}, but present is {}",
                    message.finished(),
                    found.contains(id)
                ));
            }
            if message.finished() {
                continue;
            }
            let read = read(spool, *id)?;
            compare_contents(*id, message, &read)?;
            for (position, recipient) in message.recipients.iter().enumerate() {
                let known = read.states.get(&(position as u32));
                let expected = Some(recipient.present()).filter(|known| known.state.status != Status::Done);
                if known != expected {
                    return Err(format!("{id:x} recipient {position}: {known:?} instead of {expected:?}"));
                }
                waiting += u64::from(expected.is_some());
            }
        }
        let statistics = spool.statistics();
        let unknown = self.messages.values().any(|message| !message.acknowledged);
        if !unknown && statistics.recipients != waiting {
            return Err(format!("{} recipients counted, {waiting} expected", statistics.recipients));
        }
        check_queues(spool)
    }

    /// Compares a recovered spool, and takes over its states.
    pub fn check_recovered(&mut self, spool: &Spool) -> Result<(), String> {
        let found: Vec<u64> = spool.messages().into_iter().map(QueueId::to_u64).collect();
        for (id, message) in &self.messages {
            let may_be_gone = !message.acknowledged || message.recipients.iter().all(Recipient::may_be_done);
            if !may_be_gone && !found.contains(id) {
                return Err(format!("{id:x}: acknowledged and lost: {:?}", message.recipients));
            }
        }
        for (id, message) in &self.messages {
            let first = self.messages.get(&message.group).is_some_and(|first| !first.acknowledged);
            if first && !message.acknowledged && found.contains(id) != found.contains(&message.group) {
                return Err(format!("{id:x}: only some of the messages stored with {:x} are there", message.group));
            }
        }
        for id in &found {
            let Some(message) = self.messages.get_mut(id) else {
                return Err(format!("{id:x}: in the spool although it was finished or never given"));
            };
            let read = read(spool, *id)?;
            compare_contents(*id, message, &read)?;
            for (position, recipient) in message.recipients.iter_mut().enumerate() {
                let state = State { status: Status::Done, ..State::default() };
                let done = || Known { state, destination: Vec::new(), hold: None };
                match read.states.get(&(position as u32)) {
                    Some(known) if recipient.allows(known) => recipient.durable = known.clone(),
                    None if recipient.may_be_done() => recipient.durable = done(),
                    known => return Err(format!("{id:x} recipient {position}: {known:?} is none of {recipient:?}")),
                }
                recipient.recorded.clear();
            }
            message.acknowledged = true;
        }
        self.messages.retain(|id, _| found.contains(id));
        check_queues(spool)
    }
}

/// A message as the spool tells of it.
struct Read {
    head: Vec<u8>,
    body: Vec<u8>,
    body_offset: u64,
    data: BTreeMap<u32, Vec<u8>>,
    states: BTreeMap<u32, Known>,
}

fn read(spool: &Spool, id: u64) -> Result<Read, String> {
    let id = QueueId::from_u64(id).ok_or("no queue id")?;
    let envelope = spool.envelope(id).map_err(|error| format!("{id}: envelope: {error}"))?;
    let body: Vec<u8> = spool.body(id).map_err(|error| format!("{id}: body: {error}"))?.concat();
    if envelope.body_bytes != body.len() as u64 {
        return Err(format!("{id}: body of {} bytes said to have {}", body.len(), envelope.body_bytes));
    }
    let body_offset = u64::from(envelope.body_offset);
    let header = spool.header(id).map_err(|error| format!("{id}: header section: {error}"))?;
    if body.get(..body_offset as usize) != Some(&header[..]) {
        return Err(format!("{id}: the header section is not the first {body_offset} bytes of the content"));
    }
    let middle = body.len() as u64 / 3..body.len() as u64 / 2 + 7;
    for range in [middle, body_offset.saturating_sub(5)..body_offset + 5] {
        let part = spool.body_range(id, range.clone()).map_err(|error| format!("{id}: range: {error}"))?;
        if part.as_ref() != body.get(range.start as usize..(range.end as usize).min(body.len())).unwrap_or_default() {
            return Err(format!("{id}: {range:?} of the content differs from the content"));
        }
    }
    let (head, data, states) = (envelope.head.to_vec(), BTreeMap::new(), BTreeMap::new());
    let mut found = Read { head, body, body_offset, data, states };
    for recipient in envelope.recipients {
        found.data.insert(recipient.position, recipient.data.to_vec());
        let hold = spool.hold(id, recipient.position);
        let known = Known { state: recipient.state, destination: recipient.destination.to_vec(), hold };
        found.states.insert(recipient.position, known);
    }
    Ok(found)
}

fn compare_contents(id: u64, message: &Message, found: &Read) -> Result<(), String> {
    if message.head != found.head || message.body != found.body {
        return Err(format!("{id:x}: wrong contents: {} bytes instead of {}", found.body.len(), message.body.len()));
    }
    if message.body_offset != found.body_offset {
        return Err(format!("{id:x}: the body begins at {} instead of {}", found.body_offset, message.body_offset));
    }
    for (position, data) in &found.data {
        if message.recipients.get(*position as usize).is_none_or(|recipient| recipient.data != *data) {
            return Err(format!("{id:x} recipient {position}: wrong data {data:?}"));
        }
    }
    Ok(())
}

/// Every recipient stands in the queue of its destination once, and nothing else does.
fn check_queues(spool: &impl Store) -> Result<(), String> {
    let mut total = 0;
    for (destination, count) in spool.destinations() {
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let some = spool.by_destination(&destination, after, 3);
            after = some.last().copied();
            if some.is_empty() {
                break;
            }
            entries.extend(some);
        }
        if entries.len() as u64 != count {
            return Err(format!("{destination:?}: {} entries, {count} counted", entries.len()));
        }
        total += count;
        for entry in entries {
            let envelope = spool.envelope(entry.id).map_err(|error| error.to_string())?;
            let listed = envelope.recipients.iter().any(|recipient| {
                recipient.position == entry.recipient
                    && recipient.destination == destination
                    && recipient.state == entry.state
            });
            if !listed {
                return Err(format!("{entry:?} stands in the queue of {destination:?}, its envelope says otherwise"));
            }
        }
    }
    let statistics = spool.statistics();
    if total != statistics.recipients {
        return Err(format!("{total} recipients in queues, {} counted", statistics.recipients));
    }
    Ok(())
}

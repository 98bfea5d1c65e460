//! Takes the engine of a dead node out of those that elect the leader of JetStream, by a user of the system account.
//!
//! An engine that is gone counts for the majority until it is taken out. Only a user of the system account may do that,
//! and only an engine that is silent is taken out: it answers no question, and the leader has not heard it for some
//! seconds. The copies of an engine that runs are still needed.

use super::api::{self, CallError};
use super::connection::{Engine, NoAnswer};
use super::error::EngineAccessError;
use super::settings::{EngineLogin, EngineSettings};
use crate::config;
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use cluster::NodeId;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Subject of a question that each engine answers with what it knows of JetStream.
const ASK_ALL: &str = "$SYS.REQ.SERVER.PING.JSZ";
/// Time that engines have to answer it.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Time for which an engine answers nothing before it counts as silent, unless the leader knows that it is down: one
/// that lags and is slow looks the same for some seconds.
const SILENCE: Duration = Duration::from_secs(10);
/// Time until the leader knows that an engine is silent (10 s), it has been so for [`SILENCE`], and it is out.
const SETTLE_TIME: Duration = Duration::from_secs(35);
/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Letters of the id that nats-server makes of its name.
const ID_LETTERS: usize = 8;
/// The letters that an id may have.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// How the removal of an engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineRemoval {
    /// The configuration names no user of the system account.
    NoAccount,
    /// Nothing was changed, as mail waits that only this engine may have.
    Kept,
    /// The engine that answers is in no cluster of engines: there is no majority.
    Single,
    /// The engines have none of this name among them: it is out already, or has another name.
    NotAmongThem {
        /// The name that `mailrace cluster init` and `join` give.
        name: String,
    },
    /// It runs. Nothing was changed.
    Runs {
        /// Its name.
        name: String,
    },
    /// It is out.
    Removed {
        /// Its name.
        name: String,
    },
    /// It could not be done, for this reason, with the next step. It can be repeated.
    NotDone(String),
}

/// Takes the engine of a node out of the majority, by the login of `cluster.system_user`, unless mail waits for the
/// node or its engine. Waits up to 40 s; call it on a thread that may wait.
#[must_use]
pub fn remove_engine(config: &config::Cluster, node: NodeId, has_waiting_mail: bool) -> EngineRemoval {
    let Some(settings) = EngineSettings::of_system_account(config) else { return EngineRemoval::NoAccount };
    if has_waiting_mail {
        return EngineRemoval::Kept;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return EngineRemoval::NotDone(format!("the runtime: {error}; run this command again")),
    };
    runtime.block_on(async {
        match Engine::connect(&settings).await {
            Ok(engine) => remove(&engine, node).await,
            Err(error) => EngineRemoval::NotDone(format!("cluster.system_user \"{}\": {error}", config.system_user)),
        }
    })
}

/// Whether the login of these settings is one of the system account: others get no answer to its questions.
///
/// # Errors
/// No engine answers or takes the login.
/// # Cancel safety
/// Yes.
pub(super) async fn is_system_account(settings: &EngineSettings) -> Result<bool, EngineAccessError> {
    let engine = Engine::connect(settings).await?;
    match engine.request(ASK_ALL.to_owned(), None, Bytes::from_static(b"{}")).await {
        Ok(_) => Ok(true),
        Err(NoAnswer::NotHeard) => Ok(false),
        Err(NoAnswer::Unknown) => Err(CallError::Unknown.of("a question of the system account")),
    }
}

/// Asks until the engine is out, or [`SETTLE_TIME`] is over.
///
/// # Cancel safety
/// The engine may be taken out all the same.
async fn remove(engine: &Engine, node: NodeId) -> EngineRemoval {
    let Some(cluster) = engine.cluster_name() else { return EngineRemoval::Single };
    let mut removal = PeerRemoval { name: format!("{cluster}-{}", node.0), is_asked: false, silent_since: None };
    let begin = Instant::now();
    loop {
        let state = judge(&ask_all(engine).await, &removal.name);
        match removal.next(&state, begin.elapsed()) {
            PeerStep::Look => {}
            PeerStep::TakeOut(id) => {
                let request = json!({ "peer": removal.name, "peer_id": id });
                match api::call(engine, "SERVER.REMOVE", &request).await {
                    // The next look shows whether a request without an answer was carried out.
                    Ok(_) | Err(CallError::Unknown) => removal.is_asked = true,
                    Err(error) => {
                        let name = removal.name;
                        return EngineRemoval::NotDone(format!("{name}: {error}; run this command again"));
                    }
                }
            }
            PeerStep::End(end) => return end,
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// An engine that is to be taken out.
#[derive(Debug)]
struct PeerRemoval {
    name: String,
    /// The leader has been asked to take it out.
    is_asked: bool,
    /// Time after the begin at which it was first found silent, if it was at each look since.
    silent_since: Option<Duration>,
}

/// A look's consequence.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PeerStep {
    /// Look again after [`LOOK_INTERVAL`].
    Look,
    /// Ask the leader to take this id out, then look again.
    TakeOut(String),
    End(EngineRemoval),
}

impl PeerRemoval {
    /// Decides by the state that a look found, `elapsed` after the begin.
    fn next(&mut self, state: &PeerState, elapsed: Duration) -> PeerStep {
        let name = self.name.clone();
        match state {
            PeerState::Absent if self.is_asked => return PeerStep::End(EngineRemoval::Removed { name }),
            PeerState::Absent => return PeerStep::End(EngineRemoval::NotAmongThem { name }),
            PeerState::Silent { id, is_down } if !self.is_asked => {
                let since = *self.silent_since.get_or_insert(elapsed);
                let is_silent = *is_down || elapsed.saturating_sub(since) >= SILENCE;
                return if is_silent { PeerStep::TakeOut(id.clone()) } else { PeerStep::Look };
            }
            PeerState::Answers if self.is_asked => {
                return PeerStep::End(EngineRemoval::NotDone(format!(
                    "{name} answers again, although it is being taken out: stop it, or start it again to have it back; \
                     mailrace cluster verify shows the engines"
                )));
            }
            PeerState::Answers => return PeerStep::End(EngineRemoval::Runs { name }),
            PeerState::Heard | PeerState::NoLeader => self.silent_since = None,
            PeerState::Silent { .. } => {}
        }
        if elapsed < SETTLE_TIME {
            return PeerStep::Look;
        }
        PeerStep::End(match state {
            PeerState::Heard => EngineRemoval::Runs { name },
            PeerState::NoLeader => EngineRemoval::NotDone(
                "no leader of the engines answers: start more of them (mailrace cluster verify), and run this command again"
                    .to_owned(),
            ),
            _ => EngineRemoval::NotDone(format!("{name} is still among the engines; run this command again")),
        })
    }
}

/// Asks all engines, and returns the answers that come within [`ANSWER_TIME`]; none without a connection.
///
/// # Cancel safety
/// Yes.
async fn ask_all(engine: &Engine) -> Vec<Value> {
    let Ok(mut messages) = engine.request_many(ASK_ALL.to_owned(), Bytes::from_static(b"{}")).await else {
        return Vec::new();
    };
    let end = Instant::now() + ANSWER_TIME;
    let mut answers = Vec::new();
    while let Ok(Some(message)) = timeout_at(end, messages.next()).await {
        answers.extend(serde_json::from_slice::<Value>(&message.payload));
    }
    answers
}

/// An engine as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PeerState {
    /// No leader has answered.
    NoLeader,
    /// The leader does not count it.
    Absent,
    /// It answers.
    Answers,
    /// The leader has heard it within the last seconds.
    Heard,
    /// It counts for the majority, and is silent; the leader may know that it is down.
    Silent { id: String, is_down: bool },
}

/// Judges an engine by the answers of all.
fn judge(answers: &[Value], name: &str) -> PeerState {
    let text = |value: &Value, place: &str| value.pointer(place).and_then(Value::as_str).map(ToOwned::to_owned);
    let name_of = |answer: &Value| text(answer, "/server/name");
    let leads = |answer: &&Value| {
        let leader = text(answer, "/data/meta_cluster/leader").filter(|leader| !leader.is_empty());
        leader.is_some() && leader == name_of(answer)
    };
    let Some(leader) = answers.iter().find(leads) else { return PeerState::NoLeader };
    let Some(leader_name) = name_of(leader) else { return PeerState::NoLeader };
    if answers.iter().any(|answer| name_of(answer).as_deref() == Some(name)) {
        return PeerState::Answers;
    }
    // A leader that has not heard an engine since its own start knows its id alone. The way to an id is that of this
    // version of nats-server, so it counts when it leads from the leader's name to the leader's id.
    let id = id_of(name);
    let is_way_known = text(leader, "/data/meta_cluster/peer") == Some(id_of(&leader_name));
    let peers = leader.pointer("/data/meta_cluster/replicas").and_then(Value::as_array);
    let is_it = |peer: &&Value| {
        text(peer, "/name").as_deref() == Some(name) || (is_way_known && text(peer, "/peer").as_ref() == Some(&id))
    };
    let Some(peer) = peers.into_iter().flatten().find(is_it) else { return PeerState::Absent };
    let is_heard = peer.get("current").and_then(Value::as_bool).unwrap_or(true);
    let is_offline = peer.get("offline").and_then(Value::as_bool).unwrap_or(false);
    match text(peer, "/peer") {
        Some(id) if is_offline || !is_heard => PeerState::Silent { id, is_down: is_offline },
        _ => PeerState::Heard,
    }
}

/// The id that nats-server 2.15.2 makes of its name.
fn id_of(name: &str) -> String {
    let sum = digest(&SHA256, name.as_bytes());
    let letter = |octet: &u8| DIGITS.get(usize::from(*octet) % DIGITS.len()).copied().map_or('0', char::from);
    sum.as_ref().iter().take(ID_LETTERS).map(letter).collect()
}

impl EngineSettings {
    /// The settings of the login at the system account; `None` where there is none, or no cluster.
    pub(super) fn of_system_account(config: &config::Cluster) -> Option<Self> {
        let file = config.system_password_file.clone()?;
        let settings = Self::from_config(config)?;
        let login = EngineLogin::Password { user: config.system_user.clone(), file };
        Some(Self { name: format!("mailrace cluster leave at node {}", config.node), login, ..settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a leader that counts one other engine of this kind.
    fn leader(peer: Value) -> Value {
        json!({
            "server": { "name": "mail-1" },
            "data": { "meta_cluster": {
                "leader": "mail-1",
                "peer": id_of("mail-1"),
                "replicas": [{ "name": "mail-2", "current": true, "peer": id_of("mail-2") }, peer],
            } },
        })
    }

    fn follower(name: &str) -> Value {
        json!({ "server": { "name": name }, "data": { "meta_cluster": { "leader": "mail-1" } } })
    }

    #[test]
    fn only_a_silent_engine_is_taken_out() {
        let peer = |current: bool, offline: bool| json!({ "name": "mail-3", "current": current, "offline": offline, "peer": "abc" });
        let silent = |is_down| PeerState::Silent { id: "abc".to_owned(), is_down };
        for (answers, state) in [
            (vec![leader(peer(false, false)), follower("mail-2")], silent(false)),
            (vec![follower("mail-2"), leader(peer(false, true))], silent(true)),
            (vec![leader(peer(true, true))], silent(true)),
            (vec![leader(peer(true, false)), follower("mail-2")], PeerState::Heard),
            // It answers, so it runs, whatever the leader says.
            (vec![leader(peer(false, true)), follower("mail-3")], PeerState::Answers),
            (vec![leader(json!({ "name": "mail-3", "peer": "abc" }))], PeerState::Heard),
            (vec![leader(json!({ "name": "mail-3", "current": false }))], PeerState::Heard),
            (vec![leader(json!({ "name": "mail-4", "current": false, "peer": "abc" }))], PeerState::Absent),
            (vec![follower("mail-2"), follower("mail-3")], PeerState::NoLeader),
            (Vec::new(), PeerState::NoLeader),
        ] {
            assert_eq!(judge(&answers, "mail-3"), state, "{answers:?}");
        }
    }

    #[test]
    fn an_engine_whose_name_the_leader_does_not_know_is_found_by_its_id() {
        let unknown = json!({ "name": "Server name unknown at this time", "current": false, "peer": id_of("mail-3") });
        assert_eq!(
            judge(&[leader(unknown.clone())], "mail-3"),
            PeerState::Silent { id: id_of("mail-3"), is_down: false }
        );
        assert_eq!(judge(&[leader(unknown.clone())], "mail-4"), PeerState::Absent);
        // A version that makes ids in another way.
        let mut other = leader(unknown);
        other["data"]["meta_cluster"]["peer"] = "another".into();
        assert_eq!(judge(&[other], "mail-3"), PeerState::Absent);
    }

    fn removal() -> PeerRemoval {
        PeerRemoval { name: "mail-3".to_owned(), is_asked: false, silent_since: None }
    }

    fn silent(is_down: bool) -> PeerState {
        PeerState::Silent { id: "abc".to_owned(), is_down }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_engine_that_lags_for_a_moment_stays() {
        let take_out = PeerStep::TakeOut("abc".to_owned());
        let mut removal = removal();
        // Silent for nine seconds, then heard: the silence begins anew.
        for second in 0..10 {
            assert_eq!(removal.next(&silent(false), second * SECOND), PeerStep::Look, "after {second} s");
        }
        assert_eq!(removal.next(&PeerState::Heard, 10 * SECOND), PeerStep::Look);
        for second in 11..21 {
            assert_eq!(removal.next(&silent(false), second * SECOND), PeerStep::Look, "after {second} s");
        }
        assert_eq!(removal.next(&silent(false), 21 * SECOND), take_out);
        // A look without a leader is no look at the engine.
        let mut removal = self::removal();
        assert_eq!(removal.next(&silent(false), Duration::ZERO), PeerStep::Look);
        assert_eq!(removal.next(&PeerState::NoLeader, 5 * SECOND), PeerStep::Look);
        assert_eq!(removal.next(&silent(false), 12 * SECOND), PeerStep::Look);
        // The leader knows that it is down: nothing is waited for.
        assert_eq!(removal.next(&silent(true), 13 * SECOND), take_out);
    }

    #[test]
    fn a_removal_ends_by_what_the_looks_show() {
        let late = SETTLE_TIME;
        let name = || "mail-3".to_owned();
        let runs = || PeerStep::End(EngineRemoval::Runs { name: name() });
        for (is_asked, state, elapsed, step) in [
            (false, PeerState::Absent, SECOND, PeerStep::End(EngineRemoval::NotAmongThem { name: name() })),
            (true, PeerState::Absent, SECOND, PeerStep::End(EngineRemoval::Removed { name: name() })),
            (false, PeerState::Answers, SECOND, runs()),
            (false, PeerState::Heard, SECOND, PeerStep::Look),
            (false, PeerState::Heard, late, runs()),
            // It is asked once.
            (true, silent(true), SECOND, PeerStep::Look),
            (true, PeerState::NoLeader, SECOND, PeerStep::Look),
        ] {
            let mut removal = PeerRemoval { is_asked, ..removal() };
            assert_eq!(removal.next(&state, elapsed), step, "{is_asked} {state:?} {elapsed:?}");
        }
        for (is_asked, state, elapsed, text) in [
            (true, PeerState::Answers, SECOND, "answers again"),
            (true, silent(true), late, "still among the engines"),
            (false, PeerState::NoLeader, late, "no leader"),
        ] {
            let step = PeerRemoval { is_asked, ..removal() }.next(&state, elapsed);
            let PeerStep::End(EngineRemoval::NotDone(why)) = &step else { panic!("{state:?}: {step:?}") };
            assert!(why.contains(text), "{why}");
        }
    }
}

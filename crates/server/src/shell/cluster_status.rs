//! The state of the cluster as this node sees it, for the answer to `status`.

use super::cluster_adopt::reason_words;
use super::shared_config::shared_status;
use crate::cluster::{ClusterMember, MemberStatus, SharedConfig};
use crate::dispatch::HostReportsView;
use cluster::{AdoptionStatus, DepartureMark, HostageStatus, LimitStatus, StreamState, StreamStatus};
use operator::answers::{
    ClusterAdoption, ClusterAnswer, ClusterDeparted, ClusterHost, ClusterHostage, ClusterHosts, ClusterLeave,
    ClusterLimit, ClusterNode, ClusterStream,
};

/// Reported next hops that are shown.
const HOSTS_SHOWN_MAX: usize = 100;

/// Describes the node.
pub(super) fn cluster_status(
    member: &ClusterMember,
    shared: Option<&SharedConfig>,
    hosts: Option<&HostReportsView>,
    leave: Option<ClusterLeave>,
) -> ClusterAnswer {
    let MemberStatus { cluster: status, refusal, engine_problem, is_draining, cluster_id } = member.status();
    let state = match () {
        () if refusal.is_some() => "refused",
        () if member.is_departing() => "leaving",
        () if is_draining => "draining",
        () if !status.has_majority => "alone",
        () if status.is_member => "member",
        () => "joining",
    };
    let nodes = member.nodes();
    let live: Vec<u16> = nodes.iter().map(|entry| entry.node.0).chain([status.node.0]).collect();
    let departed = member.departed();
    let config = shared.map(|shared| {
        let mut config = shared_status(&shared.status(), &live);
        config.nodes.retain(|one| departed.iter().all(|mark| mark.node.0 != one.node));
        config
    });
    ClusterAnswer {
        config,
        departed: departed.iter().map(|mark| left(mark, &status.streams)).collect(),
        leave,
        cluster: cluster_id.to_string(),
        node: status.node.0,
        state: state.to_owned(),
        refusal,
        engine_problem,
        messages: number(status.counts.messages),
        unreplicated: number(status.counts.unreplicated),
        with_fewer_copies: number(status.counts.with_fewer_copies),
        waiting_for_stream: number(status.counts.waiting_for_stream),
        adopted_waiting: number(status.adopted_waiting),
        copied_bytes: status.counts.copied_octets,
        stored_bytes: status.counts.stored_octets,
        block_version: status.block_version,
        block_version_newest: status.block_version_newest,
        adopted: member.moves().adopted_count(),
        given_up: member.moves().given_up_count(),
        nodes: nodes
            .into_iter()
            .map(|entry| ClusterNode {
                node: entry.node.0,
                name: entry.name,
                draining: entry.is_draining,
                leaving: entry.is_departing,
            })
            .collect(),
        streams: status.streams.iter().map(stream).collect(),
        adoptions: status.adoptions.iter().map(adoption).collect(),
        hostages: status.hostages.iter().map(hostage).collect(),
        limits: member.limits().iter().map(limit).collect(),
        hosts: hosts.map(reported),
    }
}

fn reported(hosts: &HostReportsView) -> ClusterHosts {
    let shown = hosts.reported.iter().take(HOSTS_SHOWN_MAX).map(|(name, report, left)| ClusterHost {
        next_hop: name.clone(),
        state: report.state.word().to_owned(),
        node: report.node.0,
        wait: left.as_secs() + u64::from(left.subsec_nanos() > 0),
    });
    ClusterHosts {
        reported: shown.collect(),
        reported_count: number(hosts.reported.len()),
        waiting: hosts.waiting,
        sent: hosts.counts.sent,
        received: hosts.counts.received,
        dropped: hosts.counts.dropped,
        unreadable: hosts.counts.unreadable,
    }
}

/// A node that left, and the copies that this node still has at it.
fn left(mark: &DepartureMark, streams: &[StreamStatus]) -> ClusterDeparted {
    let messages = streams.iter().filter(|one| one.stream.holder == mark.node).map(|one| one.messages).sum();
    ClusterDeparted { node: mark.node.0, messages, empty: mark.is_empty }
}

fn number(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

fn stream(one: &StreamStatus) -> ClusterStream {
    let state = match one.state {
        StreamState::Opening => "opening",
        StreamState::Reading => "reading",
        StreamState::Open => "open",
        StreamState::Stalled => "stalled",
        StreamState::WithAdopter => "with adopter",
        StreamState::TakenBack => "taken back",
    };
    ClusterStream {
        holder: one.stream.holder.0,
        state: state.to_owned(),
        messages: one.messages,
        unstored_outcomes: number(one.unstored_completions),
        waiting_bytes: number(one.waiting_octets),
        lag_ms: one.lag.map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn limit(one: &LimitStatus) -> ClusterLimit {
    let (kind, next_hop) = one.name.split_once('/').unwrap_or_default();
    // Rates are kept as messages in 1,000 seconds.
    let (kind, unit) = if kind == "rate" { ("messages_per_second", 1_000.0) } else { (kind, 1.0) };
    let of = |amount: u32| f64::from(amount) / unit;
    ClusterLimit {
        kind: kind.to_owned(),
        next_hop: next_hop.to_owned(),
        limit: of(one.limit),
        share: of(one.amount),
        wanted: of(one.demand),
    }
}

fn adoption(one: &AdoptionStatus) -> ClusterAdoption {
    let (owner, holder) = (one.stream.owner.0, one.stream.holder.0);
    ClusterAdoption { owner, holder, step: one.step.to_owned(), taken: number(one.taken) }
}

fn hostage(one: &HostageStatus) -> ClusterHostage {
    let (owner, holder) = (one.stream.owner, one.stream.holder);
    let (why, next) = reason_words(one.why, owner, holder);
    let why = format!("{why}: {next}");
    ClusterHostage { owner: owner.0, holder: holder.0, messages: one.messages, why }
}

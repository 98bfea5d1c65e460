//! The numbers of the server in the text format of Prometheus.
//!
//! Counters of events come from `observe`; here are the numbers of `status` and of HTTP itself. Labels are words of
//! this program and names of the configuration, so their number is bounded; single destinations, hosts and users are
//! for the API.

use super::counts::{HttpCounts, HttpLimit};
use crate::answers::{
    ClusterAnswer, ClusterConfigRevision, ClusterStream, FilterStatus, HistoryStatus, ScreenQueueStatus, SpoolStatus,
    StatusAnswer, WebhookStatus,
};
use observe::counters::{self, Counter};
use std::fmt::{self, Write as _};

/// The beginning of every name.
const PREFIX: &str = "mailrace_";
/// The states of the spool, as `status` names them.
const PRESSURES: [&str; 4] = ["none", "slow", "full", "poisoned"];

/// Writes everything.
pub(super) fn exposition(status: &StatusAnswer, value: impl Fn(Counter) -> u64, http: &HttpCounts) -> String {
    let mut out = String::with_capacity(64 * 1024);
    counters::exposition(PREFIX, value, &mut out);
    let mut families = Families { out };
    process(&mut families, status);
    mail(&mut families, status);
    spool(&mut families, &status.spool);
    filters(&mut families, &status.filters);
    if let Some(queue) = &status.screen_queue {
        screen_queue(&mut families, queue);
    }
    if let Some(history) = &status.history {
        past(&mut families, history);
    }
    if let Some(answer) = &status.cluster {
        cluster(&mut families, answer);
    }
    webhooks(&mut families, &status.webhooks);
    web(&mut families, http);
    families.out
}

/// Appends families.
struct Families {
    out: String,
}

impl Families {
    /// Appends a family with its samples: labels with their braces, and values.
    fn family(&mut self, kind: &str, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        self.put(format_args!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
        for (labels, value) in samples {
            self.put(format_args!("{PREFIX}{name}{labels} {value}\n"));
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family("gauge", name, help, [(String::new(), value)]);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family("counter", name, help, [(String::new(), value)]);
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("a string takes everything");
    }
}

/// `{key="value"}`. The value may be a name of the configuration.
fn label(key: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{key}=\"{value}\"}}")
}

fn process(to: &mut Families, status: &StatusAnswer) {
    to.family("gauge", "build_info", "The version, as a label.", [(label("version", &status.version), 1)]);
    to.gauge("uptime_seconds", "Time since the start.", status.uptime_seconds);
    to.gauge("stopping", "1 while the server stops.", status.stopping.into());
    to.gauge("clock_doubted", "1 while the clock of the machine is implausible.", status.clock.is_some().into());
    to.gauge("log_waiting_lines", "Lines that wait for the target of the log.", status.log.waiting);
    to.gauge("log_failing", "1 while the log cannot be written.", status.log.failing.is_some().into());
}

fn mail(to: &mut Families, status: &StatusAnswer) {
    to.gauge("smtpd_connections", "Connections from clients that are open.", status.connections.open);
    to.gauge("smtpd_connections_max", "The most connections from clients.", status.connections.max);
    let queue = &status.queue;
    to.gauge("queue_messages", "Messages in the queue.", queue.messages);
    let states = [(label("state", "waiting"), queue.waiting), (label("state", "held"), queue.held)];
    to.family("gauge", "queue_recipients", "Recipients in the queue that are not done, by state.", states);
    to.gauge("queue_destinations", "Destinations with recipients in the queue.", queue.destinations);
    if let Some(deliveries) = &status.deliveries {
        let next_hops = &deliveries.connections;
        let open = [(label("kind", "usual"), next_hops.open), (label("kind", "silent"), next_hops.silent)];
        to.family("gauge", "delivery_connections", "Connections to next hops that are open.", open);
        let most = [(label("kind", "usual"), next_hops.max), (label("kind", "silent"), next_hops.silent_max)];
        to.family("gauge", "delivery_connections_max", "The most connections to next hops.", most);
    }
    to.gauge("logins_over_limit", "Logins with too many recipients in an hour.", status.logins_over.len() as u64);
    to.gauge("pickup_files", "Files in the pickup directory that are not taken yet.", status.pickup.files);
    to.gauge("pickup_full", "1 while a user has so many files that more are refused.", status.pickup.full.into());
    let expansions = &status.expansions;
    to.counter("expansions_made_total", "Expansions of long lists.", expansions.made);
    to.counter("expansions_shared_total", "Recipients that a cached expansion answered.", expansions.shared);
    to.counter("expansions_refused_total", "Recipients refused because too many waited.", expansions.refused);
    to.gauge("expansions_waiting", "Recipients that wait for an expansion.", expansions.waiting);
    to.gauge("expansions_cached", "Expansions in the cache.", expansions.kept);
    to.gauge("expansions_cached_bytes", "Memory of the cache of expansions.", expansions.kept_bytes);
}

fn spool(to: &mut Families, spool: &SpoolStatus) {
    let pressures = PRESSURES.map(|name| (label("state", name), u64::from(spool.pressure == name)));
    to.family("gauge", "spool_pressure", "1 for the state that the spool is in.", pressures);
    to.gauge("spool_durable", "1 if messages survive a power cut.", spool.durable.into());
    to.gauge("spool_live_bytes", "Octets of live records.", spool.live_bytes);
    to.gauge("spool_segments", "Segments of the spool.", spool.segments);
    to.gauge("spool_segments_free", "Segments that are free.", spool.segments_free);
    to.gauge("spool_segments_bad", "Segments that were put aside.", spool.segments_bad);
    to.gauge("spool_segments_max", "The most segments.", spool.segments_max);
    to.counter("spool_commits_total", "Commits.", spool.commits);
    to.counter("spool_batches_total", "Batches that were written.", spool.batches);
    to.counter("spool_syncs_total", "Flushes of the disk.", spool.syncs);
    to.counter("spool_written_bytes_total", "Octets written.", spool.bytes_written);
    to.counter("spool_content_bytes_total", "Octets of content written.", spool.body_bytes);
    to.counter("spool_relocated_total", "Messages that were relocated.", spool.relocated);
    to.counter("spool_failures_total", "Failed writes.", spool.failures);
    to.counter("spool_cache_hits_total", "Reads from the cache.", spool.cache_hits);
    to.counter("spool_cache_misses_total", "Reads beside the cache.", spool.cache_misses);
    to.counter("spool_shared_hits_total", "Contents found among the shared ones.", spool.shared_hits);
    to.counter("spool_shared_misses_total", "Contents not found among the shared ones.", spool.shared_misses);
    let memory = [("index", spool.index_bytes), ("cache", spool.cache_bytes), ("shared", spool.shared_bytes)];
    let memory = memory.map(|(part, bytes)| (label("part", part), bytes));
    to.family("gauge", "spool_memory_bytes", "Memory of the spool, by part.", memory);
}

fn filters(to: &mut Families, filters: &[FilterStatus]) {
    if filters.is_empty() {
        return;
    }
    type Number = fn(&FilterStatus) -> u64;
    let families: [(&str, &str, &str, Number); 5] = [
        ("gauge", "filter_idle_connections", "Connections that wait for the next message.", |one| one.idle),
        ("counter", "filter_connections_total", "Connections that were made.", |one| one.opened),
        ("counter", "filter_reuses_total", "Questions over a connection that was open before.", |one| one.reused),
        ("counter", "filter_stale_total", "Connections that the filter had closed.", |one| one.stale),
        ("counter", "filter_failures_total", "Questions that it did not answer.", |one| one.failed),
    ];
    for (kind, name, help, number) in families {
        to.family(kind, name, help, filters.iter().map(|one| (label("filter", &one.name), number(one))));
    }
}

fn screen_queue(to: &mut Families, queue: &ScreenQueueStatus) {
    to.gauge("screen_queue_messages", "Messages that wait for filters after their 250.", queue.messages);
    to.gauge("screen_queue_messages_max", "The most messages that wait for filters.", queue.messages_max);
    to.gauge("screen_queue_bytes", "Octets of messages that wait for filters.", queue.bytes);
    to.gauge("screen_queue_bytes_max", "The most octets of messages that wait for filters.", queue.bytes_max);
    let failing = queue.filters.iter().map(|one| (label("filters", &one.filters), u64::from(one.failing.is_some())));
    to.family("gauge", "screen_queue_failing", "1 while the filters of a list do not answer.", failing);
}

fn past(to: &mut Families, history: &HistoryStatus) {
    to.counter("history_entries_total", "Entries written to the history.", history.written);
    to.counter("history_dropped_total", "Entries that the history dropped.", history.dropped);
    to.gauge("history_bytes", "Octets of the history.", history.bytes);
    to.gauge("history_bytes_max", "The most octets of the history.", history.bytes_max);
    to.gauge("history_failing", "1 while the history cannot be written.", history.failing.is_some().into());
}

fn cluster(to: &mut Families, cluster: &ClusterAnswer) {
    let is_member = u64::from(cluster.state == "member");
    to.gauge("cluster_member", "1 while this node takes part in the cluster and sees a majority of it.", is_member);
    to.gauge("cluster_engine_failing", "1 while the engine is not in use.", cluster.engine_problem.is_some().into());
    to.gauge("cluster_nodes", "Other nodes that this one sees.", cluster.nodes.len().try_into().unwrap_or(u64::MAX));
    to.gauge("cluster_messages", "Messages of this node that the cluster knows.", cluster.messages);
    to.gauge("cluster_unreplicated_messages", "Of them without the copy that they should have.", cluster.unreplicated);
    to.gauge(
        "cluster_messages_with_fewer_copies",
        "Of them with one copy where two are asked for.",
        cluster.with_fewer_copies,
    );
    let waiting = cluster.waiting_for_stream + cluster.adopted_waiting;
    to.gauge("cluster_waiting_messages", "Messages that wait until it is known which node owns them.", waiting);
    to.counter("cluster_copied_bytes_total", "Octets of copies before they were compressed.", cluster.copied_bytes);
    to.counter("cluster_stored_bytes_total", "Octets of copies as holders stored them.", cluster.stored_bytes);
    to.counter("cluster_adopted_total", "Messages that this node took over from others.", cluster.adopted);
    to.counter("cluster_given_up_total", "Messages that other nodes took over from this one.", cluster.given_up);
    let hostages =
        cluster.hostages.iter().map(|one| (label("owner", &one.owner.to_string()), one.messages.unwrap_or(1)));
    to.family("gauge", "cluster_hostage_messages", "Messages of absent nodes that cannot be adopted now.", hostages);
    let lag = |one: &ClusterStream| (label("holder", &one.holder.to_string()), one.lag_ms.unwrap_or(0));
    let lags = cluster.streams.iter().map(lag);
    to.family(
        "gauge",
        "cluster_holder_lag_milliseconds",
        "Time since the holder last had all mail and outcomes.",
        lags,
    );
    if let Some(hosts) = &cluster.hosts {
        to.gauge(
            "cluster_hosts_reported",
            "Next hops that other nodes report as down or throttling.",
            hosts.reported_count,
        );
        to.gauge("cluster_hosts_waiting", "Next hops whose mail waits here because of such a report.", hosts.waiting);
        to.counter("cluster_host_reports_sent_total", "Reports on next hops that this node sent.", hosts.sent);
        to.counter("cluster_host_reports_received_total", "Reports that came from other nodes.", hosts.received);
        let lost = [(label("reason", "limit"), hosts.dropped), (label("reason", "unreadable"), hosts.unreadable)];
        to.family(
            "counter",
            "cluster_host_reports_dropped_total",
            "Messages about next hops that had no effect.",
            lost,
        );
    }
    if let Some(config) = &cluster.config {
        let number = |one: &Option<ClusterConfigRevision>| one.as_ref().map_or(0, |revision| revision.number);
        to.gauge(
            "cluster_config_revision",
            "Shared configuration in force at this node; 0: none.",
            number(&config.own),
        );
        to.gauge(
            "cluster_config_outdated",
            "1 while another revision of the shared configuration counts than the one in force at this node.",
            u64::from(!config.current),
        );
        let others =
            config.nodes.iter().filter(|node| node.running && number(&node.revision) != number(&config.active));
        let others = u64::try_from(others.count()).unwrap_or(u64::MAX);
        to.gauge("cluster_config_outdated_nodes", "Running nodes that have another revision in force.", others);
    }
}

fn webhooks(to: &mut Families, webhooks: &[WebhookStatus]) {
    if webhooks.is_empty() {
        return;
    }
    type WebhookNumber = fn(&WebhookStatus) -> u64;
    let families: [(&str, &str, &str, WebhookNumber); 4] = [
        ("counter", "webhook_sent_total", "Events that a webhook has taken.", |one| one.sent),
        ("counter", "webhook_dropped_total", "Events of a webhook that were dropped.", |one| one.dropped),
        ("gauge", "webhook_waiting", "Events that wait for a webhook.", |one| one.waiting),
        ("gauge", "webhook_failing", "1 while a webhook takes nothing.", |one| one.failing.is_some().into()),
    ];
    for (kind, name, help, number) in families {
        to.family(kind, name, help, webhooks.iter().map(|one| (label("webhook", &one.name), number(one))));
    }
}

fn web(to: &mut Families, http: &HttpCounts) {
    to.gauge("http_connections", "Connections of HTTP that are open.", http.open());
    let limits = HttpLimit::ALL.map(|limit| (label("limit", limit.name()), http.refused(limit)));
    to.family("counter", "http_refused_total", "Requests and connections that a limit refused.", limits);
    let classes = ["2xx", "3xx", "4xx", "5xx"].into_iter().zip(2..);
    let classes = classes.map(|(name, class)| (label("class", name), http.answered(class)));
    to.family("counter", "http_responses_total", "Responses by class.", classes);
    to.counter("http_unauthorized_total", "Requests without a valid token.", http.unauthorized());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::DeliveryCounts;
    use std::collections::HashMap;

    fn status() -> StatusAnswer {
        let mut status = StatusAnswer { version: "1.2.3".to_owned(), ..StatusAnswer::default() };
        status.deliveries = Some(DeliveryCounts::default());
        status.spool.pressure = "full".to_owned();
        status.queue.held = 7;
        status.webhooks.push(WebhookStatus { name: "ops".to_owned(), dropped: 2, ..WebhookStatus::default() });
        status.history = Some(HistoryStatus { dropped: 5, ..HistoryStatus::default() });
        status.filters.push(FilterStatus { name: "a\"b\\c".to_owned(), failed: 3, ..FilterStatus::default() });
        status
    }

    #[test]
    fn each_family_has_one_description_before_its_samples() {
        let text = exposition(&status(), |_| 1, &HttpCounts::default());
        let mut kinds: HashMap<&str, &str> = HashMap::new();
        let mut samples = std::collections::HashSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["#", "HELP", name, _, ..] => assert!(!kinds.contains_key(name), "{line}"),
                ["#", "TYPE", name, kind] => assert!(kinds.insert(name, kind).is_none(), "{line}"),
                [sample, value] => {
                    let name = sample.split('{').next().unwrap();
                    let is_described = kinds.contains_key(name)
                        || ["_bucket", "_sum", "_count"].iter().any(|end| {
                            name.strip_suffix(end).is_some_and(|name| kinds.get(name) == Some(&"histogram"))
                        });
                    assert!(is_described && samples.insert(sample), "{line}");
                    assert!(value.parse::<f64>().is_ok(), "{line}");
                }
                _ => panic!("{line}"),
            }
        }
        for (name, kind) in kinds {
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_status() {
        let http = HttpCounts::default();
        http.refuse(HttpLimit::BodyBytes);
        http.answer(401);
        http.answer(204);
        let text = exposition(&status(), |_| 0, &http);
        for line in [
            "build_info{version=\"1.2.3\"} 1",
            "queue_recipients{state=\"held\"} 7",
            "spool_pressure{state=\"full\"} 1",
            "spool_pressure{state=\"none\"} 0",
            "filter_failures_total{filter=\"a\\\"b\\\\c\"} 3",
            "http_refused_total{limit=\"http.body_bytes_max\"} 1",
            "http_responses_total{class=\"2xx\"} 1",
            "http_responses_total{class=\"4xx\"} 1",
            "http_unauthorized_total 1",
            "history_dropped_total 5",
            "history_failing 0",
            "webhook_dropped_total{webhook=\"ops\"} 2",
        ] {
            assert!(text.contains(&format!("\nmailrace_{line}\n")), "{line}");
        }
    }
}

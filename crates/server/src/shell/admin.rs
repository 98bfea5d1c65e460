//! Answers the requests of the control socket.
//!
//! The queue commands are in [`operator::queue`]. This file chooses what a peer may do and collects the numbers of
//! `hosts` and `mailers`; `status` collects those of `status`.

use super::explain::{ExplainedSender, deliver_test, read_address, route_json, trace_route};
use super::orders::{command_by, rule_event, text_of};
use super::server::{Server, lock};
use crate::config;
use crate::context::Context;
use crate::delivery_test::TestSetup;
use crate::listener_profile::ListenerProfile;
use crate::session::{Connection, Opening, process_listen};
use crate::stop::ConnectionCount;
use crate::transport::Transport;
use mail::{Address, Client, DomainName, ReversePath};
use observe::Event;
use observe::counters::Counter;
use operator::answers::{ConfigAnswer, Host, HostsAnswer, MailersAnswer, to_fields};
use operator::control::{self, Answer, ControlSocket, Gate, Handler, Reason, Request, Rights, RouteQuestion};
use operator::history::History;
use operator::queue;
use operator::requester::Requester;
use os::accounts::Accounts;
use os::{blocking, clock};
use serde_json::Value;
use smtp::server::{Dialect, Session, Settings};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// The longest wait for the name of the user on standard input; his number stands for it then.
const NAMING_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest wait for sources that the route of an address asks.
const EXPLAIN_TIME_MAX: Duration = Duration::from_secs(20);
/// The longest time of a trial of a delivery; the client waits for two minutes.
const DELIVER_TEST_TIME_MAX: Duration = Duration::from_secs(110);
/// Destinations that `status` names.
const FULLEST: usize = 5;
/// Recipients that a next hop has taken.
pub(super) const SENT: Counter = Counter::DeliveryRecipients(observe::counters::Outcome::Sent);

/// The handler of requests on the control socket.
pub(super) struct AdminHandler(pub(super) Arc<Server>);

impl Handler for AdminHandler {
    async fn handle(&self, request: Request, by: Requester, rights: Rights) -> Answer {
        let server = &self.0;
        match request {
            Request::Ping => Answer::done(),
            Request::Status => server.answer_status().await,
            // Its progress is told until the end.
            Request::ClusterLeave { is_forced } => server.answer_leave(is_forced, &by),
            _ if server.context.stop.has_begun() => {
                Answer::refused(Reason::Busy, "the server is going down; mailrace status says what it waits for")
            }
            Request::Reload => server.reload().await,
            Request::LogReopen => {
                server.context.log.reopen();
                Answer::done()
            }
            Request::Hosts => server.answer_hosts(),
            Request::ForgetHosts => {
                server.outbound.hosts.update(schedule::Hosts::forget_all);
                Answer::done()
            }
            Request::Mailers => server.answer_mailers(),
            Request::Statistics => server.answer_statistics().await,
            Request::Storms => Answer::Done(to_fields(&server.context.live_statistics.storms())),
            Request::Errors => Answer::Done(to_fields(&server.context.recent_errors.answer())),
            Request::Config => server.answer_config(),
            Request::ClusterDrain => server.answer_drain(),
            Request::ClusterAdopt(node) => server.answer_adopt(node, &by).await,
            Request::History(question) => server.answer_history(*question).await,
            Request::DeliverTest(to) => server.answer_deliver_test(&to).await,
            Request::Connections(pattern) => server.answer_connections(&pattern),
            Request::Abort(number) => server.answer_abort(number, &by),
            Request::Transcript(order) => server.answer_transcript(&order, &by),
            Request::Limits => server.answer_limits(),
            Request::Limit(order) => server.answer_limit(*order, by).await,
            Request::Explain(question) => server.answer_explain(&question).await,
            Request::Smtp => match by {
                Requester::User(uid) => server.process_session(uid),
                Requester::Token(_) => Answer::refused(Reason::Request, "an SMTP session needs the control socket"),
            },
            Request::Queue(command) => server.answer_queue(*command, by, rights),
        }
    }
}

impl Server {
    /// Answers requests of operators until the server has ended; while it stops, only `status`.
    pub(crate) fn answer_on(self: &Arc<Self>, socket: ControlSocket) {
        let server = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let context = Arc::clone(&server.context);
            let has_guests = context.live.load().config.control.mailq != config::Mailq::Operators;
            let gate = Gate::new(socket.gid()).with_guests(has_guests);
            // The socket is dropped last, so that an operator can ask about the progress of the stop.
            let stop = std::future::pending();
            if let Err(error) = control::serve(socket, gate, Arc::new(AdminHandler(server)), stop).await {
                context.record(&Event::InternalError { place: "control", text: &error.to_string() });
            }
        });
    }

    async fn answer_status(self: &Arc<Self>) -> Answer {
        let server = Arc::clone(self);
        // With many destinations it takes a while to find the fullest.
        let status = tokio::task::spawn_blocking(move || server.status(FULLEST)).await;
        status.map_or_else(
            |_| Answer::refused(Reason::Failed, "the answer broke off; the log says why"),
            |status| Answer::Done(to_fields(&status)),
        )
    }

    /// Has this node of a cluster give its mail to the others and end.
    fn answer_drain(&self) -> Answer {
        if self.context.message_store.cluster().is_none() {
            let text =
                "this server is no node of a cluster (cluster.id); stop it as any service, its mail stays in its spool";
            return Answer::refused(Reason::Failed, text);
        }
        self.drain_asked.notify_one();
        Answer::done()
    }

    /// Returns the configuration in force, with defaults and the places where values were set.
    fn answer_config(&self) -> Answer {
        let live = self.context.live.load();
        let Some(loaded) = &live.loaded else { return Answer::refused(Reason::Failed, "a sink has no configuration") };
        Answer::Done(to_fields(&ConfigAnswer { values: config::commands::values(loaded) }))
    }

    /// Returns the route of a recipient by the maps in force.
    async fn answer_explain(&self, question: &RouteQuestion) -> Answer {
        let live = self.context.live.load_full();
        let routing = self.context.routing.load_full();
        let (sender, recipient) = match read_question(question, &live.config) {
            Ok(read) => read,
            Err(error) => return Answer::refused(Reason::Request, error),
        };
        let asked = trace_route(&live.config, &routing, &sender, &recipient);
        let Ok(trace) = tokio::time::timeout(EXPLAIN_TIME_MAX, asked).await else {
            return Answer::refused(Reason::Failed, "a directory or database does not answer; the log says which");
        };
        match route_json(&live.config, &recipient, &sender, &trace, &[]) {
            Value::Object(fields) => Answer::Done(fields),
            other => Answer::refused(Reason::Failed, format!("the route is no object: {other}")),
        }
    }

    /// Tries a delivery without mail.
    async fn answer_deliver_test(&self, to: &str) -> Answer {
        let (live, routing) = (self.context.live.load_full(), self.context.routing.load_full());
        let resolver = self.context.resolver.load_full();
        let setup = TestSetup {
            config: &live.config,
            routing: &routing,
            resolver: &resolver,
            us: &live.local_identity,
            connector: &self.outbound.connector,
        };
        match tokio::time::timeout(DELIVER_TEST_TIME_MAX, Box::pin(deliver_test(setup, to))).await {
            Ok(Ok(fields)) => Answer::Done(fields),
            Ok(Err(error)) => Answer::refused(Reason::Request, error),
            Err(_) => Answer::refused(Reason::Failed, "the hosts took too long; try a single one"),
        }
    }

    /// Returns the state of the next hops.
    fn answer_hosts(&self) -> Answer {
        let now = self.context.unix_now();
        let hosts = self.outbound.hosts.with_table(|hosts| {
            let until = |at: Duration| at.saturating_sub(now).as_secs();
            let since = |at: Duration| now.saturating_sub(at).as_secs();
            let host = |view: schedule::HostView| Host {
                address: view.address.to_string(),
                seen: view.seen.as_secs(),
                ago: since(view.seen),
                failures: view.failures.into(),
                retry_in: view.retry_at.map(until),
                tls_worked_ago: view.tls_worked_at.map(since),
                tls_fails_for: view.tls_fails_since.map(since),
                in_clear_for: view.tls_broken_until.map(until),
            };
            hosts.views(now).map(host).collect()
        });
        Answer::Done(to_fields(&HostsAnswer { hosts }))
    }

    /// Messages and octets by mailer.
    fn answer_mailers(&self) -> Answer {
        let count = |counter| self.context.log.counter(counter);
        let now = clock::unix_us() / 1_000_000;
        let uptime = clock::now().saturating_duration_since(self.context.began).as_secs();
        Answer::Done(to_fields(&MailersAnswer {
            mailers: self.context.mailer_statistics.counts(),
            since: now.saturating_sub(uptime),
            connections: count(Counter::Connections),
            connections_to: 0,
            connections_refused: self.connections_refused(),
        }))
    }

    /// Returns windows and sums of the mail.
    async fn answer_statistics(&self) -> Answer {
        let context = Arc::clone(&self.context);
        // The windows of a month are some hundred kilobytes of text.
        let collect = move || {
            let mut answer = context.live_statistics.answer();
            answer.best = context.history.as_ref().map(History::best).unwrap_or_default();
            to_fields(&answer)
        };
        let answer = tokio::task::spawn_blocking(collect).await;
        answer.map_or_else(|_| Answer::refused(Reason::Failed, "the answer broke off; the log says why"), Answer::Done)
    }

    /// Looks at the queue or changes its mail, and logs the change.
    fn answer_queue(&self, mut command: queue::Command, by: Requester, rights: Rights) -> Answer {
        let Some(commands) = &self.queue else { return Answer::refused(Reason::Failed, "a sink has no queue") };
        if rights == Rights::Guest {
            let Requester::User(uid) = by else {
                return Answer::refused(Reason::Permission, "only a user of this machine is a guest");
            };
            return match self.context.live.load().config.control.mailq {
                config::Mailq::Operators => Answer::refused(Reason::Permission, "control.mailq lets you see nothing"),
                config::Mailq::Everyone => commands.answer_guest(command, uid),
                config::Mailq::Own => {
                    command.selection.handed_in_by = Some(uid);
                    commands.answer_guest(command, uid)
                }
            };
        }
        let context = Arc::clone(&self.context);
        let on_change = move |change: &queue::QueueChange<'_>| record_change(&context, change);
        commands.answer(command, by, Arc::new(on_change))
    }

    /// Returns a session for a process of this machine on the control socket.
    fn process_session(self: &Arc<Self>, uid: u32) -> Answer {
        let inbound = Arc::clone(&self.inbound);
        let config = inbound.context.live.load().config.clone();
        let listen = process_listen();
        let mut settings: Settings = config::smtp_settings(&config, &listen);
        settings.dialect = Dialect::Stdin;
        settings.limits.content_piece_bytes = crate::intake::PIECE_BYTES;
        settings.auth.mechanisms.clear();
        let lane = Arc::new(ListenerProfile {
            listen,
            settings: Arc::new(settings),
            tls: None,
            handshake_time: Duration::ZERO,
        });
        Answer::Takeover(Box::new(move |stream: UnixStream| {
            Box::pin(async move {
                let open = ConnectionCount::new(&inbound.context.stop);
                let session = Session::new(Arc::clone(&lane.settings), Client::Process { uid }, None);
                let naming = blocking::run(move || {
                    let found = Accounts::read().and_then(|accounts| accounts.with_nss(true).find_uid(uid));
                    found.ok().flatten().map(|login| login.name)
                });
                let named = tokio::time::timeout(NAMING_TIME_MAX, naming).await;
                let user = named.ok().and_then(Result::ok).flatten().unwrap_or_else(|| uid.to_string());
                let connection =
                    Connection::new(Arc::clone(&inbound), lane, session, Opening::process(&user), clock::now());
                connection.run(Transport::Local(stream)).await;
                drop(open);
            })
        }))
    }
}

/// Reads the addresses of a question.
///
/// # Errors
/// Names the field that is no address.
fn read_question(question: &RouteQuestion, config: &config::Config) -> Result<(ExplainedSender, Address), String> {
    let hostname = DomainName::new(&config.hostname).map_err(|error| format!("hostname: {error}"))?;
    let read = |name: &str, text: &str| read_address(text, &hostname).map_err(|error| format!("{name:?}: {error}"));
    let address = match question.from.as_str() {
        "<>" => ReversePath::Null,
        "" => ReversePath::Address(read("from", "root")?),
        text => ReversePath::Address(read("from", text)?),
    };
    let sender = ExplainedSender { address, client: question.client, name: None };
    Ok((sender, read("to", &question.to)?))
}

/// Logs a change that a command on the queue has made.
fn record_change(context: &Context, change: &queue::QueueChange<'_>) {
    let (what, rule, by) = match *change {
        queue::QueueChange::RuleSet { rule, by } => ("set", rule, by),
        queue::QueueChange::RuleEnded { rule, by } => ("ended", rule, by),
        _ => return context.record(&queue_event(change)),
    };
    context.record(&rule_event(what, Some(command_by(by)), &text_of(rule)));
}

/// Returns the log line of a command on the queue.
fn queue_event<'a>(change: &queue::QueueChange<'a>) -> Event<'a> {
    let number = |recipients| u64::try_from(recipients).unwrap_or(u64::MAX);
    let event = |id, what, messages, recipients, by: &'a Requester, copy, to| Event::QueueCommand {
        id,
        what,
        messages,
        recipients,
        by: command_by(by),
        copy,
        to,
    };
    match *change {
        queue::QueueChange::Removed { action, id, recipients, by, .. } => {
            event(Some(id), action.name(), 1, number(recipients), by, None, None)
        }
        queue::QueueChange::Resubmitted { action, id, copy, to, recipients, by } => {
            event(Some(id), action.name(), 1, number(recipients), by, Some(copy), to)
        }
        queue::QueueChange::ContentShown { id, recipients, by } => {
            event(Some(id), queue::Action::Content.name(), 1, number(recipients), by, None, None)
        }
        queue::QueueChange::RuleSet { by, .. } | queue::QueueChange::RuleEnded { by, .. } => {
            event(None, "rule", 0, 0, by, None, None)
        }
        queue::QueueChange::Ended { action, messages, recipients, is_unscreened, by } => {
            let what = if is_unscreened { "release_unscreened" } else { action.name() };
            event(None, what, messages, recipients, by, None, None)
        }
    }
}

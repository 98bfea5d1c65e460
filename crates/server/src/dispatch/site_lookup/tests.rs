//! Destinations whose DNS answers expire, change and fail while connections are open.

use super::super::task::Task;
use super::super::{ConnectTarget, Dispatch, Renewal};
use crate::active_config::ActiveConfig;
use crate::context::Context;
use crate::dns::testing::{Manner, Server, a, mx};
use crate::resolve::SiteHosts;
use mail::QueueId;
use schedule::{Class, ConnectionId, Health, Job, NextJob, Positions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

const HOUR: Duration = Duration::from_secs(3_600);

struct Trial {
    context: Arc<Context>,
    dispatch: Arc<Dispatch>,
    inbox: UnboundedReceiver<Task>,
}

fn text(server: &Server) -> String {
    format!("[dns]\nservers = ['{}']\nstale_max = '0s'\n[delivery]\naddress_family = 'ipv4'\n", server.address)
}

fn config(text: &str) -> crate::config::Config {
    crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config
}

impl Trial {
    fn new(server: &Server) -> Self {
        let (dispatch, _) = Dispatch::trial(config(&text(server)));
        let context = Arc::clone(&dispatch.context);
        let inbox = dispatch.inbox.lock().unwrap().take().unwrap();
        Self { context, dispatch, inbox }
    }

    fn add(&self, destination: &str, number: u64) {
        let message = QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap();
        let job = Job { message, recipients: Positions::One(0), probe: false };
        self.dispatch.with_scheduler(|scheduler, now| scheduler.add(destination.as_bytes(), job, Class::Normal, now));
    }

    /// Does what the scheduler wants until it wants a connection.
    async fn connects(&mut self) -> (ConnectTarget, ConnectionId) {
        self.dispatch.with_scheduler(|_, _| ());
        while let Ok(task) = self.inbox.try_recv() {
            match task {
                Task::Resolve { name } => drop(self.dispatch.look_up(&name).await),
                Task::Connect { way, connection, .. } => return (way, connection),
                _ => {}
            }
        }
        panic!("no connection opens")
    }

    fn uses(&self, server: &Server) {
        self.context.resolver.store(Arc::new(server.resolver(Duration::from_secs(20))));
    }

    fn health(&self, destination: &str) -> Health {
        self.dispatch.lock().scheduler.destination_view(destination.as_bytes()).unwrap().health
    }

    async fn addresses(&self, way: &ConnectTarget, connection: ConnectionId) -> Option<Vec<String>> {
        let site = self.dispatch.site_for(way, connection).await?;
        Some(site.addresses().iter().map(ToString::to_string).collect())
    }
}

/// Lets time pass; questions are asked in real time.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn the_hosts_of_an_attempt_are_asked_for_once() {
    let server = Server::start(vec![mx("d.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    let mut trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (way, connection) = trial.connects().await;
    assert_eq!(trial.addresses(&way, connection).await.unwrap(), ["192.0.2.1:25"]);
    assert_eq!(server.asked(), 2, "{:?}", server.take_questions());
    // Other connections go by the same answer, as long as it holds.
    trial.dispatch.abandon(connection);
    let (next, connection) = trial.connects().await;
    assert!(Arc::ptr_eq(way.answer.as_ref().unwrap(), next.answer.as_ref().unwrap()));
    pass(Duration::from_secs(200)).await;
    assert_eq!(trial.addresses(&next, connection).await.unwrap(), ["192.0.2.1:25"]);
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn an_answer_that_expired_is_asked_for_once_whoever_needs_it() {
    let server = Server::start(vec![mx("d.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    let mut trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (way, connection) = trial.connects().await;
    pass(HOUR).await;
    // The scheduler asks as well, since mail is due.
    let name = Arc::clone(&way.destination);
    let asked = trial.dispatch.look_up(&name);
    let (found, addresses) = tokio::join!(asked, trial.addresses(&way, connection));
    assert_eq!((addresses.unwrap(), server.asked()), (vec!["192.0.2.1:25".to_owned()], 4));
    let (site, other) = (found.unwrap(), trial.dispatch.look_up(&name).await.unwrap());
    assert!(!Arc::ptr_eq(&site, &other), "a look-up that has ended is not used again");
    assert_eq!(server.asked(), 4, "the cache of the DNS answers it");
    assert!(trial.dispatch.lock().lookups.is_empty());
}

#[tokio::test]
async fn the_scheduler_learns_of_other_hosts_before_mail_goes_there() {
    let server = Server::start(vec![mx("d.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    let mut trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (way, connection) = trial.connects().await;
    assert!(way.site.starts_with(b"m1.test:25"));
    let other = Server::start(vec![mx("d.test", 10, "m2.test"), a("m2.test", "192.0.2.2")]).await;
    trial.uses(&other);
    pass(HOUR).await;
    assert_eq!(trial.addresses(&way, connection).await, None, "it was opened for the old hosts");
    assert_eq!(trial.dispatch.take(connection), NextJob::Close);
    let (way, connection) = trial.connects().await;
    assert!(way.site.starts_with(b"m2.test:25"));
    assert_eq!(trial.addresses(&way, connection).await.unwrap(), ["192.0.2.2:25"]);
    assert_eq!(other.asked(), 2, "one answer moves the mail and opens the connection");
    trial.dispatch.reached(&way, connection);
    assert!(matches!(trial.dispatch.take(connection), NextJob::Job(_)));
    assert!(!matches!(trial.health("d.test"), Health::Down { .. }));
}

#[tokio::test]
async fn a_domain_that_moves_leaves_open_connections_to_the_others() {
    let records = vec![mx("d.test", 10, "m1.test"), mx("e.test", 10, "m1.test"), a("m1.test", "192.0.2.1")];
    let server = Server::start(records).await;
    let mut trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (old, connection) = trial.connects().await;
    trial.dispatch.reached(&old, connection);
    trial.add("e.test", 2);
    trial.add("d.test", 3);
    let records = vec![mx("d.test", 10, "m1.test"), mx("e.test", 10, "m2.test"), a("m2.test", "192.0.2.2")];
    let other = Server::start(records).await;
    trial.uses(&other);
    let (way, moved) = trial.connects().await;
    assert!(way.site.starts_with(b"m2.test:25") && old.site.starts_with(b"m1.test:25"));
    for (connection, number) in [(connection, 1), (connection, 3), (moved, 2)] {
        trial.dispatch.reached(&way, moved);
        let NextJob::Job(job) = trial.dispatch.take(connection) else { panic!("{number}") };
        assert_eq!(job.message.to_u64() - QueueId::MIN.to_u64(), number);
    }
}

#[tokio::test]
async fn a_refusal_by_the_dns_is_one_answer_too() {
    let server = Server::start(vec![a("x.test", "192.0.2.1")]).await;
    let mut trial = Trial::new(&server);
    trial.add("no.test", 1);
    let (way, connection) = trial.connects().await;
    let asked = server.asked();
    assert_eq!(&*way.site, b"!no.test");
    let site = trial.dispatch.site_for(&way, connection).await.unwrap();
    let SiteHosts::Refused(no) = &site.hosts else { panic!("{site:?}") };
    assert!(no.permanent && no.text.contains("host not found"), "{no}");
    assert_eq!(server.asked(), asked);
    // It exists by now.
    let other = Server::start(vec![mx("no.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    trial.uses(&other);
    pass(HOUR).await;
    assert_eq!(trial.addresses(&way, connection).await, None);
    let (way, connection) = trial.connects().await;
    assert_eq!(trial.addresses(&way, connection).await.unwrap(), ["192.0.2.1:25"]);
}

#[tokio::test]
async fn a_look_up_that_fails_ends_the_connection_and_mail_waits() {
    let server = Server::start(vec![mx("d.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    let mut trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (way, connection) = trial.connects().await;
    pass(HOUR).await;
    server.answer("d.test.", Manner::Broken);
    assert_eq!(trial.addresses(&way, connection).await, None);
    let Health::Down { why, .. } = trial.health("d.test") else { panic!("{:?}", trial.health("d.test")) };
    assert!(why.contains("host name lookup failure"), "{why}");
    let mut deferred = 0;
    while let Ok(task) = trial.inbox.try_recv() {
        match task {
            Task::DeferUnplaced { jobs, no } => {
                assert_eq!(no.text, *why);
                deferred += jobs.len();
            }
            Task::Connect { .. } => panic!("a connection without hosts"),
            _ => {}
        }
    }
    assert_eq!(deferred, 1);
}

#[tokio::test]
async fn an_answer_from_before_a_reload_is_not_used() {
    let server = Server::start(vec![mx("d.test", 10, "m1.test"), a("m1.test", "192.0.2.1")]).await;
    let trial = Trial::new(&server);
    trial.add("d.test", 1);
    let (old, name) = (config(&text(&server)), Arc::from(&b"d.test"[..]));
    let new = config(&format!("{}[route]\nsmart_host = '[192.0.2.9]:26'\n", text(&server)));
    let reload = async {
        let renewal = Renewal::between(&old, &new);
        trial.context.live.store(Arc::new(ActiveConfig::new(new.clone(), None)));
        trial.dispatch.configure(&new, trial.context.routing.load_full(), &renewal);
    };
    let (found, ()) = tokio::join!(trial.dispatch.look_up(&name), reload);
    let found = found.unwrap();
    assert_eq!(found.addresses(), ["192.0.2.9:26".parse().unwrap()], "{found:?}");
    assert!(server.asked() > 0, "the look-up had begun");
    let kept = trial.dispatch.lock().sites.get(&name).unwrap();
    assert!(Arc::ptr_eq(&kept, &found));
}

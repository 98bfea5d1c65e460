//! Lists in files, expanded by several sessions.

use super::cache::CHECKED_MAX;
use super::*;
use crate::lookup::Lookups;
use route::question::Answer;
use std::fmt::Write as _;
use std::path::PathBuf;

const SETTINGS: ExpansionSettings = ExpansionSettings { interval: Duration::from_secs(3_600), octets_max: 64 << 20 };

/// A directory with an alias `list`, whose members are in a file, and other aliases.
struct World {
    directory: tempfile::TempDir,
    routing: Arc<Routing>,
    expansions: Arc<Expansions>,
}

impl World {
    fn new(members: usize, aliases: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let expansions = Expansions::new();
        let world = Self { directory, routing: Arc::new(Routing::plain()), expansions };
        world.write(members, "");
        let aliases = format!("list: :include:{}\n{aliases}", world.path("members").display());
        std::fs::write(world.path("aliases"), aliases).unwrap();
        world.loaded()
    }

    /// Returns the same world with its maps read anew.
    fn loaded(mut self) -> Self {
        let aliases = self.path("aliases");
        let text =
            format!("hostname = 'mx.test'\n[local]\nmailbox = 'none'\n[maps]\naliases = ['{}']\n", aliases.display());
        let config = config::load(&text, None, &[], &config::Machine::default()).unwrap().config;
        let lookups = Arc::new(Lookups::new(&config));
        self.routing = Arc::new(crate::routing::load::load(&config, &lookups, None).unwrap().routing);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, members: usize, more: &str) {
        let mut text = String::new();
        (0..members).for_each(|number| writeln!(text, "user{number}@elsewhere.test").unwrap());
        std::fs::write(self.path("members"), text + more).unwrap();
    }

    fn wanted(recipient: &str, client: &str) -> ExpansionRequest {
        ExpansionRequest {
            client: ClientKey::Identity(client.into()),
            sender: ReversePath::Null,
            recipient: recipient.parse().unwrap(),
            ip: None,
            is_local_submission: false,
        }
    }

    /// Returns the number of members.
    async fn count(&self, recipient: &str) -> Result<usize, ExpandError> {
        self.count_with(recipient, &SETTINGS).await
    }

    async fn count_with(&self, recipient: &str, settings: &ExpansionSettings) -> Result<usize, ExpandError> {
        let wanted = Self::wanted(recipient, "client");
        Ok(match self.expansions.resolve(&self.routing, &wanted, settings).await? {
            Resolved::Long(Expanded::Members(members)) => members.len(),
            Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), .. }) => deliveries.len(),
            Resolved::Short(_) | Resolved::Long(_) => 0,
        })
    }

    /// So that nothing is expanded.
    async fn all_turns(&self) -> Vec<Turn<ClientKey>> {
        let mut held = Vec::new();
        for _ in 0..THREADS_MAX {
            let turn = self.expansions.turns.take(ClientKey::Internal);
            if let Ok(Ok(turn)) = tokio::time::timeout(Duration::from_millis(1), turn).await {
                held.push(turn);
            }
        }
        held
    }

    fn made(&self) -> u64 {
        self.expansions.counts().made
    }
}

#[tokio::test]
async fn a_list_is_expanded_once_for_each_version_of_its_file() {
    let world = World::new(2_000, "small: a@elsewhere.test, b@elsewhere.test\n");
    for _ in 0..20 {
        assert_eq!(world.count("list@mx.test").await, Ok(2_000));
    }
    assert_eq!((world.made(), world.expansions.counts().shared), (1, 19));
    world.write(2_000, "one-more@elsewhere.test\n");
    assert_eq!(world.count("list@mx.test").await, Ok(2_001), "the change counts for the next");
    assert_eq!(world.count("list@mx.test").await, Ok(2_001));
    assert_eq!(world.made(), 2);
    // A missing file is trouble, and the list is there again with its file.
    std::fs::remove_file(world.path("members")).unwrap();
    let gone = world.count("list@mx.test").await;
    assert!(matches!(&gone, Err(ExpandError::Trouble(why)) if why.contains("members")), "{gone:?}");
    world.write(3_000, "");
    assert_eq!(world.count("list@mx.test").await, Ok(3_000));
    // Little work is done at once, and leaves nothing behind.
    let made = world.made();
    assert_eq!(world.count("small@mx.test").await, Ok(2));
    let figures = world.expansions.counts();
    assert_eq!((figures.made, figures.kept), (made, 1));
    assert!(figures.kept_bytes > 3_000 * 60 && figures.kept_bytes < 3_000 * 500, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_name_a_list_at_once_share_one_expansion() {
    let world = Arc::new(World::new(5_000, ""));
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let wanted = World::wanted("list@mx.test", &format!("client {}", number % 7));
                match world.expansions.expand(&world.routing, &wanted, &SETTINGS).await {
                    Ok(Expanded::Members(members)) => members,
                    other => panic!("{other:?}"),
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap());
    }
    assert!(all.iter().all(|members| Arc::ptr_eq(members, &all[0])));
    assert_eq!(world.made(), 1);
    assert_eq!(world.expansions.counts().waiting, 0);
    assert!(world.expansions.lock().under_way.is_empty());
}

#[tokio::test]
async fn other_maps_have_nothing_of_an_expansion() {
    let world = World::new(1_000, "");
    assert_eq!(world.count("list@mx.test").await, Ok(1_000));
    std::fs::write(world.path("aliases"), format!("list: :include:{}, b@x.test\n", world.path("members").display()))
        .unwrap();
    let world = world.loaded();
    assert_eq!(world.count("list@mx.test").await, Ok(1_001));
    let figures = world.expansions.counts();
    assert_eq!((figures.made, figures.kept), (2, 1), "what was kept for the old maps is gone");
}

#[tokio::test]
async fn memory_is_bounded_and_the_same_members_are_kept_once() {
    let world = World::new(1_000, "twin: list\n");
    assert_eq!(world.count("list@mx.test").await, Ok(1_000));
    let one = world.expansions.counts().kept_bytes;
    // Another spelling and another name for it are expansions of their own, and share their members.
    for spelling in ["LIST@mx.test", "twin@mx.test", "list+detail@mx.test"] {
        assert_eq!(world.count(spelling).await, Ok(1_000));
    }
    let figures = world.expansions.counts();
    assert_eq!((figures.made, figures.kept), (4, 4));
    let lists =
        world.expansions.lock().kept.values().flatten().fold(std::collections::HashSet::new(), |mut set, kept| {
            if let Expanded::Members(members) = &kept.expanded {
                set.insert(Arc::as_ptr(members));
            }
            set
        });
    assert_eq!(lists.len(), 1);
    // Expansions that do not fit are dropped, the one used last stays; one larger than all room is used and not kept.
    let settings = ExpansionSettings { octets_max: one + one / 2, ..SETTINGS };
    world.write(1_000, "changed@elsewhere.test\n");
    assert_eq!(world.count_with("twin@mx.test", &settings).await, Ok(1_001));
    let figures = world.expansions.counts();
    assert!(figures.kept_bytes <= settings.octets_max, "{figures:?}");
    assert!(world.expansions.is_long(&"twin@mx.test".parse().unwrap()));
    let settings = ExpansionSettings { octets_max: 1_000, ..SETTINGS };
    for _ in 0..2 {
        world.write(1_000, "again@elsewhere.test\n");
        assert_eq!(world.count_with("list@mx.test", &settings).await, Ok(1_001));
        assert_eq!(world.expansions.counts().kept, 0);
    }
}

#[tokio::test]
async fn a_session_that_goes_away_leaves_nothing_that_waits() {
    let world = World::new(1_000, "");
    let held = world.all_turns().await;
    let waits = tokio::time::timeout(Duration::from_millis(50), world.count("list@mx.test"));
    assert!(waits.await.is_err());
    assert_eq!((world.made(), world.expansions.counts().waiting), (0, 0));
    drop(held);
    assert_eq!(world.count("list@mx.test").await, Ok(1_000));
}

#[tokio::test]
async fn a_client_with_too_much_that_waits_is_told_to_come_again() {
    let world = Arc::new(World::new(1_000, ""));
    let held = world.all_turns().await;
    let ask = |number: usize, client: &str| {
        let (world, wanted) = (Arc::clone(&world), World::wanted(&format!("list+{number}@mx.test"), client));
        tokio::spawn(async move { world.expansions.expand(&world.routing, &wanted, &SETTINGS).await })
    };
    let greedy: Vec<_> = (0..LIMITS.waiting_per_client).map(|number| ask(number, "greedy")).collect();
    while world.expansions.counts().waiting < greedy.len() as u64 {
        tokio::task::yield_now().await;
    }
    let refused = ask(1_000, "greedy").await.unwrap().unwrap_err();
    assert_eq!(refused, ExpandError::Busy(NoTurnError::ClientHasTooMany));
    assert_eq!(world.expansions.counts().refused, 1);
    // Other clients have room, and every client may wait for a list that another waits for.
    let (other, same) = (ask(7, "other"), ask(7, "greedy"));
    drop(held);
    assert!(other.await.unwrap().is_ok() && same.await.unwrap().is_ok());
    for one in greedy {
        assert!(one.await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_plan_that_cannot_be_merged_now_is_as_it_was() {
    let world = World::new(1_000, "twin: list, more@elsewhere.test\n");
    let mut plan = Plan::default();
    for list in ["list@mx.test", "twin@mx.test"] {
        let wanted = World::wanted(list, "client");
        let Ok(Expanded::Members(members)) = world.expansions.expand(&world.routing, &wanted, &SETTINGS).await else {
            panic!("a long list");
        };
        plan.add_members(&mail::Recipient::new(wanted.recipient), members).unwrap();
    }
    let held = world.all_turns().await;
    let client = || ClientKey::Identity("client".into());
    let waits: Vec<_> = (0..LIMITS.waiting_per_client)
        .map(|_| {
            let (expansions, client) = (Arc::clone(&world.expansions), client());
            tokio::spawn(async move { expansions.turns.take(client).await.map(drop) })
        })
        .collect();
    while world.expansions.counts().waiting < LIMITS.waiting_per_client as u64 {
        tokio::task::yield_now().await;
    }
    let refused = world.expansions.merge(client(), &mut plan).await;
    assert_eq!(refused, Err(ExpandError::Busy(NoTurnError::ClientHasTooMany)));
    assert_eq!((plan.recipients_max(), plan.is_lost(), plan.is_nothing()), (2_001, false, false));
    waits.iter().for_each(tokio::task::JoinHandle::abort);
    drop(held);
    world.expansions.merge(client(), &mut plan).await.unwrap();
    assert_eq!((plan.recipients_max(), plan.is_lost(), plan.len()), (1_001, false, 1));
}

/// Of many answers those beyond the first are asked again when the interval is over; the kept expansion counts
/// meanwhile.
#[tokio::test]
async fn answers_beyond_the_first_are_checked_by_the_interval() {
    let world = World::new(1_000, "");
    let wanted = World::wanted("list@mx.test", "client");
    let mut answers = Answers::new();
    for number in 0..40 {
        answers.insert(Question::User { name: format!("nobody-{number}-here").into() }, Answer::Nothing);
    }
    let kept = |answers: &Answers, at| {
        let expanded = Expanded::Discarded;
        Arc::new(CacheEntry::new(&wanted, &world.routing, SenderClass::default(), expanded, answers.clone(), at))
    };
    let settings = ExpansionSettings { interval: Duration::from_secs(60), ..SETTINGS };
    let now = clock::now();
    let good = kept(&answers, now);
    assert_eq!((good.often.len(), good.seldom.len()), (CHECKED_MAX, 40 - CHECKED_MAX));
    assert!(good.is_current(&world.routing, &settings).await);
    // All of these users had an account when it was made.
    let mut wrong = Answers::new();
    for (question, _) in answers.clone().into_all() {
        wrong.insert(question, Answer::User { home: "/".into() });
    }
    let mut changed = Arc::into_inner(kept(&wrong, now)).unwrap();
    changed.often.clear();
    let changed = Arc::new(changed);
    assert!(changed.is_current(&world.routing, &settings).await, "it is not asked again yet");
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
    *changed.seldom_at.lock().unwrap() = ago(61);
    assert!(changed.is_current(&world.routing, &settings).await, "it counts while somebody asks");
    while !changed.is_stale.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    assert!(!changed.is_current(&world.routing, &settings).await);
    let old = kept(&answers, ago(200));
    assert!(old.is_current(&world.routing, &settings).await && old.age() < Duration::from_secs(60), "asked at once");
}

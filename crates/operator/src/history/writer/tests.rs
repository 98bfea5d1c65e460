//! The history as a whole: what is recorded is found, bounds hold, and a file that cannot be used costs no mail.

use super::*;
use mail::{AttemptPhase, EnhancedCode, Node, Outcome, PhaseTimes, Protocol, QueueId};
use observe::stats::Counts;
use observe::{NextHop, Relay, Stat};
use std::sync::mpsc::Receiver;
use tempfile::TempDir;

/// Far longer than the writer takes, on a machine that is busy with something else too.
const SOON: Duration = Duration::from_secs(120);

struct HistoryTrial {
    place: TempDir,
    history: History,
    earlier: EarlierRuns,
    notes: Receiver<String>,
}

fn begin(place: TempDir, size_max: u64) -> HistoryTrial {
    let settings =
        HistorySettings { path: place.path().join("history.sqlite"), days: 7, messages_max: 1_000_000, size_max };
    let (tell, notes) = mpsc::channel();
    let (history, earlier) = History::start(settings, move |text| drop(tell.send(text.to_owned()))).unwrap();
    HistoryTrial { place, history, earlier, notes }
}

fn trial() -> HistoryTrial {
    begin(tempfile::tempdir().unwrap(), 1 << 30)
}

/// The id of a message that came so many seconds ago.
fn id(seconds_ago: u64) -> QueueId {
    QueueId::new(clock::unix_us() - seconds_ago * 1_000_000, Node::default()).unwrap()
}

impl HistoryTrial {
    fn accept(&self, id: QueueId, from: &str, nrcpts: usize) {
        self.history.record(&Event::Accepted {
            id,
            from,
            size: 1_000,
            class: 0,
            nrcpts,
            msgid: Some("<m1@client.test>"),
            bodytype: None,
            mt_priority: None,
            protocol: Protocol::Smtp,
            daemon: "MTA",
            identity: None,
            relay: Relay::Host { name: Some("client.test"), address: [192, 0, 2, 7].into(), may_be_forged: false },
        });
    }

    fn deliver(&self, id: QueueId, to: &[&str], stat: Stat<'_>) {
        let mut phases = PhaseTimes::default();
        phases.add(AttemptPhase::Connect, Duration::from_micros(812));
        phases.add(AttemptPhase::Content, Duration::from_millis(1_400));
        self.history.record(&Event::Delivery {
            id,
            to,
            controller: None,
            delay: Duration::from_secs(3),
            xdelay: Duration::from_millis(1_500),
            phases,
            mailer: "esmtp",
            priority: 0,
            relay: NextHop::Host { name: Some("mx.slow.test"), address: [192, 0, 2, 1].into() },
            dsn: EnhancedCode::of(Outcome::Transient, 4, 2),
            reply: None,
            stat,
            reason: None,
        });
    }

    /// Waits until all that was recorded is written. A search waits for it too, but not for long.
    fn settle(&self) {
        let (tell, told) = mpsc::sync_channel(1);
        self.history.send(WriterOrder::Flush(tell));
        told.recv_timeout(SOON).unwrap();
    }

    fn search(&self, text: &str) -> HistoryAnswer {
        self.settle();
        let expression = crate::history::HistoryExpression::parse(text, clock::unix_us(), 0).unwrap();
        let question = SearchQuestion { expression, limit: 100, ..SearchQuestion::default() };
        self.history.search(&question, SearchLimits::default()).unwrap()
    }

    fn ids(&self, text: &str) -> Vec<String> {
        self.search(text).messages.into_iter().map(|message| message.id).collect()
    }

    fn show(&self, id: QueueId) -> crate::answers::HistoryMessage {
        self.settle();
        let question = SearchQuestion { id: Some(id), limit: 1, ..SearchQuestion::default() };
        self.history.search(&question, SearchLimits::default()).unwrap().messages.remove(0)
    }

    /// Ends it, and begins another with the same file.
    fn restart(self) -> Self {
        self.settle();
        self.history.close();
        begin(self.place, self.history.settings.size_max)
    }
}

#[test]
fn a_message_is_found_with_every_attempt_also_after_a_restart() {
    let trial = trial();
    let (old, young) = (id(50), id(10));
    trial.accept(old, "<list@lists.test>", 2);
    trial.deliver(old, &["<ann@slow.test>", "<bob@slow.test>"], Stat::Deferred("451 4.7.1 greylisted"));
    trial.deliver(old, &["<ann@slow.test>"], Stat::Sent("ok"));
    trial.accept(young, "<>", 1);
    assert_eq!(trial.ids(""), [young.to_string(), old.to_string()], "the youngest first");
    assert_eq!(trial.ids("to:ann@slow.test status:waiting"), [old.to_string()]);
    trial.deliver(old, &["<bob@slow.test>"], Stat::Failed("550 5.1.1 no such user"));
    let trial = trial.restart();
    assert_eq!(trial.ids("status:failed reply~\"no such\" host:mx.slow.test"), [old.to_string()]);
    assert_eq!(trial.ids("to:carl@slow.test"), [""; 0], "the control");
    let shown = trial.show(old);
    assert_eq!((shown.sent, shown.failed, shown.recipients, shown.size), (1, 1, 2, 1_000));
    assert_eq!(shown.client, "client.test [192.0.2.7]");
    let steps: Vec<(&str, usize, &str)> =
        shown.steps.iter().map(|step| (step.kind.as_str(), step.to.len(), step.reply.as_str())).collect();
    assert_eq!(
        steps,
        [("deferred", 2, "451 4.7.1 greylisted"), ("sent", 1, "ok"), ("failed", 1, "550 5.1.1 no such user")]
    );
    assert_eq!(shown.steps[0].took_ms, Some(1_500));
    let phases: Vec<(&str, u64)> = shown.steps[0].phases.iter().map(|one| (one.phase.as_str(), one.us)).collect();
    assert_eq!(phases, [("connect", 812), ("content", 1_400_000)]);
    let errors: Vec<&str> = trial.earlier.errors.iter().map(|error| error.text.as_str()).collect();
    assert_eq!(errors, ["550 5.1.1 no such user", "451 4.7.1 greylisted"]);
    assert_eq!(trial.show(young).from.as_deref(), Some(""));
}

#[test]
fn pages_follow_each_other_and_a_search_ends_in_time() {
    let trial = trial();
    let all: Vec<QueueId> = (0..700).map(|number| id(1_000 + number)).collect();
    all.iter().for_each(|id| trial.accept(*id, "<a@b.test>", 1));
    trial.settle();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let question = SearchQuestion { after, limit: 300, ..SearchQuestion::default() };
        let page = trial.history.search(&question, SearchLimits::default()).unwrap();
        found.extend(page.messages.into_iter().map(|message| message.id));
        match page.next {
            Some(next) => after = Some(next.parse().unwrap()),
            None => break,
        }
    }
    assert_eq!(found, all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let question = SearchQuestion {
        expression: crate::history::HistoryExpression::parse("nothing", 0, 0).unwrap(),
        limit: 9,
        ..SearchQuestion::default()
    };
    let limits = SearchLimits { time_max: Duration::ZERO };
    let cut = trial.history.search(&question, limits).unwrap();
    assert!(cut.cut && cut.messages.is_empty());
    assert_eq!(cut.next, Some(all[255].to_string()));
}

#[test]
fn states_follow_from_the_ends_of_recipients() {
    let trial = trial();
    let ids: Vec<QueueId> = (0..5).map(|number| id(100 + number)).collect();
    ids.iter().for_each(|id| trial.accept(*id, "<a@b.test>", 1));
    trial.history.record(&Event::Discarded { id: ids[0] });
    let held =
        Event::Queued { id: ids[1], to: &["<x@y.test>"], mailer: "esmtp", priority: 0, quarantine: Some("spam") };
    trial.history.record(&held);
    let by = observe::CommandBy::User(0);
    let command =
        |id, what| Event::QueueCommand { id: Some(id), what, messages: 1, recipients: 1, by, copy: None, to: None };
    trial.history.record(&command(ids[2], "delete"));
    trial.deliver(ids[3], &["<x@y.test>"], Stat::Sent("ok"));
    // A step that says nothing about the end changes no state.
    trial.search("");
    trial.history.record(&command(ids[3], "forward"));
    let states: Vec<String> = ids.iter().map(|id| trial.show(*id).status).collect();
    assert_eq!(states, ["discarded", "held", "deleted", "sent", "waiting"]);
    assert_eq!(trial.show(ids[2]).steps[0].reply, "delete by user 0");
}

#[test]
fn recipients_that_go_on_elsewhere_or_end_without_an_attempt_are_counted_once() {
    let trial = trial();
    let ids: Vec<QueueId> = (0..4).map(|number| id(100 + number)).collect();
    let [bounced, released, kept_over, changed] = ids[..] else { unreachable!() };
    ids.iter().for_each(|id| trial.accept(*id, "<a@b.test>", 2));
    let by = observe::CommandBy::User(0);
    let command =
        |id, what, copy| Event::QueueCommand { id: Some(id), what, messages: 1, recipients: 1, by, copy, to: None };
    let both = ["<x@y.test>", "<z@y.test>"];
    let hold = |id| Event::Queued { id, to: &both, mailer: "esmtp", priority: 0, quarantine: Some("spam") };

    // A bounce has the line of the attempt, and that of the command.
    trial.deliver(bounced, &["<x@y.test>"], Stat::Failed("given up"));
    trial.history.record(&command(bounced, "bounce", None));
    // A release from quarantine is a copy, once for each recipient.
    trial.history.record(&hold(released));
    let copies = [id(50), id(49)];
    copies.iter().for_each(|copy| trial.history.record(&command(released, "release", Some(*copy))));
    // The end of the time in quarantine.
    trial.history.record(&hold(kept_over));
    trial.history.record(&Event::Screened {
        id: kept_over,
        verdict: observe::ScreenVerdict::Discard,
        by: "a_rule",
        place: "quarantine.keep",
        to: "<x@y.test>,<z@y.test>",
        action: "deleted",
    });
    // Filters have changed it after its 250.
    let by = id(48);
    trial.history.record(&Event::Cloned { first: changed, id: by, owner: "a@b.test" });
    trial.history.record_replaced(changed, by, 2);
    trial.deliver(by, &both, Stat::Sent("ok"));

    let shown: Vec<_> = ids.iter().map(|id| trial.show(*id)).collect();
    let states: Vec<(&str, u64)> = shown.iter().map(|one| (one.status.as_str(), one.failed)).collect();
    assert_eq!(states, [("waiting", 1), ("moved", 0), ("deleted", 0), ("moved", 0)]);
    assert_eq!(shown[2].steps[1].to, ["x@y.test", "z@y.test"]);
    for (made, recipients, status) in [(copies[0], 1, "waiting"), (by, 2, "sent")] {
        let made = trial.show(made);
        assert_eq!(
            (made.from.as_deref(), made.size, made.recipients, made.status.as_str()),
            (Some("a@b.test"), 1_000, recipients, status),
            "it has the facts of the message that it was made of"
        );
    }
}

#[test]
fn a_time_beyond_every_queue_id_bounds_a_search() {
    let trial = trial();
    let some = id(10);
    trial.accept(some, "<a@b.test>", 1);
    for text in ["before:9999-01-01", "after:1971-01-01"] {
        assert_eq!(trial.ids(text), [some.to_string()], "{text}");
    }
    for text in ["after:9999-01-01", "before:1971-01-01"] {
        assert_eq!(trial.ids(text), [""; 0], "{text}");
    }
}

#[test]
fn results_of_messages_that_came_before_are_kept() {
    let trial = trial();
    let before = id(100);
    trial.deliver(before, &["<x@y.test>"], Stat::Sent("ok"));
    let shown = trial.show(before);
    assert_eq!((shown.from, shown.status.as_str(), shown.steps.len()), (None, "sent", 1));
}

#[test]
fn windows_and_the_best_are_there_after_a_restart() {
    let trial = trial();
    let now = i64::try_from(clock::unix_us() / 1_000_000).unwrap();
    let window =
        |step, sent| HistoryWindow { step, begin: now, counts: Counts { sent, arrivals: 1, ..Counts::default() } };
    trial.history.record_windows(vec![window(1, 5), window(60, 50)]);
    trial.history.record_windows(vec![window(1, 3), window(60, 60)]);
    let trial = trial.restart();
    assert_eq!(trial.earlier.windows, [window(1, 3), window(60, 60)], "the last writing counts");
    let best: Vec<(i64, u64)> = trial.history.best().iter().map(|best| (best.seconds, best.sent)).collect();
    assert_eq!(best, [(1, 5), (60, 60)]);
}

#[test]
fn a_damaged_file_is_put_aside_and_the_history_goes_on() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("history.sqlite"), "no database ".repeat(1_000)).unwrap();
    let trial = begin(place, 1 << 30);
    let note = trial.notes.try_recv().unwrap();
    assert!(note.contains("it is damaged") && note.contains("history.sqlite.bad-"), "{note}");
    let some = id(1);
    trial.accept(some, "<a@b.test>", 1);
    assert_eq!(trial.ids(""), [some.to_string()]);

    // Damage in the middle of the file, found while it is in use.
    (0..2_000).for_each(|number| trial.accept(id(10 + number), "<a@b.test>", 1));
    trial.search("");
    let trial = trial.restart();
    // The writer looks at the bounds behind the first flush, and not again for some time: the search is what finds it.
    trial.settle();
    trial.settle();
    let path = trial.history.settings.path.clone();
    let length = std::fs::metadata(&path).unwrap().len();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_096..].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    assert!(length > 100_000);
    let searched =
        trial.history.search(&SearchQuestion { limit: 100, ..SearchQuestion::default() }, SearchLimits::default());
    assert!(searched.as_ref().is_err_and(|error| error.contains("it is damaged")), "{searched:?}");
    trial.accept(some, "<a@b.test>", 1);
    assert_eq!(trial.ids(""), [some.to_string()], "a new file");
    assert!(trial.notes.try_recv().unwrap().contains("put aside"));
}

#[test]
fn a_file_that_cannot_be_had_drops_entries_and_tells_once() {
    let place = tempfile::tempdir().unwrap();
    // A directory in place of the file.
    std::fs::create_dir(place.path().join("history.sqlite")).unwrap();
    let trial = begin(place, 1 << 30);
    for number in 0..3 {
        trial.accept(id(number + 1), "<a@b.test>", 1);
        trial.settle();
    }
    let status = trial.history.status();
    assert_eq!((status.dropped, status.written), (3, 0));
    assert!(status.failing.is_some());
    assert!(trial.notes.try_recv().unwrap().contains("its entries are dropped"));
    assert!(trial.notes.try_recv().is_err(), "once");
}

#[test]
fn old_messages_and_those_beyond_the_size_go() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("history.sqlite");
    let mut connection = storage::open(&path).unwrap();
    let (now, mut steps) = (clock::unix_us(), 0);
    let day = 86_400_000_000;
    let entries = |from: u64, count: u64| -> Vec<HistoryEntry> {
        let step = |number| {
            let id = QueueId::new(from + number, Node::default()).unwrap();
            let event = Event::Discarded { id };
            HistoryEntry::of_event(&event, from + number).unwrap()
        };
        (0..count).map(step).collect()
    };
    tables::write(&mut connection, &entries(now - 9 * day, 3_000), &mut steps).unwrap();
    tables::write(&mut connection, &entries(now - 3 * day, 3_000), &mut steps).unwrap();
    let mut bounds = TableBounds { oldest_us: now - 7 * day, messages_max: 1_000_000, size_max: 1 << 30, civil_now: 0 };
    let count = |connection: &Connection, table: &str| {
        storage::number(connection, &format!("SELECT count(*) FROM {table}")).unwrap()
    };
    while tables::prune(&mut connection, &bounds).unwrap() {}
    assert_eq!((count(&connection, "message"), count(&connection, "step")), (3_000, 3_000));
    // A message that is written again is the same message.
    tables::write(&mut connection, &entries(now - 3 * day, 10), &mut steps).unwrap();
    assert_eq!(storage::number(&connection, "SELECT messages FROM total").unwrap(), 3_000);
    bounds.messages_max = 2_500;
    while tables::prune(&mut connection, &bounds).unwrap() {}
    assert_eq!((count(&connection, "message"), count(&connection, "step")), (2_500, 2_500));
    // The size of some pages.
    bounds.size_max = 100_000;
    while tables::prune(&mut connection, &bounds).unwrap() {}
    assert!(tables::bytes_used(&connection).unwrap() <= 100_000);
    assert_eq!(count(&connection, "message"), count(&connection, "step"));
}

#[test]
fn the_size_holds_while_searches_and_entries_come_all_the_time() {
    let trial = begin(tempfile::tempdir().unwrap(), 200_000);
    (0..20_000).for_each(|number| trial.history.record(&Event::Discarded { id: id(100_000 - number) }));
    let is_small = || (1..=200_000).contains(&trial.history.status().bytes);
    // Each flush is an order to the writer, without a pause in between.
    for _ in 0..50 {
        trial.settle();
        if is_small() {
            break;
        }
    }
    assert!(is_small(), "{:?}", trial.history.status());
}

#[test]
fn damage_that_two_searches_find_puts_one_file_aside() {
    let trial = trial();
    let some = id(1);
    trial.history.send(WriterOrder::PutAside("it is damaged".to_owned(), 0));
    trial.accept(some, "<a@b.test>", 1);
    trial.settle();
    trial.history.send(WriterOrder::PutAside("it is damaged".to_owned(), 0));
    assert_eq!(trial.ids(""), [some.to_string()], "the new file stays");
    let names = std::fs::read_dir(trial.place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let ends_in_number = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(|end: char| end.is_ascii_digit());
    let aside: Vec<_> = names.filter(ends_in_number).collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
}

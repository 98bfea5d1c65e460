//! Tests of the ready queue: shares in single situations, and that no order of calls loses a recipient.

use proptest::prelude::*;

use super::*;
use crate::part::NoticeState;

const START: Duration = Duration::from_secs(1_800_000_000);

fn id(number: u64) -> QueueId {
    QueueId::new(1_700_000_000_000_000 + number, mail::Node::default()).unwrap()
}

fn part(destination: u64, recipients: std::ops::Range<u32>, class: Class) -> Part {
    Part {
        class,
        destination: DestinationId(destination),
        recipients: recipients.collect(),
        notice: NoticeState::FRESH,
        fresh: destination.is_multiple_of(2),
    }
}

/// Enqueues `parts` parts of `size` recipients.
fn list(queue: &mut ReadyQueue, message: u64, class: Class, parts: u32, size: u32) {
    for number in 0..parts {
        queue.push(id(message), part(0, number * size..(number + 1) * size, class), START);
    }
}

fn turns(queue: &mut ReadyQueue, most: usize, count: usize) -> Vec<(QueueId, usize)> {
    let takes = std::iter::from_fn(|| queue.next_transaction(most, START)).take(count);
    takes.map(|taken| (taken.message, taken.first.recipients.len())).collect()
}

#[test]
fn a_message_with_one_recipient_waits_for_one_transaction_of_lists_whatever_lists_there_are() {
    let mut queue = ReadyQueue::default();
    for number in 0..50 {
        list(&mut queue, number, Class::Normal, 20, 100);
    }
    for number in 100..300 {
        // In the middle of the lists, whatever their deficits are.
        turns(&mut queue, 100, 3);
        queue.push(id(number), part(0, 0..1, Class::Normal), START);
        let next = turns(&mut queue, 100, 2);
        assert!(next.iter().any(|(message, _)| *message == id(number)), "{number}: {next:?}");
    }
}

#[test]
fn lists_share_by_recipients_and_small_messages_do_not_keep_them_out() {
    let mut queue = ReadyQueue::default();
    // One list takes a hundred recipients at a time, the other ten.
    list(&mut queue, 1, Class::Normal, 400, 100);
    list(&mut queue, 2, Class::Normal, 400, 10);
    for number in 10..2_000 {
        queue.push(id(number), part(0, 0..1, Class::Normal), START);
    }
    let mut recipients = [0; 3];
    for (message, count) in turns(&mut queue, 1_000, 100) {
        let of = if message == id(1) { 1 } else { usize::from(message == id(2)) * 2 };
        recipients[of] += count;
    }
    assert_eq!(recipients[0], 80, "four of five turns are theirs");
    assert!(recipients[1] >= 300, "{recipients:?}");
}

#[test]
fn classes_share_by_weight_and_a_late_one_has_saved_nothing() {
    let mut queue = ReadyQueue::default();
    list(&mut queue, 1, Class::Bulk, 4_000, 100);
    turns(&mut queue, 100, 500);
    list(&mut queue, 2, Class::Normal, 1_000, 100);
    list(&mut queue, 3, Class::Urgent, 1_000, 100);
    let mut count = [0_u32; 3];
    for (message, _) in turns(&mut queue, 100, 210) {
        let class = [3, 2, 1].iter().position(|number| id(*number) == message).unwrap();
        count[class] += 1;
    }
    assert!((155..=165).contains(&count[0]) && (38..=42).contains(&count[1]), "{count:?}");
    assert!((9..=12).contains(&count[2]), "{count:?}");
    // A class alone gets everything.
    queue.drain();
    list(&mut queue, 4, Class::Bulk, 5, 1);
    assert_eq!(turns(&mut queue, 1, 10).len(), 5);
}

#[test]
fn parts_of_one_message_join_and_a_large_one_is_cut() {
    let mut queue = ReadyQueue::default();
    for destination in 0..30 {
        queue.push(id(1), part(destination, 0..3, Class::Normal), START);
    }
    queue.push(id(2), part(7, 0..250, Class::Normal), START);
    let first = queue.next_transaction(50, START).unwrap();
    assert_eq!((first.message, first.others.len(), first.split), (id(1), 15, None));
    let mut sizes = Vec::new();
    while let Some(taken) = queue.next_transaction(100, START) {
        let whole: usize = std::iter::once(&taken.first).chain(&taken.others).map(|part| part.recipients.len()).sum();
        sizes.push((taken.message == id(2), whole, taken.split.map(|(whole, rest)| (whole.len(), rest.len()))));
    }
    sizes.sort_unstable();
    let cuts = [Some((250, 150)), Some((150, 50)), None];
    assert_eq!(sizes, [(false, 42, None), (true, 50, cuts[2]), (true, 100, cuts[1]), (true, 100, cuts[0])]);
}

#[derive(Clone, Debug)]
enum Op {
    Push { message: u64, destination: u64, size: u32, class: u8 },
    Take { most: usize },
    GiveBack,
    TakeOut { message: u64, destination: u64 },
    PutBack,
    Drain,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u64..12, 0_u64..4, 1_u32..40, 0_u8..3)
            .prop_map(|(message, destination, size, class)| Op::Push { message, destination, size, class }),
        6 => (1_usize..60).prop_map(|most| Op::Take { most }),
        2 => Just(Op::GiveBack),
        2 => (0_u64..12, 0_u64..4).prop_map(|(message, destination)| Op::TakeOut { message, destination }),
        2 => Just(Op::PutBack),
        1 => Just(Op::Drain),
    ]
}

proptest! {
    /// Each part that goes in comes out once, and no transaction exceeds its limit.
    #[test]
    fn nothing_is_lost_and_nothing_is_twice(ops in prop::collection::vec(op(), 1..300)) {
        let mut queue = ReadyQueue::default();
        let mut inside: Vec<(QueueId, DestinationId, u32)> = Vec::new();
        let (mut next, mut back) = (0, Vec::new());
        let mut away: Vec<(QueueId, Part, Option<QueuePosition>)> = Vec::new();
        let out = |inside: &mut Vec<_>, message: QueueId, part: &Part| {
            for recipient in part.recipients.iter() {
                let at = inside.iter().position(|one| *one == (message, part.destination, recipient));
                inside.swap_remove(at.expect("it was put in and not taken"));
            }
        };
        for op in ops {
            match op {
                Op::Push { message, destination, size, class } => {
                    let part = part(destination, next..next + size, Class::from_bits(class));
                    next += size;
                    inside.extend(part.recipients.iter().map(|one| (id(message), part.destination, one)));
                    queue.push(id(message), part, START);
                }
                Op::Take { most } => {
                    let taken = queue.next_transaction(most, START);
                    prop_assert_eq!(taken.is_some(), !inside.is_empty());
                    let Some(taken) = taken else { continue };
                    let mut count = 0;
                    for part in std::iter::once(&taken.first).chain(&taken.others) {
                        out(&mut inside, taken.message, part);
                        count += part.recipients.len();
                    }
                    prop_assert!(count <= most);
                    back.push((taken.message, taken.first));
                }
                Op::GiveBack => {
                    let Some((message, part)) = back.pop() else { continue };
                    inside.extend(part.recipients.iter().map(|one| (message, part.destination, one)));
                    queue.push_front(message, part, START);
                }
                Op::PutBack => {
                    let Some((message, part, position)) = away.pop() else { continue };
                    inside.extend(part.recipients.iter().map(|one| (message, part.destination, one)));
                    queue.put_back(message, part, position, START);
                }
                Op::TakeOut { message, destination } => {
                    for (part, position) in queue.take_out(id(message), DestinationId(destination), |_| true) {
                        prop_assert_eq!(part.destination, DestinationId(destination));
                        out(&mut inside, id(message), &part);
                        away.push((id(message), part, position));
                    }
                    let of = (id(message), DestinationId(destination));
                    prop_assert!(!inside.iter().any(|one| (one.0, one.1) == of));
                }
                Op::Drain => {
                    for (message, part) in queue.drain() {
                        out(&mut inside, message, &part);
                    }
                    prop_assert!(inside.is_empty());
                }
            }
            prop_assert_eq!(queue.is_empty(), inside.is_empty());
            prop_assert_eq!(queue.oldest().is_some(), !inside.is_empty());
            prop_assert_eq!(queue.first_destination().is_some(), !inside.is_empty());
            prop_assert!(queue.scanned() <= queue.len());
            prop_assert_eq!(queue.recipients, inside.len());
            prop_assert!(queue.classes.iter().all(|queue| queue.small.len() <= 2 * queue.messages + 64));
            prop_assert!(queue.classes.iter().all(|queue| queue.small.iter().map(|(number, _)| number).is_sorted()));
        }
        while let Some(taken) = queue.next_transaction(7, START) {
            for part in std::iter::once(&taken.first).chain(&taken.others) {
                out(&mut inside, taken.message, part);
            }
        }
        prop_assert!(inside.is_empty() && queue.is_empty() && queue.scanned() == 0 && queue.messages.is_empty());
    }
}

#[test]
fn a_suspect_that_is_put_back_keeps_its_position() {
    let mut queue = ReadyQueue::default();
    let lost: Positions = Positions::One(0);
    for number in 0..3 {
        queue.suspects.mark(id(number), &lost, false, false);
    }
    for number in 0..3 {
        queue.push(id(number), part(0, 0..1, Class::Normal), START);
    }
    list(&mut queue, 9, Class::Normal, 3, 1);
    for number in [0, 2] {
        let (part, position) = queue.take_out(id(number), DestinationId(0), |_| true).remove(0);
        queue.put_back(id(number), part, position, START);
    }
    let order: Vec<_> = turns(&mut queue, 1, 100).into_iter().map(|(message, _)| message).collect();
    assert_eq!(order, [9, 9, 9, 0, 1, 2].map(id));
}

/// Taking out the parts of each of a thousand destinations does not cost the other parts each time.
#[test]
#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn parts_of_a_list_at_many_destinations_are_taken_out_as_fast_as_messages() {
    const COUNT: u64 = 4_000;
    let round = |message: &dyn Fn(u64) -> QueueId| {
        let mut queue = ReadyQueue::default();
        for number in 0..COUNT {
            queue.push(message(number), part(number, 0..1, Class::Normal), START);
        }
        let start = std::time::Instant::now();
        for number in (0..COUNT).rev() {
            assert_eq!(queue.take_out(message(number), DestinationId(number), |_| true).len(), 1);
        }
        assert!(queue.is_empty());
        start.elapsed()
    };
    // The least of many rounds, because of other load on the machine; in turns, because that comes and goes.
    let rounds: Vec<[Duration; 2]> = (0..20).map(|_| [round(&id), round(&|_| id(0))]).collect();
    let [messages, list] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).min().unwrap());
    assert!(list < 10 * messages, "{messages:?} for {COUNT} messages, {list:?} for as many parts of one");
}

#[test]
fn a_part_that_is_put_back_keeps_its_position() {
    let order =
        |queue: &mut ReadyQueue| turns(queue, 1_000, 100).into_iter().map(|(message, _)| message).collect::<Vec<_>>();
    let fill = |queue: &mut ReadyQueue| {
        for number in 0..6 {
            queue.push(id(number), part(0, 0..if number < 4 { 1 } else { 50 }, Class::Normal), START);
        }
    };
    let mut queue = ReadyQueue::default();
    fill(&mut queue);
    let wanted = order(&mut queue);
    assert_eq!(wanted.len(), 6);
    for (away, back) in [([1, 2, 3], [2, 1, 3]), ([0, 1, 4], [1, 4, 0]), ([5, 4, 0], [4, 5, 0])] {
        let mut queue = ReadyQueue::default();
        fill(&mut queue);
        let mut out: Vec<_> =
            away.iter().map(|one| (*one, queue.take_out(id(*one), DestinationId(0), |_| true).remove(0))).collect();
        assert_eq!(queue.len(), 3);
        for number in back {
            let (_, (part, position)) = out.remove(out.iter().position(|(one, _)| *one == number).unwrap());
            queue.put_back(id(number), part, position, START);
        }
        assert_eq!(order(&mut queue), wanted, "{back:?} after {away:?}");
    }
}

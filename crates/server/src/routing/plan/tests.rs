//! Tests that a plan which shares long lists makes the same messages as one that copies every member at once.

use super::*;
use mail::{Client, Protocol, Received, ReversePath};
use proptest::prelude::*;
use route::Refusal;

/// Model of a plan that does not share lists: every recipient goes into its message when it is accepted.
#[derive(Default)]
struct Model {
    messages: Vec<(MessageProperties, Vec<Recipient>, Vec<Vec<u8>>)>,
    known: HashSet<(Box<str>, Vec<u8>)>,
    acknowledge: Option<Acknowledge>,
    has_unruled: bool,
}

impl Model {
    /// Returns whether there was room.
    fn add(&mut self, recipient: &Recipient, deliveries: &[Delivery], failed: &[Failed], most: usize) -> bool {
        let is_alone = deliveries.iter().filter(|one| !one.is_copy).count() + failed.len() == 1;
        let mut parts = Vec::new();
        for one in deliveries {
            let kind = MessageProperties::of(one);
            let params =
                params(&recipient.params, is_alone, one.is_copy.then_some(one.copy_dsn), kind.sender.is_some());
            parts.push((kind, one.address.clone(), params, one.destination.clone(), one.acknowledge));
        }
        for one in failed {
            let kind = MessageProperties { sender: one.sender.clone(), ..MessageProperties::default() };
            let params = params(&recipient.params, is_alone, one.copy, kind.sender.is_some());
            let to = To::Error { status: one.refusal.status, text: one.refusal.text.as_str().into() };
            parts.push((kind, one.address.clone(), params, Destination::new(to), None));
        }
        let mut kinds: Vec<&MessageProperties> = self.messages.iter().map(|(kind, ..)| kind).collect();
        for (kind, ..) in &parts {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.len() > MESSAGES_MAX {
            return false;
        }
        for (kind, address, params, destination, acknowledge) in parts {
            self.acknowledge = self.acknowledge.into_iter().chain(acknowledge).min();
            self.has_unruled |= acknowledge.is_none();
            let name = destination.to_bytes();
            if !self.known.insert((destination.who(&address), name.clone())) {
                continue;
            }
            let fits = |(of, recipients, _): &(MessageProperties, Vec<Recipient>, Vec<_>)| {
                *of == kind && recipients.len() < most
            };
            let at = self.messages.iter().rposition(fits).unwrap_or_else(|| {
                self.messages.push((kind, Vec::new(), Vec::new()));
                self.messages.len() - 1
            });
            self.messages[at].1.push(Recipient { address, params });
            self.messages[at].2.push(name);
        }
        true
    }
}

fn sender() -> impl Strategy<Value = Option<ReversePath>> {
    prop_oneof![4 => Just(None), 3 => (0..22_u8).prop_map(|n| format!("<owner{n}@our.test>").parse().ok())]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    let to = prop_oneof![
        3 => Just(To::Domain("a.test".into())),
        2 => Just(To::Local),
        1 => Just(To::Domain("b.test".into())),
        1 => Just(To::Program { user: "".into(), command: "/bin/cat".into() }),
    ];
    let flags = (any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.8));
    (0..40_u8, to, sender(), flags, prop::option::of(Just(Acknowledge::Race))).prop_map(
        |(user, to, sender, (upper, is_held, queue_only, is_no_copy), acknowledge)| {
            let domain = if upper { "A.test" } else { "a.test" };
            Delivery {
                address: format!("user{user}@{domain}").parse().unwrap(),
                destination: Destination::new(to),
                sender,
                controller: None,
                hold: is_held.then(|| HoldReason::new("a rule", "held")),
                queue_only,
                acknowledge,
                is_copy: !is_no_copy,
                copy_dsn: CopyDsn::Never,
                via: None,
            }
        },
    )
}

fn failed() -> impl Strategy<Value = Failed> {
    (0..10_u8, sender()).prop_map(|(user, sender)| Failed {
        address: format!("bad{user}@a.test").parse().unwrap(),
        refusal: Refusal::new(550, "5.1.1".parse().unwrap(), "User unknown"),
        sender,
        copy: None,
    })
}

/// A recipient: its parameters, its deliveries, and whether they are shared.
#[derive(Clone, Debug)]
struct Step {
    notify: Option<Notify>,
    deliveries: Vec<Delivery>,
    failed: Vec<Failed>,
    is_long: bool,
    /// It is the list before it once more.
    is_again: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let list = (prop::collection::vec(delivery(), 1..12), prop::collection::vec(failed(), 0..3));
    (list, any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |((deliveries, failed), is_never, is_long, is_again)| Step {
            notify: is_never.then_some(Notify::NEVER),
            deliveries,
            failed,
            is_long,
            is_again,
        },
    )
}

fn envelope() -> Envelope {
    Envelope {
        id: QueueId::MIN,
        sender: "<s@x.test>".parse().unwrap(),
        params: mail::MailParams::default(),
        received: Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: Vec::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn shared_lists_become_the_same_messages(
        steps in prop::collection::vec(step(), 0..12),
        most in 2..9_usize,
        is_report in prop::bool::weighted(0.2),
    ) {
        let mut plan = Plan { recipients_max: most, is_report, ..Plan::default() };
        let mut model = Model::default();
        let mut before: Option<(Step, Arc<Members>)> = None;
        for step in steps {
            let recipient = Recipient {
                address: "list@our.test".parse().unwrap(),
                params: RecipientParams { notify: step.notify, orcpt: None },
            };
            let (step, members) = match &before {
                Some((list, members)) if step.is_again => (Step { is_long: true, ..list.clone() }, Arc::clone(members)),
                _ => {
                    let members = Arc::new(Members::new(step.deliveries.clone(), step.failed.clone()));
                    (step, members)
                }
            };
            before = Some((step.clone(), Arc::clone(&members)));
            // RFC 5321 §4.5.5: a report has the null sender
            let (mut deliveries, mut failed) = (step.deliveries.clone(), step.failed.clone());
            if is_report {
                deliveries.iter_mut().for_each(|one| one.sender = None);
                failed.iter_mut().for_each(|one| one.sender = None);
            }
            let fits = model.add(&recipient, &deliveries, &failed, most);
            let add = |plan: &mut Plan| match step.is_long {
                true => plan.add_members(&recipient, Arc::clone(&members)),
                false => plan.add(&recipient, step.deliveries.clone(), step.failed.clone()),
            };
            let mut added = add(&mut plan);
            if added == Err(NotAdded::Unmerged) {
                plan.merge();
                added = add(&mut plan);
            }
            prop_assert_eq!(added, if fits { Ok(()) } else { Err(NotAdded::TooMany) });
            prop_assert!(plan.len() >= model.messages.len(), "room for all content");
            prop_assert_eq!(plan.is_nothing(), model.messages.is_empty());
        }
        prop_assert_eq!((plan.acknowledge, plan.has_unruled), (model.acknowledge, model.has_unruled));
        model.messages.sort_by_key(|(kind, ..)| *kind != MessageProperties::default());
        let made = plan.into_messages(&envelope(), |_| QueueId::MIN);
        let made: Vec<_> = made.into_iter().map(|(envelope, names, kind)| (kind, envelope.recipients, names)).collect();
        prop_assert_eq!(made, model.messages);
    }
}

/// A list that is alone is not merged to be judged, and a list that was named before costs nothing.
#[test]
fn a_list_that_comes_again_is_one() {
    let one = |n: usize| Delivery {
        address: format!("user{n}@a.test").parse().unwrap(),
        destination: Destination::new(To::Domain("a.test".into())),
        sender: None,
        controller: None,
        hold: None,
        queue_only: false,
        acknowledge: None,
        is_copy: false,
        copy_dsn: CopyDsn::Never,
        via: None,
    };
    let members = Arc::new(Members::new((0..120_000).map(one).collect(), Vec::new()));
    let recipient = Recipient::new("list@our.test".parse().unwrap());
    let mut plan = Plan::default();
    for _ in 0..1_000 {
        plan.add_members(&recipient, Arc::clone(&members)).unwrap();
    }
    assert_eq!((plan.len(), plan.recipients_max(), plan.later.len()), (3, 120_000, 1));
    let sizes: Vec<usize> =
        plan.into_messages(&envelope(), |_| QueueId::MIN).iter().map(|(made, ..)| made.recipients.len()).collect();
    assert_eq!(sizes, [50_000, 50_000, 20_000]);
}

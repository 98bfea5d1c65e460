//! Dialogs as data, and clients that say anything in pieces of any size.

use super::*;
use crate::plan::{Change, Share};
use proptest::prelude::*;
use std::fmt::Write as _;

/// The octets that a client saw of a connection, and the records for the ledger.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    octets: Vec<u8>,
    taken: Vec<Taken>,
    then: Option<Then>,
}

fn world(character: Character) -> World {
    let plan = Plan { shares: vec![(character, Share::percent(100))], ..Plan::new(1) };
    World::new(plan).unwrap()
}

fn millis(milli: u64) -> Duration {
    Duration::from_millis(milli)
}

/// Takes what leaves up to a time, each flight at its own.
fn collect(world: &mut World, mailhost: &mut Mailhost, until: Duration, seen: &mut Seen) {
    while seen.octets.len() < 4 << 20
        && let Some(due) = mailhost.wake().filter(|due| *due <= until && seen.then.is_none())
    {
        let Some(flight) = world.leave(mailhost, due) else { continue };
        seen.octets.extend(flight.octets);
        seen.taken.extend(flight.taken);
        seen.then = (flight.then != Then::Stay).then_some(flight.then);
    }
}

/// Plays a client that says these pieces at these times, and listens for a day.
fn play(world: &mut World, pieces: &[(u64, &[u8])]) -> Seen {
    let mut seen = Seen::default();
    let mut mailhost = world.connect(0, Duration::ZERO).unwrap();
    for (milli, piece) in pieces {
        collect(world, &mut mailhost, millis(*milli), &mut seen);
        world.input(&mut mailhost, piece, millis(*milli));
    }
    collect(world, &mut mailhost, Duration::from_secs(86_400), &mut seen);
    seen.taken.extend(world.disconnect(mailhost, Duration::from_secs(86_400)));
    assert_eq!(world.counts().open, 0);
    seen
}

/// First words of the replies to a client that says this at once.
fn codes(character: Character, input: &str) -> String {
    let seen = play(&mut world(character), &[(0, input.as_bytes())]);
    let text = String::from_utf8(seen.octets).unwrap();
    let lines = text.split_terminator("\r\n").filter(|line| line.as_bytes().get(3) == Some(&b' '));
    let mut said: String = lines.map(|line| format!("{} ", &line[..3])).collect();
    for taken in &seen.taken {
        let all: Vec<String> = taken.recipients.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect();
        let how = if taken.how == How::Silent { "silent " } else { "" };
        write!(said, "[{how}{}] ", all.join(" ")).unwrap();
    }
    match seen.then {
        Some(then) => write!(said, "{then:?}").unwrap(),
        None => said.push_str("open"),
    }
    said
}

#[track_caller]
fn check(character: Character, input: &str, expected: &str) {
    assert_eq!(codes(character, input), expected, "{character}: {input:?}");
}

const WHOLE: &str = "EHLO c\r\nMAIL FROM:<> SIZE=1\r\nRCPT TO:<a@x>\r\nDATA\r\nhi\r\n.\r\nQUIT\r\n";

#[test]
fn characters() {
    use Character::*;
    let table = [
        (Live, "220 250 250 250 354 250 221 [a@x] Close"),
        (Plain, "220 250 250 250 354 250 221 [a@x] Close"),
        (Slow, "220 250 250 250 354 250 221 [a@x] Close"),
        (Throttle, "220 250 250 250 354 250 221 [a@x] Close"),
        (BrokenTls, "220 250 250 250 354 250 221 [a@x] Close"),
        (Dead, "Reset"),
        (Drop, "open"),
        (Hung, "open"),
        (HungHello, "220 open"),
        (HungMail, "220 250 open"),
        (HungData, "220 250 250 250 354 open"),
        (Greylist, "220 250 250 450 554 502 502 221 Close"),
        (Busy, "220 250 451 503 503 502 502 221 Close"),
        (Cut, "220 250 250 250 354 Close"),
        (CutTaken, "220 250 250 250 354 [silent a@x] Close"),
    ];
    for (character, expected) in table {
        check(character, WHOLE, expected);
    }
}

#[test]
fn magic_recipients() {
    let table = [
        ("4xx", "450 250 354 250 [b@x] open"),
        ("550-5.1.1+1", "550 250 354 250 [b@x] open"),
        ("421", "421 Close"),
        ("greylist", "450 250 354 250 [b@x] open"),
        ("slow", "250 250 354 250 [slow@x b@x] open"),
        ("hang", "open"),
        ("drop", "Close"),
        ("dot-451", "250 250 354 451 open"),
        ("hang-dot", "250 250 354 open"),
        ("drop-dot", "250 250 354 Close"),
        ("drop-taken", "250 250 354 [silent drop-taken@x b@x] Close"),
    ];
    for (word, expected) in table {
        let input = format!("HELO c\r\nMAIL FROM:<c@x>\r\nRCPT TO:<{word}@x>\r\nRCPT TO:<b@x>\r\nDATA\r\n.\r\n");
        check(Character::Live, &input, &format!("220 250 250 {expected}"));
    }
    check(
        Character::Greylist,
        "HELO c\r\nMAIL FROM:<c@x>\r\nRCPT TO:<ok@x>\r\nRCPT TO:<b@x>\r\nDATA\r\n.\r\n",
        "220 250 250 250 450 354 250 [ok@x] open",
    );
}

#[test]
fn commands_out_of_order_and_wrong_ones() {
    check(Character::Live, "DATA\r\nRCPT TO:<a@x>\r\nMAIL FROM:x\r\nwhat\r\n\r\n", "220 503 503 501 502 502 open");
    check(Character::Live, "MAIL FROM:<a@x>\r\nDATA\r\nRCPT TO:<>\r\nRCPT FOR:<a@x>\r\n", "220 250 554 501 501 open");
    check(
        Character::Live,
        "mail from: <a@x>\nrcpt to:<\"q>\"@x> NOTIFY=NEVER\ndata\r\n.\r\n",
        "220 250 250 354 250 [\"q>\"@x] open",
    );
    check(
        Character::Live,
        "MAIL FROM:<a@x>\r\nRCPT TO:<a@x>\r\nRSET\r\nDATA\r\nNOOP\r\nSTARTTLS\r\n",
        "220 250 250 250 503 250 502 open",
    );
    check(Character::Live, &format!("{}\r\nNOOP\r\n", "x".repeat(LINE_MAX + 1)), "220 500 250 open");
}

#[test]
fn chunks() {
    let begin = "MAIL FROM:<>\r\nRCPT TO:<a@x>\r\n";
    check(
        Character::Live,
        &format!("{begin}BDAT 3\r\na\r\nBDAT 2 last\r\nb\nNOOP\r\n"),
        "220 250 250 250 250 250 [a@x] open",
    );
    check(Character::Live, &format!("{begin}BDAT 0 LAST\r\n"), "220 250 250 250 [a@x] open");
    check(Character::Live, "BDAT 7 LAST\r\nQUIT\r\n.BDAT\r\nBDAT 5 FIRST\r\n", "220 503 501 501 open");
    check(Character::Plain, &format!("{begin}BDAT 0 LAST\r\n"), "220 250 250 502 open");
    let seen = play(
        &mut world(Character::Live),
        &[(0, format!("{begin}BDAT 20 LAST\r\nMessage-ID: <i>\r\n\r\nx").as_bytes())],
    );
    assert_eq!((seen.taken[0].octets, &*seen.taken[0].token), (20, &b"<i>"[..]));
}

#[test]
fn a_rejecting_host_knows_the_same_recipients_every_time() {
    let mut input = "MAIL FROM:<>\r\n".to_owned();
    (0..200).for_each(|number| write!(input, "RCPT TO:<u{number}@x>\r\n").unwrap());
    let said = codes(Character::Reject, &input);
    assert_eq!(said, codes(Character::Reject, &input));
    assert!((60..140).contains(&said.matches("550").count()), "{said}");
}

#[test]
fn a_throttling_host_bears_two_connections_and_a_message_a_second() {
    let mut world = world(Character::Throttle);
    let mut open: Vec<Mailhost> = (0..3).map(|_| world.connect(0, Duration::ZERO).unwrap()).collect();
    let say = |world: &mut World, mailhost: &mut Mailhost, input: &str, milli| {
        world.input(mailhost, input.as_bytes(), millis(milli));
        let mut seen = Seen::default();
        collect(world, mailhost, millis(milli), &mut seen);
        String::from_utf8(seen.octets).unwrap()
    };
    assert!(say(&mut world, &mut open[2], "", 0).starts_with("421 4.7.0 too many connections"));
    assert!(say(&mut world, &mut open[0], "MAIL FROM:<>\r\n", 10).ends_with("250 2.1.0 sender taken\r\n"));
    assert!(
        say(&mut world, &mut open[1], "MAIL FROM:<>\r\n", 20)
            .ends_with("421 4.7.0 too many messages, try again later\r\n")
    );
    assert!(say(&mut world, &mut open[0], "MAIL FROM:<>\r\n", 1_010).starts_with("250"));
    assert_eq!(world.counts().refused.get(&421), Some(&2));
    for mailhost in open {
        assert_eq!(world.disconnect(mailhost, millis(0)), []);
    }
    assert_eq!((world.hosts()[0].open, world.hosts()[0].open_max, world.counts().open_max), (0, 3, 3));
}

#[test]
fn greylisting_ends() {
    let mut world = world(Character::Greylist);
    let rcpt = b"MAIL FROM:<>\r\nRCPT TO:<a@x>\r\n".as_slice();
    for (milli, expected) in [(1, "450"), (59_999, "450"), (60_001, "250")] {
        let seen = play(&mut world, &[(milli, rcpt)]);
        let text = String::from_utf8(seen.octets).unwrap();
        assert!(text.lines().last().unwrap().starts_with(expected), "{milli} {text}");
    }
}

#[test]
fn each_flight_leaves_a_delay_after_what_it_answers() {
    let mut world = World::new(Plan { delay: millis(20), ..Plan::new(1) }).unwrap();
    let mut mailhost = world.connect(0, millis(5)).unwrap();
    assert_eq!((mailhost.wake(), world.leave(&mut mailhost, millis(24))), (Some(millis(25)), None));
    assert!(world.leave(&mut mailhost, millis(25)).unwrap().octets.starts_with(b"220 "));
    world.input(&mut mailhost, b"MAIL FROM:<>\r\nRCPT TO:<slow@x>\r\n", millis(30));
    world.input(&mut mailhost, b"RCPT TO:<a@x>\r\n", millis(40));
    let mut left = Vec::new();
    while let Some(due) = mailhost.wake() {
        let flight = world.leave(&mut mailhost, due).unwrap();
        left.push((due, String::from_utf8(flight.octets).unwrap()));
    }
    let said = |milli, text: &str| (millis(milli), format!("250 2.1.{text} taken\r\n"));
    assert_eq!(left, [said(50, "0 sender"), said(5_030, "5 recipient"), said(5_030, "5 recipient")]);
}

#[test]
fn what_was_not_answered_when_the_client_left_is_silent() {
    let mut world = World::new(Plan { delay: millis(20), ..Plan::new(1) }).unwrap();
    let mut mailhost = world.connect(0, millis(0)).unwrap();
    world.input(&mut mailhost, WHOLE.as_bytes(), millis(0));
    let taken = world.disconnect(mailhost, millis(7));
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].how, taken[0].at, world.hosts()[0].messages), (How::Silent, millis(7), 0));
}

#[test]
fn a_host_that_dies_resets_and_one_that_falls_silent_says_nothing() {
    for (character, expected) in [(Character::Dead, Some(Then::Reset)), (Character::Drop, None)] {
        let change = Change { from: millis(10), to: millis(20), character, share: Share::percent(100) };
        let plan = Plan { changes: vec![change], delay: millis(5), ..Plan::new(1) };
        let mut world = World::new(plan).unwrap();
        // The answer to this is on its way when it happens.
        let seen = play(&mut world, &[(7, WHOLE.as_bytes()), (25, b"NOOP\r\n")]);
        assert_eq!(
            (seen.then, seen.taken.len(), seen.octets.len()),
            (expected, 1, "220 mx0.sim.example ESMTP mailrace sim\r\n".len())
        );
        assert_eq!(seen.taken[0].how, How::Silent);
    }
}

#[test]
fn hostile_hosts() {
    let said = |kind, input: &str| play(&mut world(Character::Hostile(kind)), &[(0, input.as_bytes())]);
    let endless = said(Hostility::Endless, "EHLO c\r\n");
    assert!(endless.octets.len() >= 4 << 20 && endless.octets.ends_with(b"250-more\r\n"));
    let long = said(Hostility::LongLine, "EHLO c\r\nQUIT\r\n").octets;
    assert!(long.split(|octet| *octet == b'\n').any(|line| line.len() > 1 << 20 && line.starts_with(b"250-xxx")));
    let flood = said(Hostility::Flood, "EHLO c\r\n").octets;
    assert_eq!(flood.iter().filter(|octet| **octet == b'\n').count(), 100_002);
    let early = said(Hostility::Early, WHOLE);
    assert!(early.octets.starts_with(b"220 hello\r\n250 mx\r\n") && early.taken.is_empty());
    let cut = said(Hostility::TlsCut, "EHLO c\r\nSTARTTLS\r\n\x16\x03\x01");
    assert!(
        cut.octets.ends_with(hostile::not_tls(Character::Hostile(Hostility::TlsCut))) && cut.then == Some(Then::Close)
    );
    assert!(said(Hostility::Garbage, "").octets.starts_with(b"\0"));
    let wordy = said(
        Hostility::Wordy,
        "EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<a@x>\r\nRSET\r\nMAIL FROM:<>\r\nRCPT TO:<a@x>\r\nRCPT TO:<b@x>\r\n",
    );
    let lines: Vec<&[u8]> =
        wordy.octets.split_inclusive(|octet| *octet == b'\n').filter(|line| line.len() == 2_000).collect();
    let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin.as_bytes())).count();
    assert_eq!(
        ["451-4.3.0 ", "451 4.3.0 ", "550-5.1.1 <", "550 5.1.1 <a@x> ", "550 5.1.1 <b@x> "].map(count),
        [198, 1, 396, 1, 1]
    );
    let mut world = world(Character::Hostile(Hostility::Trickle));
    let mut mailhost = world.connect(0, Duration::ZERO).unwrap();
    let mut seen = Seen::default();
    collect(&mut world, &mut mailhost, Duration::from_secs(9), &mut seen);
    assert_eq!(seen.octets, b"220-wait f");
}

/// Something a client may say.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "EHLO c\r\n",
        "HELO c\r\n",
        "MAIL FROM:<a@x> BODY=8BITMIME\r\n",
        "MAIL FROM:<>\r\n",
        "RCPT TO:<a@x>\r\n",
        "RCPT TO:<b@x>\n",
        "RCPT TO:<4xx@x>\r\n",
        "RCPT TO:<slow@x>\r\n",
        "RCPT TO:<dot-550@x>\r\n",
        "DATA\r\n",
        "DATA\r\nMessage-ID: <m>\r\n\r\ntext\r\n..\r\n.\r\n",
        "text\r\n.\r\n",
        ".\r\n",
        "\r\n.\r\n",
        "BDAT 5\r\nabcde",
        "BDAT 0 LAST\r\n",
        "BDAT 4 LAST\r\n\r\n.\r",
        "RSET\r\n",
        "NOOP\r\n",
        "STARTTLS\r\n",
        "QUIT\r\n",
        "\n",
    ]);
    prop_oneof![
        20 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (4000_usize..4200).prop_map(|count| vec![b'x'; count]),
    ]
}

fn any_character() -> impl Strategy<Value = Character> {
    prop::sample::select(Character::all().collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn input_cut_in_any_way_gets_the_same_answers(
        character in any_character(),
        words in prop::collection::vec(words(), 0..30),
        cuts in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let input = words.concat();
        let mut pieces = Vec::new();
        let mut rest = input.as_slice();
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push((0, piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let whole = play(&mut world(character), &[(0, &input)]);
        // Not prop_assert_eq, which would print megabytes.
        prop_assert!(whole == play(&mut world(character), &pieces));
    }

    #[test]
    fn the_ledger_has_exactly_what_was_acknowledged(
        words in prop::collection::vec(words(), 0..60),
        gone in 0_u64..400,
    ) {
        let mut world = World::new(Plan { delay: millis(20), ..Plan::new(1) }).unwrap();
        let mut mailhost = world.connect(0, Duration::ZERO).unwrap();
        let mut seen = Seen::default();
        for (milli, word) in (0..).step_by(7).zip(&words) {
            if milli >= gone {
                break;
            }
            collect(&mut world, &mut mailhost, millis(milli), &mut seen);
            world.input(&mut mailhost, word, millis(milli));
        }
        collect(&mut world, &mut mailhost, millis(gone), &mut seen);
        let silent = world.disconnect(mailhost, millis(gone));
        prop_assert!(silent.iter().all(|taken| taken.how == How::Silent));
        let text = String::from_utf8_lossy(&seen.octets);
        let told = text.matches("250 2.0.0 taken\r\n").count();
        prop_assert_eq!(told, seen.taken.iter().filter(|taken| taken.how == How::Acknowledged).count());
        prop_assert_eq!(told, world.hosts()[0].messages as usize);
        // Each recipient in the ledger had a 250: accepted recipients bound those of the ledger.
        let accepted = text.matches("250 2.1.5").count();
        let written: usize = seen.taken.iter().map(|taken| taken.recipients.len()).sum();
        prop_assert!(written <= accepted, "{} {}", written, accepted);
        prop_assert!(seen.taken.iter().all(|taken| !taken.recipients.is_empty() && taken.connection == 1));
    }
}

//! Dialogs of the protocol as data: what goes to the filter, and what its packets mean.

use super::*;
use std::net::{IpAddr, Ipv6Addr};

const NOTHING: &dyn Fn(&[u8]) -> Option<Vec<u8>> = &|_| None;

fn packet(command: u8, data: &[u8]) -> Packet {
    Packet { command, data: data.to_vec() }
}

fn agreed(version: u32, actions: Actions, steps: Steps) -> Agreement {
    let data = [version, actions.0, steps.0].map(u32::to_be_bytes).concat();
    Agreement::read(&Offer::default(), &packet(b'O', &data)).expect("the answer fits the offer")
}

fn session(steps: Steps) -> MilterSession {
    MilterSession::new(agreed(6, Actions::ALL, steps), EditLimits::default(), Vec::new())
}

/// Cuts what was written to the filter into packets.
fn written(out: &mut Vec<u8>) -> Vec<(char, String)> {
    let mut reader = PacketReader::new(1 << 20);
    reader.push(out);
    out.clear();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().expect("own packets are whole") {
        packets.push((char::from(packet.command), packet.data.escape_ascii().to_string()));
    }
    assert!(!reader.has_rest(), "a packet is cut");
    packets
}

fn answer(session: &mut MilterSession, command: u8, data: &[u8]) -> Answer {
    match session.receive(&packet(command, data)).expect("the packet is understood") {
        Received::Answer(answer) => answer,
        other => panic!("{other:?} is no answer"),
    }
}

#[test]
fn an_offer_names_version_6_and_every_flag() {
    let mut out = Vec::new();
    Offer::default().write(&mut out);
    assert_eq!(out[..5], [0, 0, 0, 13, b'O']);
    assert_eq!(out[5..9], [0, 0, 0, 6]);
    assert_eq!(out[9..13], [0, 0, 1, 0xff]);
    assert_eq!(out[13..17], [0x30, 0x1f, 0xff, 0xff]);
}

#[test]
fn versions_mask_what_they_do_not_know() {
    // (version, flags of the filter, steps that are not sent, steps without a reply)
    let everything_silent = Steps(0xff_f080);
    let rows = [
        (2, Steps(0), "UT", ""),
        (3, Steps(0), "T", ""),
        (4, Steps(0), "", ""),
        (6, Steps(0), "", ""),
        (2, Steps(0x7f), "CHMRLNBUT", ""),
        (6, Steps::SILENT_CONNECT.with(Steps::SILENT_MAIL), "", "CM"),
        // Flags of version 6 from a filter of version 4 mean nothing, but the oldest.
        (4, everything_silent.without(Steps::LEADING_BLANK), "", "L"),
    ];
    for (version, steps, not_sent, silent) in rows {
        let offer = Offer { actions: Actions::ALL, steps: Steps(u32::MAX) };
        let data = [version, 0, steps.0].map(u32::to_be_bytes).concat();
        let agreement = Agreement::read(&offer, &packet(b'O', &data)).expect("a known version");
        let mut seen = (String::new(), String::new());
        for command in "CHMRTLNBU".chars() {
            let mut session = MilterSession::new(agreement.clone(), EditLimits::default(), Vec::new());
            let mut out = Vec::new();
            let sent = match command {
                'C' => session.connect(b"h", ClientAddress::Unknown, NOTHING, &mut out),
                'H' => session.helo(b"h", NOTHING, &mut out),
                'M' => session.mail(b"<>", &[], NOTHING, &mut out),
                'R' => session.recipient(b"<a@b>", &[], false, NOTHING, &mut out),
                'T' => session.data(NOTHING, &mut out),
                'L' => session.header(b"A", b" b", &mut out),
                'N' => session.end_of_header(NOTHING, &mut out),
                'B' => session.body_chunk(&mut b"x".as_slice(), &mut out),
                _ => session.unknown(b"XYZ", &mut out),
            };
            match sent {
                Sent::NotWanted => {
                    assert_eq!(out, b"", "nothing is written");
                    seen.0.push(command);
                }
                Sent::WithoutReply => seen.1.push(command),
                Sent::AwaitsReply => {}
            }
        }
        let sorted = |text: &str| {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            letters
        };
        assert_eq!(sorted(&seen.0), sorted(not_sent), "version {version}, {steps:?}: not sent");
        assert_eq!(sorted(&seen.1), sorted(silent), "version {version}, {steps:?}: without reply");
    }
}

#[test]
fn a_filter_that_wants_more_than_is_offered_is_refused() {
    let offer = Offer { actions: Actions::ADD_HEADERS, steps: Steps::NO_BODY };
    let read = |numbers: &[u32]| {
        let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        Agreement::read(&offer, &packet(b'O', &data))
    };
    assert!(read(&[6, 1, 0x10]).is_ok());
    assert_eq!(read(&[6, 3, 0]), Err(MilterError::NotOffered { what: "actions", flags: 2 }));
    assert_eq!(read(&[6, 1, 0x11]), Err(MilterError::NotOffered { what: "steps", flags: 1 }));
    assert_eq!(read(&[1, 1, 0]), Err(MilterError::Version { version: 1 }));
    assert_eq!(read(&[7, 1, 0]), Err(MilterError::Version { version: 7 }));
    assert!(matches!(read(&[6, 1]), Err(MilterError::Malformed { .. })));
    assert!(matches!(Agreement::read(&offer, &packet(b'c', b"")), Err(MilterError::Unexpected { command: b'c', .. })));
}

#[test]
fn another_protocol_is_told_apart_by_its_length() {
    for greeting in [b"UNKNOWN COMMAND\n".as_slice(), b"220 smtp ready\r\n", b"HTTP/1.1 400", b"\0\0\0\0c"] {
        let mut reader = PacketReader::new(65_536);
        reader.push(greeting);
        let error = reader.next_packet().expect_err("no milter begins so");
        assert!(error.to_string().starts_with("this is no milter"), "{error}");
    }
}

#[test]
fn packets_arrive_in_any_pieces() {
    let mut stream = Vec::new();
    let wanted = [(b'c', b"".as_slice()), (b'h', b"A\0b\0"), (b'y', b"550 no\0"), (b'p', b"")];
    for (command, data) in wanted {
        write_packet(&mut stream, command, &[data]);
    }
    for piece in 1..stream.len() {
        let mut reader = PacketReader::new(100);
        let mut got = Vec::new();
        for octets in stream.chunks(piece) {
            reader.push(octets);
            while let Some(packet) = reader.next_packet().expect("whole packets") {
                got.push((packet.command, packet.data));
            }
        }
        let got: Vec<(u8, &[u8])> = got.iter().map(|(command, data)| (*command, data.as_slice())).collect();
        assert_eq!(got, wanted, "pieces of {piece}");
    }
}

#[test]
fn steps_of_a_message_are_written_as_sendmail_writes_them() {
    let mut session = session(Steps(0));
    let mut out = Vec::new();
    let macros: &dyn Fn(&[u8]) -> Option<Vec<u8>> = &|name| match name {
        b"j" => Some(b"mx.example".to_vec()),
        b"{daemon_name}" => Some(b"MTA".to_vec()),
        b"i" => Some(b"id1".to_vec()),
        // An empty value is left out.
        b"{auth_type}" => Some(Vec::new()),
        _ => None,
    };
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_eq!(session.connect(b"client", ClientAddress::Ip(address, 0x102), macros, &mut out), Sent::AwaitsReply);
    assert_eq!(
        written(&mut out),
        [
            ('D', r"Cj\x00mx.example\x00{daemon_name}\x00MTA\x00".to_owned()),
            ('C', r"client\x006\x01\x02IPv6:::1\x00".to_owned()),
        ]
    );
    assert_eq!(answer(&mut session, b'c', b""), Answer::Continue);
    assert_eq!(session.mail(b"<a@b>", &[b"SIZE=5", b"BODY=8BITMIME"], macros, &mut out), Sent::AwaitsReply);
    assert_eq!(
        written(&mut out),
        [('D', r"Mi\x00id1\x00".to_owned()), ('M', r"<a@b>\x00SIZE=5\x00BODY=8BITMIME\x00".to_owned())]
    );
    assert_eq!(answer(&mut session, b'c', b""), Answer::Continue);
    // Folds as LF, one leading blank off, no line end.
    assert_eq!(session.header(b"Subject", b" a\r\n\tb\r\n", &mut out), Sent::AwaitsReply);
    assert_eq!(written(&mut out), [('L', r"Subject\x00a\n\tb\x00".to_owned())]);
    assert_eq!(answer(&mut session, b'c', b""), Answer::Continue);
    let mut out = Vec::new();
    let mut with_blank = self::session(Steps::LEADING_BLANK);
    assert_eq!(with_blank.header(b"Subject", b"  a\r\n", &mut out), Sent::AwaitsReply);
    assert_eq!(written(&mut out), [('L', r"Subject\x00  a\x00".to_owned())]);
}

#[test]
fn bodies_go_in_chunks_of_the_negotiated_size_until_skip() {
    for (steps, size) in [(Steps(0), 65_535), (Steps::DATA_256K, 262_143), (Steps::DATA_1M, 1_048_575)] {
        let mut session = session(steps.with(Steps::SKIP));
        let body = vec![b'x'; 3 * size + 10];
        let mut rest = body.as_slice();
        let mut out = Vec::new();
        let mut sizes = Vec::new();
        while !rest.is_empty() {
            let before = rest.len();
            if session.body_chunk(&mut rest, &mut out) == Sent::AwaitsReply {
                sizes.push(before - rest.len());
                let reply = if sizes.len() == 3 { b's' } else { b'c' };
                let _ = answer(&mut session, reply, b"");
            }
        }
        assert_eq!(sizes, [size, size, size], "the fourth is skipped");
        assert_eq!(session.end_of_body(NOTHING, &mut out), Sent::AwaitsReply, "the end is sent all the same");
    }
}

#[test]
fn accept_ends_the_message_or_the_connection() {
    let mut out = Vec::new();
    let mut session = session(Steps(0));
    assert_eq!(session.helo(b"h", NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(answer(&mut session, b'a', b""), Answer::Accept);
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::NotWanted, "accepted at HELO");

    let mut session = self::session(Steps(0));
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(answer(&mut session, b'a', b""), Answer::Accept);
    assert_eq!(session.recipient(b"<a@b>", &[], false, NOTHING, &mut out), Sent::NotWanted);
    assert_eq!(session.end_of_body(NOTHING, &mut out), Sent::NotWanted);
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply, "the next message is asked again");
}

#[test]
fn a_refusal_ends_the_message_and_nothing_else() {
    for (command, data) in [(b'r', b"".as_slice()), (b't', b""), (b'y', b"550 5.7.1 no\0"), (b'd', b"")] {
        let mut out = Vec::new();
        let mut session = session(Steps(0));
        assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
        let _ = answer(&mut session, command, data);
        assert_eq!(session.recipient(b"<a@b>", &[], false, NOTHING, &mut out), Sent::NotWanted);
        session.abort(&mut out);
        assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
    }
    // A refused recipient leaves the message as it is.
    let mut out = Vec::new();
    let mut session = session(Steps(0));
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
    let _ = answer(&mut session, b'c', b"");
    assert_eq!(session.recipient(b"<a@b>", &[], false, NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(answer(&mut session, b'r', b""), Answer::Reject);
    assert_eq!(session.recipient(b"<c@d>", &[], false, NOTHING, &mut out), Sent::AwaitsReply);
}

#[test]
fn refused_recipients_go_only_to_filters_that_want_them() {
    let mut out = Vec::new();
    assert_eq!(session(Steps(0)).recipient(b"<a@b>", &[], true, NOTHING, &mut out), Sent::NotWanted);
    let mut wants = session(Steps::REJECTED_RECIPIENTS);
    assert_eq!(wants.recipient(b"<a@b>", &[], true, NOTHING, &mut out), Sent::AwaitsReply);
    // Its word about such a recipient does not decide on the message.
    assert_eq!(answer(&mut wants, b'd', b""), Answer::Continue);
    assert_eq!(wants.recipient(b"<c@d>", &[], false, NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(answer(&mut wants, b'd', b""), Answer::Discard);
}

#[test]
fn edits_belong_to_one_message() {
    let mut out = Vec::new();
    let mut session = session(Steps(0));
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
    let _ = answer(&mut session, b'c', b"");
    assert_eq!(session.end_of_body(NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(session.receive(&packet(b'h', b"X\0y\0")), Ok(Received::Edit));
    assert_eq!(session.receive(&packet(b'p', b"")), Ok(Received::Progress));
    assert_eq!(session.receive(&packet(b'b', b"new body")), Ok(Received::Edit));
    // The filter dies here: the driver aborts, and nothing of it reaches the next message.
    session.abort(&mut out);
    assert_eq!(session.mail(b"<>", &[], NOTHING, &mut out), Sent::AwaitsReply);
    let _ = answer(&mut session, b'c', b"");
    assert_eq!(session.end_of_body(NOTHING, &mut out), Sent::AwaitsReply);
    assert_eq!(answer(&mut session, b'c', b""), Answer::Continue);
    assert!(session.take_edits().is_empty());
}

#[test]
fn packets_that_do_not_belong_into_a_step_are_faults() {
    let mut out = Vec::new();
    let rows: [(&str, u8, &[u8]); 12] = [
        ("mail", b'h', b"X\0y\0"),
        ("mail", b's', b""),
        ("mail", b'z', b""),
        ("helo", b'd', b""),
        ("eom", b'h', b"X\0y"),
        ("eom", b'h', b"X\0"),
        ("eom", b'h', b"X y\0z\0"),
        ("eom", b'h', b"X\0a\nY: injected\0"),
        ("eom", b'm', b"\0\0\0"),
        ("eom", b'+', b"<a\r\n@b>\0"),
        ("eom", b'y', b"250 fine\0"),
        ("eom", b'l', b"\0\0\0\0i\0"),
    ];
    for (stage, command, data) in rows {
        let mut session = session(Steps(0));
        let sent = match stage {
            "mail" => session.mail(b"<>", &[], NOTHING, &mut out),
            "helo" => session.helo(b"h", NOTHING, &mut out),
            _ => session.end_of_body(NOTHING, &mut out),
        };
        assert_eq!(sent, Sent::AwaitsReply);
        let got = session.receive(&packet(command, data));
        assert!(got.is_err(), "{stage}: {} {} is taken: {got:?}", char::from(command), data.escape_ascii());
    }
    let mut idle = session(Steps(0));
    assert!(idle.receive(&packet(b'c', b"")).is_err(), "a stale reply");
}

#[test]
fn a_change_that_was_not_announced_is_a_fault() {
    let announced = [
        (b'h', Actions::ADD_HEADERS, b"X\0y\0".as_slice()),
        (b'i', Actions::ADD_HEADERS, b"\0\0\0\x01X\0y\0"),
        (b'm', Actions::CHANGE_HEADERS, b"\0\0\0\x01X\0y\0"),
        (b'+', Actions::ADD_RECIPIENTS, b"<a@b>\0"),
        (b'2', Actions::ADD_RECIPIENTS_WITH_PARAMETERS, b"<a@b>\0NOTIFY=NEVER\0"),
        (b'-', Actions::DELETE_RECIPIENTS, b"<a@b>\0"),
        (b'e', Actions::CHANGE_SENDER, b"<a@b>\0"),
        (b'b', Actions::CHANGE_BODY, b"new"),
        (b'q', Actions::QUARANTINE, b"reason\0"),
    ];
    let mut out = Vec::new();
    for (command, action, data) in announced {
        for (actions, is_taken) in [(action, true), (Actions::ALL.without(action), false)] {
            let mut session = MilterSession::new(agreed(6, actions, Steps(0)), EditLimits::default(), Vec::new());
            assert_eq!(session.end_of_body(NOTHING, &mut out), Sent::AwaitsReply);
            let got = session.receive(&packet(command, data));
            assert_eq!(got == Ok(Received::Edit), is_taken, "{} with {actions:?}: {got:?}", char::from(command));
        }
    }
}

#[test]
fn edits_are_bounded() {
    let limits = EditLimits { edits_max: 2, edit_bytes_max: 20, body_bytes_max: 5 };
    let rows: [(&str, Vec<Packet>); 3] = [
        ("edits_max", vec![packet(b'h', b"X\0y\0"); 3]),
        ("edit_bytes_max", vec![packet(b'h', b"X\0yyyyyyyyyyyyyyyyyyyyyyyy\0")]),
        ("body_bytes_max", vec![packet(b'b', b"123"); 2]),
    ];
    for (limit, packets) in rows {
        let mut session = MilterSession::new(agreed(6, Actions::ALL, Steps(0)), limits, Vec::new());
        assert_eq!(session.end_of_body(NOTHING, &mut Vec::new()), Sent::AwaitsReply);
        let last = packets.iter().map(|packet| session.receive(packet)).last();
        assert!(matches!(last, Some(Err(MilterError::TooMuch { limit: of, .. })) if of == limit), "{limit}: {last:?}");
    }
}

#[test]
fn replies_of_filters_are_read_or_refused() {
    type Row<'a> = (&'a [u8], u16, Option<&'a str>, &'a [&'a str]);
    let good: [Row<'_>; 6] = [
        (b"550 5.7.1 spam\0", 550, Some("5.7.1"), &["spam"]),
        (b"451 wait\0", 451, None, &["wait"]),
        (b"550-5.7.1 one\r\n550 5.7.1 two\0", 550, Some("5.7.1"), &["one", "two"]),
        (b"550 100%% sure\r\n\0", 550, None, &["100% sure"]),
        (b"554\0", 554, None, &[""]),
        (b"550 caf\xe9\x07\0", 550, None, &["caf??"]),
    ];
    for (data, code, enhanced, lines) in good {
        let reply = ReplyText::read(data).unwrap_or_else(|error| panic!("{}: {error}", data.escape_ascii()));
        assert_eq!((reply.code, reply.enhanced.as_deref()), (code, enhanced), "{}", data.escape_ascii());
        assert_eq!(reply.lines, lines, "{}", data.escape_ascii());
    }
    let bad: [&[u8]; 10] = [
        b"550 no end",
        b"",
        b"\0",
        b"250 ok\0",
        b"699 ok\0",
        b"55\0",
        b"550+x\0",
        b"550-only one\0",
        b"550-a\r\n451 b\0",
        b"550 4.7.1 other class\0",
    ];
    for data in bad {
        assert!(ReplyText::read(data).is_err(), "{} is taken", data.escape_ascii());
    }
    let long = [b"550 ".as_slice(), &[b'x'; 5_000], b"\0"].concat();
    assert_eq!(ReplyText::read(&long).expect("cut").lines[0].len(), 500);
    let many = [b"550-x\r\n".repeat(32).as_slice(), b"550 x\0"].concat();
    assert!(ReplyText::read(&many).is_err());
}

fn fields(names: &[&str]) -> Vec<HeaderField> {
    let field = |text: &&str| {
        let (name, value) = text.split_once(':').expect("a field");
        HeaderField { name: name.into(), value: value.into() }
    };
    names.iter().map(field).collect()
}

fn change(index: u32, name: &str, value: Option<&str>) -> Edit {
    Edit::ChangeHeader { index, name: name.into(), value: value.map(Into::into) }
}

fn insert(index: u32, name: &str) -> Edit {
    Edit::InsertHeader { index, name: name.into(), value: b"new".to_vec() }
}

#[test]
fn changes_count_fields_as_the_filter_saw_them() {
    let before = ["Received:own", "Received:1", "A:1", "Received:2", "a:2", "A:3"];
    let rows: [(&str, Vec<Edit>, &[&str]); 9] = [
        (
            "the own field is not the first",
            vec![change(1, "received", Some("x"))],
            &["Received:own", "received:x", "A:1", "Received:2", "a:2", "A:3"],
        ),
        (
            "deleted fields keep their number",
            vec![change(1, "A", None), change(2, "A", None), change(3, "A", None)],
            &["Received:own", "Received:1", "Received:2"],
        ),
        (
            "an index past the end appends",
            vec![change(4, "A", Some("4"))],
            &["Received:own", "Received:1", "A:1", "Received:2", "a:2", "A:3", "A:4"],
        ),
        ("an index past the end deletes nothing", vec![change(4, "A", None)], &before),
        (
            "a deleted field can get a value again",
            vec![change(2, "A", None), change(2, "A", Some("z"))],
            &["Received:own", "Received:1", "A:1", "Received:2", "A:z", "A:3"],
        ),
        (
            "0 is above our own",
            vec![insert(0, "N")],
            &["N:new", "Received:own", "Received:1", "A:1", "Received:2", "a:2", "A:3"],
        ),
        (
            "1 is below our own",
            vec![insert(1, "N")],
            &["Received:own", "N:new", "Received:1", "A:1", "Received:2", "a:2", "A:3"],
        ),
        (
            "more is the end",
            vec![insert(u32::MAX, "N")],
            &["Received:own", "Received:1", "A:1", "Received:2", "a:2", "A:3", "N:new"],
        ),
        (
            "each applies to the result before it",
            vec![insert(1, "A"), change(1, "A", Some("x")), insert(1, "B")],
            &["Received:own", "B:new", "A:x", "Received:1", "A:1", "Received:2", "a:2", "A:3"],
        ),
    ];
    for (what, edits, after) in rows {
        let mut list = fields(&before);
        let own = apply_header_edits(&mut list, 1, &edits);
        assert_eq!(list, fields(after), "{what}");
        assert_eq!(list[own - 1].value, b"own", "{what}: the next filter is shown what is below");
    }
}

#[test]
fn values_of_filters_fold_with_cr_lf() {
    type Row<'a> = (&'a [u8], bool, Option<&'a [u8]>);
    let rows: [Row<'_>; 9] = [
        (b"a", false, Some(b" a")),
        (b" a", true, Some(b" a")),
        (b"a\n b\n\tc", false, Some(b" a\r\n b\r\n\tc")),
        (b"a\r\n b", false, Some(b" a\r\n b")),
        (b"a\n", false, Some(b" a")),
        (b"a\nb", false, None),
        (b"a\n\n b", false, None),
        (b"a\n \n b", false, None),
        (b"a\rb", false, None),
    ];
    for (value, leading_blank, wanted) in rows {
        let steps = if leading_blank { Steps::LEADING_BLANK } else { Steps(0) };
        let mut session = session(steps);
        assert_eq!(session.end_of_body(NOTHING, &mut Vec::new()), Sent::AwaitsReply);
        let got = session.receive(&packet(b'h', &[b"X\0", value, b"\0"].concat()));
        match wanted {
            None => assert!(got.is_err(), "{} is taken", value.escape_ascii()),
            Some(wanted) => {
                assert_eq!(got, Ok(Received::Edit), "{}", value.escape_ascii());
                let edits = session.take_edits();
                let wanted = Edit::AddHeader { name: b"X".to_vec(), value: wanted.to_vec() };
                assert_eq!(edits.list, [wanted], "{}", value.escape_ascii());
            }
        }
    }
}

#[test]
fn macros_go_also_with_a_step_that_is_not_wanted() {
    let macros: &dyn Fn(&[u8]) -> Option<Vec<u8>> = &|name| (name == b"j").then(|| b"mx.example".to_vec());
    let mut session = session(Steps::NO_CONNECT);
    let mut out = Vec::new();
    assert_eq!(session.connect(b"h", ClientAddress::Unknown, macros, &mut out), Sent::NotWanted);
    assert_eq!(written(&mut out), [('D', r"Cj\x00mx.example\x00".to_owned())]);
}

#[test]
fn a_filter_names_its_macros() {
    let mut data = [6, Actions::SET_MACROS.0, 0].map(u32::to_be_bytes).concat();
    data.extend_from_slice(b"\0\0\0\0j, {if_addr}\0\0\0\0\x02mail_addr $i\0\0\0\0\x63x\0");
    let agreement = Agreement::read(&Offer::default(), &packet(b'O', &data)).expect("lists of macros");
    let mut session = MilterSession::new(agreement, EditLimits::default(), Vec::new());
    let mut out = Vec::new();
    let echo: &dyn Fn(&[u8]) -> Option<Vec<u8>> = &|name| Some(name.to_vec());
    assert_eq!(session.connect(b"h", ClientAddress::Unknown, echo, &mut out), Sent::AwaitsReply);
    assert_eq!(written(&mut out)[0], ('D', r"Cj\x00j\x00{if_addr}\x00{if_addr}\x00".to_owned()));
    let _ = answer(&mut session, b'c', b"");
    assert_eq!(session.mail(b"<>", &[], echo, &mut out), Sent::AwaitsReply);
    assert_eq!(written(&mut out)[0], ('D', r"M{mail_addr}\x00{mail_addr}\x00i\x00i\x00".to_owned()));
    let _ = answer(&mut session, b'c', b"");
    assert_eq!(session.recipient(b"<a@b>", &[], false, echo, &mut out), Sent::AwaitsReply);
    assert!(written(&mut out)[0].1.contains("{rcpt_mailer}"), "other stages have the usual ones");
}

#[test]
fn no_octets_of_a_filter_break_the_reader_or_the_session() {
    // Pseudo-random packets, many of them near the form, against each stage.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).expect("below usize")
    };
    let commands = b"cadrtsyf4pq+-2behimlOX";
    let pieces: [&[u8]; 9] = [b"\0", b"550 ", b"5.7.1 ", b"X", b"\r\n", b"\n ", b"<a@b>", b"\0\0\0\x01", b"\xff%"];
    for _ in 0..20_000 {
        let mut session = session(Steps::SKIP);
        let mut out = Vec::new();
        let sent = match next(3) {
            0 => session.connect(b"h", ClientAddress::Unknown, NOTHING, &mut out),
            1 => session.body_chunk(&mut b"x".as_slice(), &mut out),
            _ => session.end_of_body(NOTHING, &mut out),
        };
        assert_eq!(sent, Sent::AwaitsReply);
        for _ in 0..next(6) {
            let data: Vec<u8> = (0..next(6)).flat_map(|_| pieces[next(pieces.len())].to_vec()).collect();
            if !matches!(
                session.receive(&packet(commands[next(commands.len())], &data)),
                Ok(Received::Edit | Received::Progress)
            ) {
                break;
            }
        }
        let edits = session.take_edits();
        let mut list = fields(&["Received:own", "A:1"]);
        let own = apply_header_edits(&mut list, 1, &edits.list);
        assert!(own >= 1 && list[own - 1].value == b"own", "the own field stays: {list:?}");
        for field in &list {
            let lines = field.value.split(|&octet| octet == b'\n').skip(1);
            assert!(lines.into_iter().all(|line| matches!(line.first(), Some(b' ' | b'\t'))), "{field:?} breaks out");
        }
    }
}

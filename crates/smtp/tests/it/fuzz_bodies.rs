//! The fuzz bodies as ordinary tests: every body on all seeds, cut, spliced and mutated.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use smtp::fuzz::BODIES;

/// Inputs from which mutations start.
const SEEDS: &[&[u8]] = &[
    b"MAIL FROM:<a@b.test> SIZE=100 BODY=8BITMIME RET=HDRS ENVID=x",
    b"RCPT TO:<\"a b\"@[192.0.2.1]> NOTIFY=NEVER ORCPT=rfc822;a@b",
    b"EHLO [IPv6:::1]",
    b"AUTH PLAIN AHRpbQBzZWNyZXQ=",
    b"AHRpbQBzZWNyZXQ=\r\n*\r\nMAIL FROM:<a@b>",
    b"dGlt\r\nNOOP",
    b"BDAT 5 LAST",
    b"VRFY a\r\nEXPN b",
    b"GET / HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01",
    b"\x00HELO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nA: b\r\n\r\n..x\r\n.\r\nQUIT\r\n",
    b"\x21EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<no@d>\r\nDATA\r\na\n.\r\n\r\n.\r\nRSET\r\nNOOP\r\n",
    b"\x20EHLO a\r\nMAIL FROM:<a@b> BODY=BINARYMIME\r\nRCPT TO:<c@d>\r\nBDAT 9\r\nReceived:BDAT 5 LAST\r\n\x00\n\r\n.NOOP\r\n",
    b"\x04LHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nRCPT TO:<full@d>\r\nBDAT 3\r\na\r\nBDAT 0 LAST\r\nRSET\r\n",
    b"\x06MAIL FROM:<nodata@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nMAIL FROM:<close@b>\r\n",
    b"\x38EHLO a\r\nAUTH LOGIN\r\ndGlt\r\nMAIL FROM:<a@b> AUTH=<>\r\nVRFY x\r\nHELP\r\nSTARTTLS\r\n",
    b"A: b\r\nReceived: c\r\n d\r\nMessage-ID: <e@f>\r\n\r\n.g\r\n..\r\n.\r\n",
    b"a\r\n.\r\r\n.\r\n",
    b"\n.\n\r.\r\r\n.\n\r\n.\r",
    b"\x05ab\r\n.\x00\x03.\r\n\x01\r\x01\n",
    b"\x1f",
    b"\x00220 mx\r\n250-mx\r\n250-PIPELINING\r\n250 CHUNKING\r\n250 a\r\n250 b\r\n550 c\r\n250 d\r\n250 r\n250 a\r\n421 x\r\ne\n",
    b"\x04220 mx\r\n250-mx\r\n250 PIPELINING\r\n250 a\r\n250 b\r\n550 c\r\n354 d\r\n250 e\r\n250 a\r\n550 b\r\n354 c\r\nq\n250 x\r\n221 x\r\n",
    b"\x03220 mx\r\n250 mx\r\n250 a\r\n250 b\r\n250 c\r\n354 d\r\n250 e\r\n450 f\r\n250 a\r\nt\nr\nR\n",
    b"\x00220 mx\r\n250-mx\r\n250 STARTTLS\r\n220 go\r\n500 x\r\n250 x\r\n250 a\r\n250 b\r\n421-x\r\n421 y\r\n",
];

#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    Repeat(Index, Index, usize),
    Splice(Index, Index),
}

impl Edit {
    fn apply(&self, data: &mut Vec<u8>) {
        let at = |index: &Index, len: usize| if len == 0 { 0 } else { index.index(len) };
        let len = data.len();
        match self {
            Self::Set(index, byte) if len > 0 => data[at(index, len)] = *byte,
            Self::Remove(index) if len > 0 => {
                data.remove(at(index, len));
            }
            Self::Set(..) | Self::Remove(_) => {}
            Self::Insert(index, byte) => data.insert(at(index, len + 1), *byte),
            Self::Cut(index) => data.truncate(at(index, len + 1)),
            Self::Repeat(from, to, times) => {
                let (a, b) = (at(from, len + 1), at(to, len + 1));
                let piece = data[a.min(b)..a.max(b)].repeat(*times);
                data.splice(a.max(b)..a.max(b), piece);
            }
            Self::Splice(index, seed) => {
                let at = at(index, len + 1);
                data.splice(at..at, SEEDS[seed.index(SEEDS.len())].iter().copied());
            }
        }
    }
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![any::<u8>(), proptest::sample::select(&b"\r\n\0.: <>@=0123456789LAST"[..])];
    prop_oneof![
        (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        any::<Index>().prop_map(Edit::Remove),
        any::<Index>().prop_map(Edit::Cut),
        (any::<Index>(), any::<Index>(), 1..9_usize).prop_map(|(from, to, times)| Edit::Repeat(from, to, times)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, seed)| Edit::Splice(at, seed)),
    ]
}

#[test]
fn seeds_and_all_their_beginnings() {
    for seed in SEEDS {
        for len in 0..=seed.len() {
            for (name, body) in BODIES {
                let result = std::panic::catch_unwind(|| body(&seed[..len]));
                assert!(result.is_ok(), "{name} on \"{}\"", seed[..len].escape_ascii());
            }
        }
    }
}

/// Five times the number of cases proptest is set to for each body; `PROPTEST_CASES=50000` takes some minutes.
#[test]
fn mutated_seeds() {
    let default = ProptestConfig::default();
    let config = ProptestConfig { cases: default.cases.saturating_mul(5), failure_persistence: None, ..default };
    let strategy = (any::<Index>(), proptest::collection::vec(any_edit(), 1..12));
    for (name, body) in BODIES {
        let result = TestRunner::new(config.clone()).run(&strategy, |(seed, edits)| {
            let mut data = SEEDS[seed.index(SEEDS.len())].to_vec();
            for edit in &edits {
                edit.apply(&mut data);
                data.truncate(2_048);
            }
            let outcome = std::panic::catch_unwind(|| body(&data));
            prop_assert!(outcome.is_ok(), "on \"{}\"", data.escape_ascii());
            Ok(())
        });
        if let Err(error) = result {
            panic!("{name}: {error}");
        }
    }
}

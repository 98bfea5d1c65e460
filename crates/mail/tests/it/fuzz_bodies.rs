//! The fuzz bodies as ordinary tests: every body on seeds of its own kind and of all others, whole, cut, spliced and
//! mutated.

use mail::fuzz::BODIES;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

/// Inputs from which mutations start: something of every kind, right and wrong.
const SEEDS: &[&[u8]] = &[
    b"user@example.com",
    b"\"a\\\"b @c\"@[IPv6:2001:db8::1]",
    b"a.b@[192.0.2.1]",
    "用户@bücher.example".as_bytes(),
    b"<@one.example,@two.example:a+b@c-d.example> SIZE=100 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb",
    b"<Postmaster> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a+40b@c",
    b"<>",
    b"ORCPT=utf-8;\\x{FC}@d NOTIFY=NEVER",
    b"AUTH=e+3Dmc2@example.com MT-PRIORITY=-3 REQUIRETLS HOLDUNTIL=2026-11-20T08:04:39.5+01:00 BY=120;RT",
    b"SIZE=1 HOLDFOR=10 AUTH=<> BY=-1;N",
    b"6AK84d0YHa0028",
    b"x0100000000000",
    b"\x00\x00\x10\x27\x5c\xb1\xd1\x63",
    b"250-mx.example\r\n250-SIZE 1000\r\n250 PIPELINING\r\n",
    b"550-5.1.1 no such user\r\n550 5.1.1 here\r\n",
    b"421\n",
    b"5.7.1",
    b"UTF8SMTPSA",
    b"From: Joe <a@b>\r\nSubject: =?utf-8?Q?x?=\r\n folded\r\nFr om: x\r\n\r\nbody\r\n",
    b"From a@b Thu\nA : 1\n\t2\n \nno colon\n\nbody\n.\n",
    b" lost\r\n:\r\n",
    b"Joe \"Q.\" Public <@r.example:a.b(c (d))@e.example>, G: c@d, \"e f\"@[x y];, , root",
    b"\"a\" . b @ (x) c . d\r\n ",
    b"a.b@[J \"Q.\" P <@r.example:a.b(c (d))@e.example>, G: c@d, \"e f\"@[x y];, , root192.0.2.1]",
    b"=?gb2312?B?xOO6ww==?= =?gb18030?Q?=C4?=\r\n =?GBK?Q?=E3?= =?utf-7?Q?x?= \xc4\xe3",
    b"=?iso-2022-jp*ja?B?GyRCJDMkcyRLJEEkTxsoQg==?=x=?utf-8?q?_=?==?big5?b?p0E?=",
    b"=?utf-16le?B?ADDYAA==?= =?x-user-defined?Q?=80?= =?windows-1252?Q?=80=81?=",
    b"bob@example.org\nno such user\nSubject: =?utf-8?Q?gr=C3=BCn?=\r\nMessage-ID: <a@b>\r\n\r\n--=_00100000000000.1\r\n\xfc\0\r\n",
    b"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ngr\xfcn und rot\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\n\xff\r\n--b--\r\n\xe4",
    b"Content-Type: text/plain (x); charset=\"a\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=3D\xfc =\r\n",
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
                let piece = data[a.min(b)..a.max(b)].to_vec();
                let piece = piece.repeat(*times);
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
    // Bytes that mean something in one of the grammars come more often than the others.
    let byte =
        prop_oneof![any::<u8>(), proptest::sample::select(&b"@.<>()[]\"\\:;,=?+-_{} \t\r\n\0\x7f\x80\xc3\xff"[..])];
    prop_oneof![
        (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        any::<Index>().prop_map(Edit::Remove),
        any::<Index>().prop_map(Edit::Cut),
        (any::<Index>(), any::<Index>(), 1..40_usize).prop_map(|(from, to, times)| Edit::Repeat(from, to, times)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, seed)| Edit::Splice(at, seed)),
    ]
}

fn run_all(data: &[u8]) {
    for (name, body) in BODIES {
        // The name of the body and the input must be shown for a failure.
        let result = std::panic::catch_unwind(|| body(data));
        assert!(result.is_ok(), "{name} on \"{}\"", data.escape_ascii());
    }
}

#[test]
fn seeds_and_all_their_beginnings() {
    for seed in SEEDS {
        for len in 0..=seed.len() {
            run_all(&seed[..len]);
        }
    }
}

#[test]
fn every_byte_in_every_place_of_a_short_seed() {
    for seed in SEEDS.iter().filter(|seed| seed.len() <= 32) {
        for at in 0..seed.len() {
            for byte in 0..=u8::MAX {
                let mut data = seed.to_vec();
                data[at] = byte;
                run_all(&data);
            }
        }
    }
}

/// Input made to be slow for a parser that looks at the same byte again and again: one pass takes about a millisecond,
/// a quadratic one minutes, which no test run survives unnoticed.
#[test]
fn large_hostile_inputs_take_linear_time() {
    const PIECES: &[&[u8]] = &[
        b"=?",
        b"=?a?q?",
        b"=?utf-8?q?=",
        b"=?utf-8?q?a?= ",
        b"(",
        b"()",
        b"\"",
        b"\\",
        b"<",
        b"a.",
        b"a ",
        b",",
        b":",
        b"@a,",
        b"<@a:",
        b"G:;",
        b"\r\n ",
        b"\n",
        b"\r",
        b" ",
        b"a:\r\n",
        b"250-a\r\n",
        b"A=1 ",
        b"\xff",
        "ü.".as_bytes(),
        "ü".as_bytes(),
        b"a@[",
        b"[",
    ];
    for piece in PIECES {
        run_all(&piece.repeat(200_000 / piece.len()));
    }
}

/// Twenty times the number of cases proptest is set to, 5,120 for each body by default; `PROPTEST_CASES=50000` takes
/// some minutes.
#[test]
fn mutated_seeds() {
    let default = ProptestConfig::default();
    let config = ProptestConfig { cases: default.cases.saturating_mul(20), failure_persistence: None, ..default };
    let strategy = (any::<Index>(), proptest::collection::vec(any_edit(), 1..12));
    for (name, body) in BODIES {
        let result = TestRunner::new(config.clone()).run(&strategy, |(seed, edits)| {
            let mut data = SEEDS[seed.index(SEEDS.len())].to_vec();
            for edit in &edits {
                edit.apply(&mut data);
                data.truncate(8_192);
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

//! The fuzz bodies as ordinary tests: every body on real files of all formats, whole, cut, spliced and mutated.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use route::fuzz::BODIES;

/// Inputs from which mutations start: files of every format.
const SEEDS: &[&[u8]] = &[
    include_bytes!("../maps/entries"),
    b"# c\n\nA.b\tsmtp:[10.0.0.1]\n cont\nnovalue\na.b x\n\xfc\xe4 1\nk \xff\nBl\xc3\x84h 2\r\n\0 3\n",
    b"\xef\xbb\xbfa 1\nb 2",
    b"key value\nkey other\n@ @\n@\0 @\0\n",
    include_bytes!("../maps/little-hash.db"),
    include_bytes!("../maps/big-hash.db"),
    include_bytes!("../maps/little-btree.db"),
    include_bytes!("../maps/big-btree.db"),
    include_bytes!("../maps/checksum-hash.db"),
    include_bytes!("../maps/duplicates-hash.db"),
    include_bytes!("../maps/duplicates-btree.db"),
    include_bytes!("../maps/newaliases.db"),
    include_bytes!("../maps/tinycdb.cdb"),
    b"x@a.example u%b.example@c.example\nConnect:10.1.2.0/24 RELAY\nFrom:a.example ERROR:5.7.1:\"550 no, never\"\nTo:u@ OK\nbcc:c.example a@b.example\n\
      Connect:IPv6:2001:db8::/32 QUARANTINE:x\nSpam:c.example FRIEND\nTLS_Clt: TEMP+VERIFY:128+CN:x++CI:/y\nAuthInfo:x \"U:a\" \"P:b\"\nexample SKIP\n",
    b"ours.example # us\n10.1.\nIPv6:2001:db8\n[10.1.2.3]\n.below.example\n10.0.0.0/8\nb\xc3\xbccher.example two\n",
    b"# c\nlist: joe, \"|/bin/x y\", :include:/a/b,\n \\ann, Joe Smith <joe@a.example>, \\\n/var/x\n\"q n\": team: joe, <@a.example:b@c.example>;\n",
    b"\\joe, ann+x, joe@a.example, loop\n\n#x\n\"a,b\"@c.example (c (d)), error:5.1.1:550 no #@# y\n<\"|x\">, d%e.example, @, <, \"",
    include_bytes!("../../src/import/queue/tests/dsn.qf"),
    include_bytes!("../../src/import/queue/tests/aliases.qf"),
    &[0; 1_600],
    &[0xff; 1_600],
];

#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    /// A number somewhere in the first 64 octets of a page, where what matters stands.
    Head(Index, u8, u8),
    Insert(Index, u8),
    Cut(Index),
    Repeat(Index, Index, usize),
    /// A page of 512 octets of the same file in the place of another.
    Page(Index, Index),
}

impl Edit {
    fn apply(&self, data: &mut Vec<u8>) {
        let at = |index: &Index, len: usize| if len == 0 { 0 } else { index.index(len) };
        let len = data.len();
        match self {
            Self::Set(index, byte) if len > 0 => data[at(index, len)] = *byte,
            Self::Head(index, offset, byte) if len >= 512 => {
                data[at(index, len / 512) * 512 + usize::from(*offset)] = *byte;
            }
            Self::Insert(index, byte) => data.insert(at(index, len + 1), *byte),
            Self::Cut(index) => data.truncate(at(index, len + 1)),
            Self::Repeat(from, to, times) => {
                let (a, b) = (at(from, len + 1), at(to, len + 1));
                let piece = data[a.min(b)..a.max(b)].repeat(*times);
                data.splice(a.max(b)..a.max(b), piece);
            }
            Self::Page(from, to) if len >= 512 => {
                let (from, to) = (at(from, len / 512) * 512, at(to, len / 512) * 512);
                data.copy_within(from..from + 512, to);
            }
            Self::Set(..) | Self::Head(..) | Self::Page(..) => {}
        }
    }
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let byte = prop_oneof![any::<u8>(), 0..20_u8, proptest::sample::select(&b" \t\r\n\0#\x80\xc3\xff"[..])];
    prop_oneof![
        1 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        4 => (any::<Index>(), 0..64_u8, byte.clone()).prop_map(|(at, offset, byte)| Edit::Head(at, offset, byte)),
        1 => (any::<Index>(), byte).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        1 => any::<Index>().prop_map(Edit::Cut),
        1 => (any::<Index>(), any::<Index>(), 1..4_usize).prop_map(|(from, to, times)| Edit::Repeat(from, to, times)),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Edit::Page(from, to)),
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
fn seeds_and_some_of_their_beginnings() {
    for seed in SEEDS {
        let step = 1 + seed.len() / 64;
        for len in (0..=seed.len()).step_by(step).chain([seed.len()]) {
            run_all(&seed[..len]);
        }
    }
}

/// Input made to be slow for a reader that looks at the same octet again and again.
#[test]
fn large_hostile_inputs_take_linear_time() {
    const PIECES: &[&[u8]] = &[
        b"a",
        b"\n",
        b"a \n",
        b"a b\n",
        b"\xff",
        b"\xff\n",
        b"\xff a\n",
        b"\0",
        b" ",
        b"#\n",
        b"\r",
        b" \xff\n",
        "Ä ".as_bytes(),
    ];
    for piece in PIECES {
        run_all(&piece.repeat(200_000 / piece.len()));
    }
}

/// Twice the number of cases proptest is set to, 512 for each body by default; `PROPTEST_CASES=50000` takes some
/// minutes.
#[test]
fn mutated_seeds() {
    let default = ProptestConfig::default();
    let config = ProptestConfig { cases: default.cases.saturating_mul(2), failure_persistence: None, ..default };
    let strategy = (any::<Index>(), proptest::collection::vec(any_edit(), 1..8));
    for (name, body) in BODIES {
        let result = TestRunner::new(config.clone()).run(&strategy, |(seed, edits)| {
            let mut data = SEEDS[seed.index(SEEDS.len())].to_vec();
            for edit in &edits {
                edit.apply(&mut data);
                data.truncate(32_768);
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

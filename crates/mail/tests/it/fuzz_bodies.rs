//! The fuzz bodies as ordinary tests: every body on seeds of its own kind and of all others, whole, cut, spliced and
//! mutated.

use mail::fuzz::BODIES;
use mail::fuzz::seeds::SEEDS;
use testkit::mutation::{Mutations, run_all, run_beginnings, run_mutated};

#[test]
fn seeds_and_all_their_beginnings() {
    run_beginnings(&BODIES, SEEDS);
}

#[test]
fn every_byte_in_every_place_of_a_short_seed() {
    for seed in SEEDS.iter().filter(|seed| seed.len() <= 32) {
        for at in 0..seed.len() {
            for byte in 0..=u8::MAX {
                let mut data = seed.to_vec();
                data[at] = byte;
                run_all(&BODIES, &data);
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
        run_all(&BODIES, &piece.repeat(200_000 / piece.len()));
    }
}

#[test]
fn mutated_seeds() {
    let octets = b"@.<>()[]\"\\:;,=?+-_{} \t\r\n\0\x7f\x80\xc3\xff";
    run_mutated(&BODIES, SEEDS, Mutations { times: 20, octets, octets_max: 8_192, has_pages: false });
}

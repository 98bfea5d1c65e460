//! The fuzz bodies as ordinary tests: every body on real files of all formats, whole, cut, spliced and mutated.

use route::fuzz::BODIES;
use route::fuzz::seeds::SEEDS;
use testkit::mutation::{Mutations, run_all, run_beginnings, run_mutated};

#[test]
fn seeds_and_some_of_their_beginnings() {
    run_beginnings(&BODIES, SEEDS);
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
        run_all(&BODIES, &piece.repeat(200_000 / piece.len()));
    }
}

#[test]
fn mutated_seeds() {
    let octets = b" \t\r\n\0#\x80\xc3\xff";
    run_mutated(&BODIES, SEEDS, Mutations { times: 2, octets, octets_max: 32_768, has_pages: true });
}

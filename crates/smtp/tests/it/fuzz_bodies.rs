//! The fuzz bodies as ordinary tests: every body on all seeds, cut, spliced and mutated.

use smtp::fuzz::BODIES;
use smtp::fuzz::seeds::SEEDS;
use testkit::mutation::{Mutations, run_all, run_beginnings, run_mutated};

#[test]
fn seeds_and_all_their_beginnings() {
    run_beginnings(&BODIES, SEEDS);
}

#[test]
fn mutated_seeds() {
    let octets = b"\r\n\0.: <>@=0123456789LAST";
    run_mutated(&BODIES, SEEDS, Mutations { times: 5, octets, octets_max: 2_048, has_pages: false });
}

/// One read may have more refusals than a session keeps notes of.
#[test]
fn more_notes_than_are_kept() {
    // Limits of two recipients, and a client of our own: it may repeat its errors.
    let input = [&[160][..], b"EHLO a.test\r\nMAIL FROM:<a@b>\r\n", &b"RCPT TO:<c@d>\r\n".repeat(120)].concat();
    run_all(&BODIES, &input);
}

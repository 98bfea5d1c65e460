//! The bodies for fuzzing of this crate: any bytes for the readers of what clients, name servers, directories and users
//! of this machine send.
//!
//! Each body lies with its reader. The tests here run them on mutated seeds; a fuzzer's targets call the same
//! functions.

pub mod seeds;

pub use crate::accept::fuzz::proxy;
pub use crate::auth::fuzz::{exchange, password_file};
pub use crate::dns::fuzz::dns_reply;
pub use crate::lookup::directory::fuzz::ldap_entry;
pub use crate::submit::fuzz::submitted_head;

/// A body and its name.
pub type Body = (&'static str, fn(&[u8]));

/// All bodies.
pub const BODIES: [Body; 6] = [
    ("proxy", proxy),
    ("exchange", exchange),
    ("password_file", password_file),
    ("dns_reply", dns_reply),
    ("ldap_entry", ldap_entry),
    ("submitted_head", submitted_head),
];

#[cfg(test)]
mod tests {
    use super::BODIES;
    use super::seeds::SEEDS;
    use testkit::mutation::{Mutations, run_beginnings, run_mutated};

    #[test]
    fn seeds_and_some_of_their_beginnings() {
        run_beginnings(&BODIES, SEEDS);
    }

    #[test]
    fn mutated_seeds() {
        let octets = b"\0\x01\x04\x0a\x30\x31\xc0\xfe\xff:$\n";
        run_mutated(&BODIES, SEEDS, Mutations { times: 5, octets, octets_max: 2_048, has_pages: false });
    }
}

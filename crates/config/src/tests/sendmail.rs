//! Configurations of sendmail, mutated: what becomes of them is a configuration of ours.

use crate::fuzz::sendmail_configuration;
use testkit::mutation::{Body, Mutations, run_beginnings, run_mutated};

const SEEDS: &[&[u8]] = &[
    include_bytes!("../../../route/src/import/tests/lab.mc"),
    include_bytes!("../../../route/src/import/tests/lab.cf"),
    include_bytes!("../../../route/src/import/tests/packaged.mc"),
    b"define(`confMAX_HOP',`30')dnl\nFEATURE(`access_db',`hash /etc/mail/access')dnl\nDAEMON_OPTIONS(`Port=26')\n",
    b"O MaxHopCount=30\nKaccess hash /etc/mail/access\nO DaemonPortOptions=Name=MTA, Port=smtp, Addr=192.0.2.1\n",
    b"define(`A',`B')A\ninclude(`x')\nifdef(`A',`define(`SMART_HOST',`[192.0.2.1]')')\n",
];
const BODIES: [Body; 1] = [("sendmail_configuration", sendmail_configuration)];

#[test]
fn beginnings() {
    run_beginnings(&BODIES, SEEDS);
}

#[test]
fn mutated() {
    let octets = b"`'(),\n#dn=:[]\"\\";
    run_mutated(&BODIES, SEEDS, Mutations { times: 1, octets, octets_max: 16_384, has_pages: false });
}

//! `-d0.1` and `-d0.4`: the version of this program and the names of this host. Of sendmail's levels these are the ones
//! that programs and people read; the others say nothing here.

use super::arguments::Debug;
use super::site::Site;
use os::addresses;

/// Prints the requested values.
pub(super) fn print_values(levels: Debug, site: &Site) {
    if levels.identity {
        super::say(text(levels, site));
    }
}

fn text(levels: Debug, site: &Site) -> String {
    let name = site.host.as_str();
    let (short, parent) = name.split_once('.').unwrap_or((name, ""));
    let mut text = format!("Version mailrace {}\n", env!("CARGO_PKG_VERSION"));
    text.push_str(" Compiled with: AUTH DNSMAP DSN IPV6 LDAPMAP MIME8TO7 NEWDB PIPELINING SMTPUTF8 STARTTLS\n");
    if levels.addresses {
        text.push_str(&format!("Canonical name: {name}\n"));
        for address in addresses::of_this_machine() {
            text.push_str(&format!("\ta.k.a.: [{address}]\n"));
        }
    }
    text.push_str("\n============ SYSTEM IDENTITY (after readcf) ============\n");
    for (what, value) in [
        ("(short domain name) $w", short),
        ("(canonical domain name) $j", name),
        ("(subdomain name) $m", parent),
        ("(node name) $k", name),
    ] {
        text.push_str(&format!("{what:>28} = {value}\n"));
    }
    text.push_str("========================================================\n\n");
    text
}

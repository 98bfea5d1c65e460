//! `-bv`: where mail for an address would go, in sendmail's words.

use super::arguments::{Arguments, Errors};
use super::exit;
use super::site::Site;
use mail::Address;

/// Prints where each address goes; the exit status.
pub(super) fn run(arguments: &Arguments, site: &Site) -> u8 {
    if arguments.words.is_empty() {
        eprintln!("Recipient names must be specified");
        return exit::USAGE;
    }
    let mut status = exit::OK;
    for word in &arguments.words {
        match mail::submission::named(word, &site.host) {
            Ok(addresses) => {
                for address in addresses {
                    match verify(&address, site) {
                        Ok(line) => println!("{}... {line}", as_given(&address, site)),
                        Err((refusal, line)) => {
                            println!("{}... {line}", as_given(&address, site));
                            status = refusal;
                        }
                    }
                }
            }
            Err(error) => {
                if arguments.errors != Errors::Quiet {
                    println!("{word}... {error}");
                }
                status = exit::USAGE;
            }
        }
    }
    status
}

/// Where an address goes, or the exit status and text of its refusal: by its form, that is whether its domain is this host.
///
/// # Errors
/// It would be refused.
pub(super) fn verify(address: &Address, site: &Site) -> Result<String, (u8, String)> {
    let user = address.local_part();
    match address.domain().name() {
        Some(domain) if domain.ascii() == site.host.ascii() => {
            Ok(format!("deliverable: mailer local, user {}", user.as_str()))
        }
        _ => Ok(format!("deliverable: mailer esmtp, host {}, user {address}", address.domain())),
    }
}

/// `joe` for a user of this host.
pub(super) fn as_given(address: &Address, site: &Site) -> String {
    match address.domain().name() {
        Some(domain) if domain.ascii() == site.host.ascii() => address.local_part().as_str().to_owned(),
        _ => address.to_string(),
    }
}

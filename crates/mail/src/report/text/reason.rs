//! The meaning of an enhanced status code for a sender: the likely reason, and the remedy (RFC 3463 §3, as registered
//! by RFC 5248).
//!
//! It speaks with care: servers choose codes loosely, and their own words follow. A code that says nothing gives none.

use crate::address::Domain;
use crate::enhanced_code::{EnhancedCode, Outcome};
use crate::report::Kind;

/// Says the reason in one or two sentences.
pub(super) fn of(kind: Kind, status: EnhancedCode, domain: &Domain) -> Option<String> {
    match kind {
        Kind::Failed if status.outcome() == Outcome::Transient || (status.subject(), status.detail()) == (4, 7) => {
            let why = temporary(status).unwrap_or("The obstacle may be gone some day.");
            Some(format!(
                "It was tried again and again until its time was over. {why} If it is still of use, send it again, or \
                 try another way."
            ))
        }
        Kind::Failed => permanent(status, domain),
        Kind::Delayed => temporary(status).map(str::to_owned),
        Kind::Delivered | Kind::Relayed | Kind::Traced | Kind::Expanded => None,
    }
}

fn permanent(status: EnhancedCode, domain: &Domain) -> Option<String> {
    let text = match (status.subject(), status.detail()) {
        (1, 1 | 6) => {
            return Some(format!(
                "There seems to be no such mailbox at {domain}. Look for a typing error in the address, or ask the \
                 person for the right one in another way."
            ));
        }
        (1, 2 | 10) => {
            return Some(format!(
                "The part behind the @, {domain}, does not exist or takes no mail. Look for a typing error in it."
            ));
        }
        (1, 3) => "The other server does not understand the address. Look for a typing error in it.",
        (1, 7 | 8) => "The other server does not accept your own address as sender.",
        (2, 1) => "The mailbox does not take messages at present. Ask the person in another way.",
        (2, 2) => "The mailbox is full. Tell the person in another way, or send the message again some days later.",
        (2, 3) | (3, 4) => {
            "The message is larger than the other server takes. Send it in smaller pieces, or leave out what is attached."
        }
        (4, 4) => {
            return Some(format!("No server is known that takes mail for {domain}. Look for a typing error in it."));
        }
        (4, 6) => "The message went in a circle between servers. Only their administrators can mend that.",
        (4, _) => "The other server could not be reached.",
        (6, 7) => "The address has letters beyond ASCII, which a server on the way cannot carry.",
        (6, _) => "The message has content in a form that the other server does not take.",
        (7, 10 | 30) => "The message asks for encryption that a server on the way does not offer, so it was not sent.",
        (7, _) => {
            "The other server refused the message by its own rules; perhaps it takes it for unwanted mail. Its words \
             may say how to mend that; else the recipient, or the administrator there, can help."
        }
        (3, _) | (5, _) => "The other server did not take the message. Its administrator can say more.",
        _ => return None,
    };
    Some(text.to_owned())
}

const fn temporary(status: EnhancedCode) -> Option<&'static str> {
    Some(match (status.subject(), status.detail()) {
        (1, 8) => "The other server could not check your own address.",
        (2, 2) => "The mailbox is full; perhaps it will be emptied.",
        (3, 1) => "The other server has no room at present.",
        (4, 3) | (4, 4) => "The address of the other server could not be found out.",
        (2, _) => "The mailbox does not take messages at present.",
        (3, _) => "The other server is busy or has some trouble.",
        (4, _) => "The other server could not be reached, or it broke off.",
        (7, 10 | 30) => "The message asks for encryption that a server on the way did not offer.",
        (7, _) => "The other server asks to come back later. Many do so with senders they do not know yet.",
        _ => return None,
    })
}

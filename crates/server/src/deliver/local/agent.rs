//! One delivery: the person is found, root is given up for him, and the message goes where it belongs.
//!
//! [`carry_out`] runs on a thread of the server that may wait, with the rights of the server alone; or in a process of its own that
//! was root until here ([`privileged`](super::privileged)).

use super::file::{into_file, into_mailbox};
use super::letter::{Content, Letter};
use super::maildir::into_maildir;
use super::order::{Order, Settings, Verdict, What};
use super::person::{self, Person, Rights};
use super::program::into_program;
use crate::config::Mailbox;
use crate::env::accounts::Accounts;
use crate::env::privileges::{self, Account};

/// Delivers a message to one recipient. When it says that it is done, it is durable, or a program has taken it.
pub(crate) fn carry_out(order: &Order, settings: &Settings, rights: Rights, content: &mut dyn Content) -> Verdict {
    let accounts = match Accounts::read_with(&settings.accounts) {
        Ok(accounts) => accounts.with_nss(settings.has_nss),
        Err(error) => return Verdict::deferred((3, 0), error.to_string()),
    };
    let person = match person::find(order, settings, &accounts, rights) {
        Ok(person) => person,
        Err(verdict) => return verdict,
    };
    if rights == Rights::Anybody
        && let Err(error) = become_user(&person)
    {
        return Verdict::deferred((3, 0), error.to_string());
    }
    let mut letter = match Letter::open(order, content, settings.header_max) {
        Ok(letter) => letter,
        Err(verdict) => return verdict,
    };
    match (&order.what, &settings.mailbox, &person.mailbox) {
        (What::Mailbox, Mailbox::Maildir(_), Some(path)) => into_maildir(&mut letter, order, path, &person, settings),
        (What::Mailbox, _, Some(path)) => into_mailbox(&mut letter, path, &person, settings),
        // `person::find` has said so before.
        (What::Mailbox, _, None) => Verdict::deferred((3, 5), "local.mailbox names no mailbox"),
        (What::Program { command, .. }, ..) => into_program(&mut letter, order, command, &person, settings, rights),
        (What::File { path, .. }, ..) => into_file(&mut letter, path, &person, settings),
    }
}

/// From root to a person, for good.
fn become_user(person: &Person) -> Result<(), privileges::Error> {
    let login = &person.login;
    let (name, groups) = (login.name.clone(), login.groups.clone());
    privileges::drop_to(&Account { name, uid: login.uid, gid: login.gid, groups })
}

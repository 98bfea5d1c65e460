//! Orders are carried out: the person is found, root is given up for him, and his messages go where they belong.
//!
//! An [`Agent`] works on a thread of the server that may wait, with the rights of the server alone; or in a process of
//! its own that was root until its first order ([`privileged`](super::privileged)). Such a process is one person from
//! then on, and has nothing to say about orders for another: they are deferred. Orders that follow one another to the
//! same place are put there together.

use super::file::{Mailbox, NOWHERE};
use super::letter::{Content, MailboxMessage, Orders};
use super::maildir::Maildir;
use super::order::{DeliveryRequest, Settings, Verdict, What};
use super::person::{self, Rights, TargetUser};
use super::program::deliver_to_program;
use config;
use os::accounts::Kept;
use os::login::Login;
use os::privileges::{self, Account};
use os::seccomp;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The process that delivers.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    accounts: Kept,
    rights: Rights,
    /// The user that the process has become.
    login: OnceLock<Login>,
}

/// The user and the place of a delivery. Orders with the same target are carried out together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTarget {
    /// The user whose rights the delivery has.
    pub person: TargetUser,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Mbox(PathBuf),
    Maildir(PathBuf),
    Program(String),
    File(PathBuf),
    Nowhere,
}

impl DeliveryTarget {
    /// Whether messages for it can be put together.
    pub const fn is_mailbox(&self) -> bool {
        matches!(self.kind, Kind::Mbox(_) | Kind::Maildir(_))
    }

    /// Whether it takes a process that does nothing else.
    pub const fn is_program(&self) -> bool {
        matches!(self.kind, Kind::Program(_))
    }

    /// For people.
    pub fn name(&self) -> String {
        match &self.kind {
            Kind::Mbox(path) | Kind::Maildir(path) | Kind::File(path) => path.display().to_string(),
            Kind::Program(command) => format!("\"|{command}\""),
            Kind::Nowhere => NOWHERE.to_owned(),
        }
    }
}

impl Agent {
    /// Makes an agent with these rights; with those of anybody, root is given up at the first order.
    pub const fn new(settings: Settings, accounts: Kept, rights: Rights) -> Self {
        Self { settings, accounts, rights, login: OnceLock::new() }
    }

    /// Whether the accounts of the machine can be read.
    pub fn reads_accounts(&self) -> bool {
        self.accounts.now().is_ok()
    }

    /// Finds the mailbox, file or program that an order is for.
    ///
    /// # Errors
    /// Nowhere, or not with these rights.
    pub fn find_target(&self, order: &DeliveryRequest) -> Result<DeliveryTarget, Verdict> {
        let accounts = self.accounts.now().map_err(|error| Verdict::deferred((3, 0), error.to_string()))?;
        let mut person = person::find_target_user(order, &self.settings, &accounts, self.rights)?;
        let has_folders = self.settings.subfolders && matches!(self.settings.mailbox, config::Mailbox::Maildir(_));
        if order.what == What::Mailbox && !has_folders {
            // It changes nothing: all of it is one place.
            person.detail = None;
        }
        let kind = match (&order.what, &self.settings.mailbox, &person.mailbox) {
            (What::Mailbox, config::Mailbox::Maildir(_), Some(path)) => Kind::Maildir(path.clone()),
            (What::Mailbox, _, Some(path)) => Kind::Mbox(path.clone()),
            // `person::find` has said so before.
            (What::Mailbox, _, None) => return Err(Verdict::deferred((3, 5), "local.mailbox names no mailbox")),
            (What::Program { command, .. }, ..) => Kind::Program(command.clone()),
            (What::File { path, .. }, ..) if path == NOWHERE => Kind::Nowhere,
            (What::File { path, .. }, ..) => Kind::File(path.into()),
        };
        Ok(DeliveryTarget { person, kind })
    }

    /// Delivers the messages of a batch, and returns a verdict for each, in their order. A message that a verdict calls
    /// delivered is durable, or a program has taken it.
    pub fn deliver_batch(&self, orders: &mut dyn Orders) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let mut next = orders.next_order();
        while let Some(order) = next.take() {
            match self.find_target(&order).and_then(|place| self.become_it(&place).map(|()| place)) {
                Ok(place) => next = self.deliver(order, &place, orders, &mut verdicts),
                Err(verdict) => {
                    verdicts.push(verdict);
                    next = orders.next_order();
                }
            }
        }
        verdicts
    }

    /// Makes a process with the rights of anybody a process of the target's user. The process stays that user.
    fn become_it(&self, place: &DeliveryTarget) -> Result<(), Verdict> {
        if self.rights != Rights::Anybody {
            return Ok(());
        }
        let login = &place.person.login;
        match self.login.get() {
            None => {
                become_user(login).map_err(|error| Verdict::deferred((3, 0), error.to_string()))?;
                // The needs of a user's own program are not known, so only other deliveries are restricted. A kernel
                // may not have seccomp.
                if self.settings.has_seccomp && !place.is_program() {
                    drop(seccomp::apply());
                }
                self.login.get_or_init(|| login.clone());
                Ok(())
            }
            Some(_) if place.is_program() => {
                Err(Verdict::deferred((3, 0), "a program is run by a process that has done nothing else before"))
            }
            Some(known) if known == login => Ok(()),
            Some(known) => {
                let text =
                    format!("the account of {} has changed just now, or this is mail for {}", known.name, login.name);
                Err(Verdict::deferred((3, 0), text))
            }
        }
    }

    /// Delivers a message, and those that follow it to the same place. The first order for another one, if there is
    /// one.
    fn deliver(
        &self,
        order: DeliveryRequest,
        place: &DeliveryTarget,
        orders: &mut dyn Orders,
        verdicts: &mut Vec<Verdict>,
    ) -> Option<DeliveryRequest> {
        let mut drawer = self.open(place);
        // Where it stands among the verdicts, of each that is delivered if all is well in the end.
        let mut put = Vec::new();
        let mut now = order;
        let next = loop {
            let done = match &mut drawer {
                Ok(drawer) => self.put(drawer, &now, place, orders),
                Err(verdict) => Err(verdict.clone()),
            };
            if done.is_ok() {
                put.push(verdicts.len());
            }
            verdicts.push(done.err().unwrap_or_else(Verdict::delivered));
            match orders.next_order() {
                Some(order) if place.is_mailbox() && self.find_target(&order).is_ok_and(|other| other == *place) => {
                    now = order
                }
                other => break other,
            }
        };
        if let Ok(drawer) = drawer {
            for (at, end) in put.iter().zip(drawer.close(put.len())) {
                if let (Some(verdict), Err(failed)) = (verdicts.get_mut(*at), end) {
                    *verdict = failed;
                }
            }
        }
        next
    }

    fn open(&self, place: &DeliveryTarget) -> Result<Drawer, Verdict> {
        let person = &place.person;
        match &place.kind {
            Kind::Mbox(path) => Mailbox::open(path, person, &self.settings).map(|file| Drawer::File(Box::new(file))),
            Kind::File(path) => {
                Mailbox::open_file(path, person, &self.settings).map(|file| Drawer::File(Box::new(file)))
            }
            Kind::Maildir(path) => {
                Maildir::open(path, person, &self.settings).map(|maildir| Drawer::Maildir(Box::new(maildir)))
            }
            Kind::Program(_) | Kind::Nowhere => Ok(Drawer::None),
        }
    }

    fn put(
        &self,
        drawer: &mut Drawer,
        order: &DeliveryRequest,
        place: &DeliveryTarget,
        content: &mut dyn Orders,
    ) -> Result<(), Verdict> {
        let content: &mut dyn Content = content;
        let mut letter = MailboxMessage::open(order, content, order.header_max.min(HEADER_MAX))?;
        match (drawer, &place.kind) {
            (Drawer::File(file), _) => file.append(&mut letter),
            (Drawer::Maildir(maildir), _) => maildir.write_message(&mut letter),
            (Drawer::None, Kind::Program(command)) => {
                let verdict =
                    deliver_to_program(&mut letter, order, command, &place.person, &self.settings, self.rights);
                if verdict.end == super::order::DeliveryEnd::Delivered { Ok(()) } else { Err(verdict) }
            }
            (Drawer::None, _) => Ok(()),
        }
    }
}

/// Octets of a header that are looked at, whatever size an order names.
const HEADER_MAX: u64 = 64 << 20;

/// Where messages are being put.
enum Drawer {
    File(Box<Mailbox>),
    Maildir(Box<Maildir>),
    /// They are gone already.
    None,
}

impl Drawer {
    /// Closes the file or Maildir, and returns the result of each of so many messages.
    fn close(self, messages: usize) -> Vec<Result<(), Verdict>> {
        match self {
            Self::File(file) => vec![file.close(); messages],
            Self::Maildir(maildir) => maildir.publish(),
            Self::None => Vec::new(),
        }
    }
}

/// From root to a person, for good.
fn become_user(login: &Login) -> Result<(), privileges::Error> {
    let (name, groups) = (login.name.clone(), login.groups.clone());
    privileges::drop_to(&Account { name, uid: login.uid, gid: login.gid, groups })
}

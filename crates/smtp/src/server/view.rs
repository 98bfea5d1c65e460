//! The values that a driver reads between the calls: the client, its commands so far, the open transaction.

use std::sync::Arc;

use mail::{Client, HeloName, Protocol, Recipient};

use super::content::Content;
use super::phase::{PendingQuestion, Phase};
use super::session::Session;
use super::{Dialect, Settings, Tls, Transaction, Xclient};

impl Session {
    /// The client, after XCLIENT the one it speaks for.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// New settings from the next transaction on.
    pub fn replace_settings(&mut self, settings: Arc<Settings>) {
        if self.open.is_none() && self.new_transaction.is_none() {
            self.settings = settings;
        } else {
            self.next_settings = Some(settings);
        }
    }

    /// The name the client gave itself; while [`Question::Helo`] is open, the new one.
    #[must_use]
    pub fn helo(&self) -> Option<&HeloName> {
        self.new_hello.as_ref().or(self.hello.as_ref()).map(|hello| &hello.name)
    }

    /// The word after `with` in the trace line.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        let utf8 = self.transaction().is_some_and(|transaction| transaction.params.smtputf8);
        let session = mail::Session { tls: self.tls.is_some(), auth: self.identity.is_some(), utf8 };
        let dialect = self.settings.dialect;
        match &self.hello {
            Some(_) if dialect == Dialect::Lmtp => Protocol::Lmtp(session),
            Some(hello) if hello.extended => Protocol::Esmtp(session),
            None if dialect == Dialect::Stdin => Protocol::Local,
            _ => Protocol::Smtp,
        }
    }

    /// Encryption, if there is any.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The authenticated user.
    #[must_use]
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// The open transaction; while [`Question::Mail`] is open, the one that would begin.
    #[must_use]
    pub fn transaction(&self) -> Option<&Transaction> {
        self.new_transaction.as_ref().or_else(|| self.open.as_ref().map(|open| &open.transaction))
    }

    /// The recipient that [`Question::Recipient`] is about.
    #[must_use]
    pub fn candidate(&self) -> Option<&Recipient> {
        self.candidate.as_ref()
    }

    /// Returns the argument of VRFY or EXPN.
    #[must_use]
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// Returns the line that [`Question::Unknown`] is about, without its line end.
    #[must_use]
    pub fn unknown_command(&self) -> Option<&[u8]> {
        if let Phase::Asked(PendingQuestion::Unknown(line)) = &self.phase { Some(line) } else { None }
    }

    /// The attributes of the XCLIENT command that [`Question::Xclient`] is about.
    #[must_use]
    pub fn xclient(&self) -> Option<&Xclient> {
        self.xclient.as_ref()
    }

    /// Octets of content of the open message, stored form, without trace line.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content().map_or(0, Content::stored)
    }

    /// The Message-ID of the open message once its header has passed, for the log; at most 256 octets, printable.
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.content().and_then(Content::message_id)
    }

    /// Returns the value of the first `Precedence:` of the content in sendmail's table: list -30, bulk -60, junk -100,
    /// special-delivery 100; everything else 0.
    #[must_use]
    pub fn precedence(&self) -> i32 {
        self.content().map_or(0, Content::precedence)
    }

    /// Whether the content has a `List-Id:`, so comes from a mailing list.
    #[must_use]
    pub fn has_list_id(&self) -> bool {
        self.content().is_some_and(Content::has_list_id)
    }

    /// The values of the first hundred `Delivered-To:` fields of the content, with the text around the address: the
    /// earlier recipients, as far as the fields are believed.
    #[must_use]
    pub fn delivered_to(&self) -> &[Box<[u8]>] {
        self.content().map_or(&[], Content::delivered_to)
    }
}

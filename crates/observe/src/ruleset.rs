//! Decisions about a session and its mail, in sendmail's words.

/// Where something was refused, by the names of sendmail's rulesets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ruleset {
    /// `check_relay`: the connection.
    Relay,
    /// `check_helo`: HELO, EHLO, LHLO.
    Helo,
    /// `check_mail`: the sender.
    Mail,
    /// `check_rcpt`: a recipient.
    Rcpt,
    /// `check_data`: before the content.
    Data,
    /// `check_eom`: the content, or that it could not be stored.
    Eom,
    /// `check_vrfy`
    Vrfy,
    /// `check_expn`
    Expn,
    /// `check_command`: any other command; sendmail has no such ruleset.
    Command,
}

impl Ruleset {
    /// The name in the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relay => "check_relay",
            Self::Helo => "check_helo",
            Self::Mail => "check_mail",
            Self::Rcpt => "check_rcpt",
            Self::Data => "check_data",
            Self::Eom => "check_eom",
            Self::Vrfy => "check_vrfy",
            Self::Expn => "check_expn",
            Self::Command => "check_command",
        }
    }

    /// Every ruleset.
    pub const ALL: [Self; 9] =
        [Self::Relay, Self::Helo, Self::Mail, Self::Rcpt, Self::Data, Self::Eom, Self::Vrfy, Self::Expn, Self::Command];
}

/// The effect of an entry of the access map on a message that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It is dropped.
    Discard,
    /// It is held until a person releases it, for this reason.
    Quarantine(&'a str),
}

//! Mechanisms of AUTH that the client knows, and the set of those that a server offers.

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// PLAIN (RFC 4616)
    Plain,
    /// LOGIN, which no RFC describes: name and password, each asked for.
    Login,
    /// CRAM-MD5 (RFC 2195)
    CramMd5,
}

impl Mechanism {
    /// All, in the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Login, Self::CramMd5];

    /// The mechanism of this name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str().eq_ignore_ascii_case(name))
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Login => "LOGIN",
            Self::CramMd5 => "CRAM-MD5",
        }
    }

    /// Whether who listens learns the password.
    pub(super) const fn shows_password(self) -> bool {
        matches!(self, Self::Plain | Self::Login)
    }
}

/// Mechanisms of AUTH that a server offers, of those that we know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mechanisms {
    /// PLAIN
    pub plain: bool,
    /// LOGIN
    pub login: bool,
    /// CRAM-MD5
    pub cram_md5: bool,
}

impl Mechanisms {
    /// Whether there is none.
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether this one is offered.
    pub(super) const fn has(self, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::Plain => self.plain,
            Mechanism::Login => self.login,
            Mechanism::CramMd5 => self.cram_md5,
        }
    }

    pub(super) fn add(&mut self, name: &[u8]) {
        match str::from_utf8(name).ok().and_then(Mechanism::parse) {
            Some(Mechanism::Plain) => self.plain = true,
            Some(Mechanism::Login) => self.login = true,
            Some(Mechanism::CramMd5) => self.cram_md5 = true,
            None => {}
        }
    }
}

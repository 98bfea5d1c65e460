//! `[local]`: mail for people and programs of this machine, and where their mailboxes are.

use super::{HostPort, NoHost};
use mail::DomainName;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Mail for people and programs of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// So is that of `hostname`.
    pub own_name: bool,
    /// Domains whose mail is for here.
    pub domains: Vec<DomainName>,
    /// Files with such names, one a line.
    pub domain_files: Vec<PathBuf>,
    /// The delimiter between a user and a detail, one character; empty: there are no details.
    pub delimiter: String,
    /// The reply to a name that is neither an alias nor a user.
    pub unknown: Unknown,
    /// The next hop of mail to names that are neither alias nor user; empty: it is refused.
    pub luser_relay: String,
    /// The file of users, as `/etc/passwd`.
    pub accounts: PathBuf,
    /// Users whom the C library finds count as well.
    pub nss: bool,
    /// Users may have a `.forward`.
    pub forward: bool,
    /// Where a mailbox is.
    pub mailbox: Mailbox,
    /// The user that writes all mailboxes; empty: each user writes his own.
    pub mailbox_user: String,
    /// A group that the writer of a mailbox has besides his own; empty: none.
    pub mailbox_group: String,
    /// The most octets a mailbox file may have; 0: no limit.
    pub mailbox_size_max: u64,
    /// `dotlock`, `fcntl`
    pub locks: Vec<String>,
    /// How long a locked mailbox is waited for.
    pub lock_time_max: Duration,
    /// A Maildir's folder of the name of the detail takes the mail, where there is one.
    pub subfolders: bool,
    /// Where programs may be.
    pub programs: Vec<PathBuf>,
    /// How long a program may run.
    pub program_time_max: Duration,
    /// Processes that its user may have while a program runs.
    pub program_processes_max: u32,
    /// Where there is no root to become their user, programs run as the server.
    pub programs_as_server: bool,
    /// Where files of aliases may be; `%h` is the home of the user.
    pub files: Vec<String>,
    /// The user that runs programs and writes files of aliases: `USER` or `USER:GROUP`; empty: see
    /// [`Local::default_user_of`].
    pub default_user: String,
    /// Users below this number run no programs.
    pub uid_min: u32,
    /// The most octets of an `:include:` file that an alias names.
    pub list_size_max: u64,
    /// Deliveries at once.
    pub deliveries_max: u32,
}

impl Local {
    /// The user for programs and files of aliases that `text` names: itself, or where it is empty, sendmail's own user
    /// of that name or the one that owns nothing. `is_there`: whether there is such a user.
    #[must_use]
    pub fn default_user_of(text: &str, is_there: impl Fn(&str) -> bool) -> &str {
        match text {
            "" if is_there("mailnull") => "mailnull",
            "" => "nobody",
            given => given,
        }
    }

    /// Says whether the C library may be asked for users that the file of users lacks: only beside the file of the
    /// machine.
    #[must_use]
    pub fn allows_nss(&self) -> bool {
        self.nss && self.accounts.as_os_str() == "/etc/passwd"
    }
}

/// The treatment of mail to a name that is neither an alias nor a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is refused for good.
    Refuse,
    /// It is refused for now.
    Defer,
}

/// Where a mailbox is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mailbox {
    /// A file for each user.
    Mbox(Template),
    /// A directory for each user.
    Maildir(Template),
    /// With a server of this machine.
    LmtpSocket(PathBuf),
    /// With a server elsewhere.
    LmtpHost(HostPort),
    /// There are none.
    None,
}

/// The name of a mailbox with `%u` for the user, `%d` for the domain, `%h` for the home directory and `%%` for `%`.
///
/// It is a full name, differs from user to user, and has no `..` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Box<str>);

/// The values for the codes of a [`Template`].
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// `%u`
    pub user: &'a str,
    /// `%d`
    pub domain: &'a str,
    /// `%h`; `None`: the user has no home.
    pub home: Option<&'a str>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn new(text: &str) -> Result<Self, NoMailbox> {
        let no = |why: String| Err(NoMailbox { why, meant: None });
        if !text.starts_with('/') && text != "%h" && !text.starts_with("%h/") {
            return no("does not begin with \"/\" or \"%h/\"".to_owned());
        }
        if text.split('/').any(|part| part == "..") || text.ends_with('/') {
            return no("has a \"..\" in it, or no name at its end".to_owned());
        }
        let mut is_personal = false;
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match (letter == '%').then(|| letters.next()) {
                None | Some(Some('d' | '%')) => {}
                Some(Some('u' | 'h')) => is_personal = true,
                Some(other) => {
                    let code: String = other.into_iter().collect();
                    return no(format!("has \"%{code}\", which means nothing"));
                }
            }
        }
        if is_personal { Ok(Self(text.into())) } else { no("is the same for all users".to_owned()) }
    }

    /// Whether a user needs a home for it.
    #[must_use]
    pub fn needs_home(&self) -> bool {
        self.0.starts_with("%h")
    }

    /// The name for a user; `None` where he has no home, or a name that leads elsewhere.
    #[must_use]
    pub fn path(&self, names: &Names<'_>) -> Option<PathBuf> {
        let is_plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
        let mut path = String::new();
        let mut letters = self.0.chars();
        while let Some(letter) = letters.next() {
            match (letter == '%').then(|| letters.next()) {
                None => path.push(letter),
                Some(Some('u')) if is_plain(names.user) => path.push_str(names.user),
                Some(Some('d')) if is_plain(names.domain) => path.push_str(names.domain),
                Some(Some('h')) => path.push_str(names.home.filter(|home| home.starts_with('/'))?),
                Some(Some('%')) => path.push('%'),
                Some(_) => return None,
            }
        }
        Some(path.into())
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbox(template) => write!(f, "mbox:{template}"),
            Self::Maildir(template) => write!(f, "maildir:{template}"),
            Self::LmtpSocket(path) => write!(f, "lmtp:unix:{}", path.display()),
            Self::LmtpHost(host) => write!(f, "lmtp:{host}"),
            Self::None => f.write_str("none"),
        }
    }
}

/// A text that names no mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoMailbox {
    /// The fault, behind the name of the template.
    pub why: String,
    /// The template that may have been meant.
    pub meant: Option<String>,
}

impl FromStr for Mailbox {
    type Err = NoMailbox;

    fn from_str(text: &str) -> Result<Self, NoMailbox> {
        let no = |why: &str| NoMailbox { why: why.to_owned(), meant: None };
        if text == "none" {
            return Ok(Self::None);
        }
        match text.split_once(':') {
            Some(("mbox", rest)) => Template::new(rest).map(Self::Mbox),
            Some(("maildir" | "Maildir", rest)) => Template::new(rest).map(Self::Maildir),
            Some(("lmtp", rest)) => match rest.strip_prefix("unix:") {
                Some(path) if path.starts_with('/') => Ok(Self::LmtpSocket(path.into())),
                Some(_) => Err(no("names no socket by its full name")),
                None if rest.starts_with('/') => {
                    Err(NoMailbox { meant: Some(format!("lmtp:unix:{rest}")), ..no("names no host") })
                }
                None => match rest.parse::<HostPort>() {
                    // RFC 2033 §5: LMTP is not spoken on the port of SMTP
                    Ok(host) if host.port == 25 => Err(no("names no port; 25 is that of SMTP")),
                    Ok(host) => Ok(Self::LmtpHost(host)),
                    Err(NoHost::NameInBrackets(_)) => Err(no("has a name in brackets")),
                    Err(_) => Err(no("names no host and port")),
                },
            },
            _ if text.starts_with('/') || text.starts_with("%h/") => {
                Err(NoMailbox { meant: Some(format!("mbox:{text}")), ..no("does not say of which kind it is") })
            }
            _ => Err(no("is no mailbox")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for text in [
            "mbox:/var/mail/%u",
            "mbox:%h/mbox",
            "maildir:%h/Maildir",
            "maildir:/srv/mail/%d/%u",
            "lmtp:unix:/run/dovecot/lmtp",
            "lmtp:[127.0.0.1]:24",
            "lmtp:mail.example:2003",
            "none",
        ] {
            assert_eq!(text.parse::<Mailbox>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "mbox:/var/mail/all",
            "mbox:var/%u",
            "mbox:/var/../%u",
            "mbox:/var/%u/",
            "maildir:/x/%q%u",
            "maildir:/x/%u%",
            "lmtp:unix:run",
            "lmtp:a.example",
            "lmtp:[127.0.0.1]:25",
            "imap:x",
        ] {
            assert!(text.parse::<Mailbox>().is_err(), "{text}");
        }
        assert_eq!("/var/mail/%u".parse::<Mailbox>().unwrap_err().meant.as_deref(), Some("mbox:/var/mail/%u"));
    }

    #[test]
    fn no_user_leads_elsewhere() {
        let template = Template::new("/srv/%d/%u").unwrap();
        let path = |user, domain| template.path(&Names { user, domain, home: None });
        assert_eq!(path("joe", "a.example"), Some("/srv/a.example/joe".into()));
        for user in ["", ".", "..", "../root", "a/b", ".ssh", "a\0"] {
            assert_eq!(path(user, "a.example"), None, "{user:?}");
            assert_eq!(path("joe", user), None, "{user:?}");
        }
        let home = Template::new("%h/Maildir").unwrap();
        let at = |home_of| home.path(&Names { user: "joe", domain: "x", home: home_of });
        assert_eq!((at(Some("/users/joe")), at(Some("")), at(None)), (Some("/users/joe/Maildir".into()), None, None));
    }
}

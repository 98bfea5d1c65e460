//! Finds the user who wrote a file, and whether the sender in it is his own, whatever the file says.
//!
//! A user's own sender is the login name with `hostname` behind it, as the sendmail command writes it, or any other
//! login name with the same uid. Another sender is used all the same, and gets the field `X-Authentication-Warning`,
//! unless root or a user of `submit.trusted` (sendmail's class t) has chosen it. A user without a login name has his
//! number as his name.

use crate::context::Context;
use mail::{Address, Domain, DomainName, LocalPart, ReversePath};
use os::accounts::Accounts;
use os::blocking;
use std::time::Duration;

/// Time limit of the search for a user who is in no file of this machine.
const NAMING_TIME_MAX: Duration = Duration::from_secs(5);

/// A user that submits mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// The login name, or the number.
    pub(super) name: String,
    /// The sender is his own, or he may choose any.
    pub(super) may_send: bool,
}

/// Finds the user of a file with this sender.
pub(super) async fn find(context: &Context, uid: u32, sender: &ReversePath) -> User {
    let live = context.live.load_full();
    let sender = sender.clone();
    let look = blocking::run(move || {
        let config = &live.config;
        let accounts = Accounts::read().unwrap_or_default().with_nss(true);
        judge(&accounts, uid, &sender, &config.hostname, &config.submit.trusted)
    });
    // A user that cannot be found is not trusted.
    let unknown = || User { name: uid.to_string(), may_send: uid == 0 };
    tokio::time::timeout(NAMING_TIME_MAX, look).await.ok().and_then(Result::ok).unwrap_or_else(unknown)
}

fn judge(accounts: &Accounts, uid: u32, sender: &ReversePath, host: &str, trusted: &[String]) -> User {
    let found = accounts.find_uid(uid).ok().flatten();
    let name = found.map_or_else(|| uid.to_string(), |login| login.name);
    let is_he = |other: &str| other == name || accounts.login(other).is_some_and(|login| login.uid == uid);
    let is_trusted = uid == 0 || trusted.iter().any(|other| is_he(other));
    let is_own = || {
        let address = sender.address()?;
        let local = address.local_part().as_str();
        let own = Address::new(LocalPart::new(local).ok()?, Domain::Name(DomainName::new(host).ok()?)).ok()?;
        (is_he(local) && own.key() == address.key()).then_some(())
    };
    let may_send = is_trusted || is_own().is_some();
    User { name, may_send }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_own_by_name_and_host() {
        let passwd = "root:x:0:0::/:\njoe:x:1000:1000::/:\njoseph:x:1000:1000::/:\nann:x:1001:1001::/:\nwww:x:33:33::/:\n1001:x:1002:1002::/:\n";
        let accounts = Accounts::from_text(passwd, "");
        let trusted = ["www".to_owned(), "4711".to_owned()];
        let judge = |uid, sender: &str| {
            let sender = match sender {
                "" => ReversePath::Null,
                text => ReversePath::Address(text.parse().unwrap()),
            };
            judge(&accounts, uid, &sender, "Mx.Test", &trusted)
        };
        for (uid, sender, name, may_send) in [
            (1_000, "joe@mx.test", "joe", true),
            (1_000, "joe@MX.TEST", "joe", true),
            (1_000, "joseph@mx.test", "joe", true),
            (1_000, "JOE@mx.test", "joe", false),
            (1_000, "joe+x@mx.test", "joe", false),
            (1_000, "ann@mx.test", "joe", false),
            (1_000, "joe@other.test", "joe", false),
            (1_000, "", "joe", false),
            (1_000, "root@mx.test", "joe", false),
            (0, "anybody@other.test", "root", true),
            (0, "", "root", true),
            (33, "anybody@other.test", "www", true),
            // A login name of digits is not the number of another user.
            (1_001, "1001@mx.test", "ann", false),
            (1_002, "1001@mx.test", "1001", true),
            (4_712, "4712@mx.test", "4712", true),
            (4_712, "joe@mx.test", "4712", false),
            (4_711, "joe@mx.test", "4711", true),
        ] {
            assert_eq!(judge(uid, sender), User { name: name.to_owned(), may_send }, "{uid} {sender}");
        }
    }
}

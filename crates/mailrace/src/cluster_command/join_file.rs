//! The file that goes from the first node of a cluster to the others: its id, login, addresses and node numbers.
//!
//! It is TOML with a version. Every value ends up in a configuration of nats-server, so none may hold a character that
//! has a meaning there.

use server::config::HostPort;
use std::fmt::Write as _;
use toml_edit::{DocumentMut, Item, Value};

/// The version of the form.
const VERSION: i64 = 1;
/// The port of nats-server for clients.
pub(super) const ENGINE_PORT: u16 = 4_222;
/// The port of nats-server for other servers.
pub(super) const ROUTE_PORT: u16 = 6_222;
/// The user of mailrace at the engines.
const USER: &str = "mailrace";
/// The user of nats-server at other servers.
const ROUTE_USER: &str = "route";
/// The user of the engines' system account.
const SYSTEM_USER: &str = "system";
/// Letters of a name or a password.
const LETTERS_MAX: usize = 128;

/// A user of the engines' system account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SystemLogin {
    pub(super) user: String,
    pub(super) password: String,
}

/// The facts that all nodes have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterFacts {
    /// 32 hex digits.
    pub(super) id: String,
    /// The name of the cluster of nats-server.
    pub(super) name: String,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) route_user: String,
    pub(super) route_password: String,
    /// The login at the system account of the engines; a file of an older mailrace has none.
    pub(super) system: Option<SystemLogin>,
    /// Numbers that nodes have.
    pub(super) nodes: Vec<u16>,
    /// Addresses of engines for clients.
    pub(super) engines: Vec<String>,
    /// Addresses of engines for other engines.
    pub(super) routes: Vec<String>,
}

impl ClusterFacts {
    /// The facts of a new cluster, without addresses.
    pub(super) fn new(name: &str, random: impl Fn() -> String) -> Self {
        Self {
            id: random(),
            name: name.to_owned(),
            user: USER.to_owned(),
            password: random(),
            route_user: ROUTE_USER.to_owned(),
            route_password: random(),
            system: Some(SystemLogin { user: SYSTEM_USER.to_owned(), password: random() }),
            nodes: Vec::new(),
            engines: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        let mut text = "\
# A cluster of mailrace, for \"mailrace cluster join --file FILE\" at each further node.
# It holds passwords: mode 0600, and remove it when all nodes have joined.
"
        .to_owned();
        let list = |items: &[String]| items.iter().map(String::as_str).collect::<Value>();
        let nodes: Value = self.nodes.iter().map(|node| i64::from(*node)).collect();
        let system = self.system.iter().flat_map(|system| {
            [("system_user", system.user.as_str().into()), ("system_password", system.password.as_str().into())]
        });
        let logins = [
            ("version", Value::from(VERSION)),
            ("id", self.id.as_str().into()),
            ("name", self.name.as_str().into()),
            ("user", self.user.as_str().into()),
            ("password", self.password.as_str().into()),
            ("route_user", self.route_user.as_str().into()),
            ("route_password", self.route_password.as_str().into()),
        ];
        // The keys that a file must have stand at its end, so that one that is cut off is noticed.
        let addresses = [("nodes", nodes), ("engines", list(&self.engines)), ("routes", list(&self.routes))];
        for (key, value) in logins.into_iter().chain(system).chain(addresses) {
            let _infallible = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// Reads the text of such a file.
    ///
    /// # Errors
    /// The key and what is wrong with it, with the next step.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let again = "copy the file anew from the first node";
        let document: DocumentMut = text.parse().map_err(|error| format!("it is no TOML: {error}; {again}"))?;
        let item = |key: &str| document.get(key).ok_or_else(|| format!("it has no \"{key}\"; {again}"));
        match item("version")?.as_integer() {
            Some(VERSION) => {}
            Some(later) if later > VERSION => {
                return Err(format!("version = {later} is of a later mailrace; install that at this node"));
            }
            _ => return Err(format!("version is not {VERSION}; {again}")),
        }
        let word = |key: &str| -> Result<String, String> {
            let text = item(key)?.as_str().ok_or_else(|| format!("{key} is no text; {again}"))?;
            is_word(text).then(|| text.to_owned()).ok_or_else(|| {
                format!("{key} has other characters than letters, digits, \"-\", \"_\" and \".\"; {again}")
            })
        };
        let addresses = |key: &str, port: u16| -> Result<Vec<String>, String> {
            let read = |text: &str| HostPort::read(text, port).map(|host| host.socket_text());
            list(item(key)?, Value::as_str)
                .and_then(|list| list.into_iter().map(|text| read(text).ok()).collect())
                .ok_or_else(|| format!("{key} is no list of addresses; {again}"))
        };
        let system = match (document.get("system_user"), document.get("system_password")) {
            (None, None) => None,
            _ => Some(SystemLogin { user: word("system_user")?, password: word("system_password")? }),
        };
        let number = |value: &Value| value.as_integer().and_then(|number| u16::try_from(number).ok());
        Ok(Self {
            id: word("id")?,
            name: word("name")?,
            user: word("user")?,
            password: word("password")?,
            route_user: word("route_user")?,
            route_password: word("route_password")?,
            system,
            nodes: list(item("nodes")?, number).ok_or_else(|| format!("nodes is no list of numbers; {again}"))?,
            engines: addresses("engines", ENGINE_PORT)?,
            routes: addresses("routes", ROUTE_PORT)?,
        })
    }
}

/// Whether a text is a name that means itself in every file that is made from it.
pub(super) fn is_word(text: &str) -> bool {
    let is_part = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    (1..=LETTERS_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

/// The items of a list, if each is one of this kind.
fn list<'a, T>(item: &'a Item, read: impl Fn(&'a Value) -> Option<T>) -> Option<Vec<T>> {
    item.as_array()?.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ClusterFacts {
        ClusterFacts {
            nodes: vec![1],
            engines: vec!["10.0.0.1:4222".to_owned(), "mx2.test:4222".to_owned()],
            routes: vec!["10.0.0.1:6222".to_owned(), "[2001:db8::2]:6222".to_owned()],
            ..ClusterFacts::new("mail", || "00ff".repeat(8))
        }
    }

    #[test]
    fn a_file_reads_back() {
        assert_eq!(ClusterFacts::parse(&facts().text()), Ok(facts()));
    }

    #[test]
    fn a_file_of_an_older_mailrace_has_no_system_account() {
        let older = ClusterFacts { system: None, ..facts() };
        assert!(!older.text().contains("system"), "{}", older.text());
        assert_eq!(ClusterFacts::parse(&older.text()), Ok(older));
    }

    #[test]
    fn damaged_files() {
        let text = facts().text();
        for (from, to, says) in [
            ("version = 1", "version = 2", "later mailrace"),
            ("version = 1", "version = \"x\"", "version is not 1"),
            ("version = 1", "", "no \"version\""),
            ("name = \"mail\"", "", "no \"name\""),
            ("name = \"mail\"", "name = 3", "name is no text"),
            ("name = \"mail\"", "name = \"a b\"", "name has other characters"),
            ("password = \"00ff", "password = \"\\\" x: \\\"", "password has other characters"),
            ("system_user = \"system\"", "", "no \"system_user\""),
            ("system_password = \"00ff", "system_password = \"a b", "system_password has other characters"),
            ("nodes = [1]", "nodes = [70000]", "nodes is no list"),
            ("\"10.0.0.1:6222\"", "\"nats://10.0.0.1\"", "routes is no list"),
            ("engines = [", "engines = [[", "no TOML"),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text, "{from}");
            let said = ClusterFacts::parse(&damaged).unwrap_err();
            assert!(said.contains(says) && said.contains(';'), "{to}: {said}");
        }
        for end in 0..text.len() {
            let whole = text.get(..end).and_then(|text| ClusterFacts::parse(text).ok());
            assert!(whole.is_none_or(|whole| whole == facts()), "{end}");
        }
    }
}

//! A server and where its scanners stand.

use super::scanners::Scanner;
use crate::side_by_side::servers::ServerKind;
use std::net::SocketAddr;

/// When scanners are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Never.
    None,
    /// Before the client gets its 250.
    Before,
    /// After the client got it.
    After,
}

/// A server with a placement.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) server: ServerKind,
    pub(super) placement: Placement,
}

impl Contender {
    /// All names.
    pub(super) const NAMES: [&str; 5] = ["mailrace", "mailrace-before", "mailrace-after", "postfix", "postfix-before"];

    /// The contender of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let (server, placement) = match name {
            "mailrace" => (ServerKind::Serve, Placement::None),
            "mailrace-before" => (ServerKind::Serve, Placement::Before),
            "mailrace-after" => (ServerKind::Serve, Placement::After),
            "postfix" => (ServerKind::Peer("postfix".to_owned()), Placement::None),
            "postfix-before" => (ServerKind::Peer("postfix".to_owned()), Placement::Before),
            _ => return None,
        };
        Some(Self { server, placement })
    }

    pub(super) fn is_mailrace(&self) -> bool {
        self.server.is_mailrace()
    }

    /// Its name in tables.
    pub(super) fn name(&self) -> String {
        let server = self.server.name();
        match self.placement {
            Placement::None => format!("{server}, no filter"),
            Placement::Before if self.is_mailrace() => format!("{server}, before the 250"),
            Placement::Before => format!("{server}, milters"),
            Placement::After => format!("{server}, after the 250"),
        }
    }

    /// Returns the tables `[[filter]]` for scanners, each with its name.
    pub(super) fn settings(&self, scanners: &[(Scanner, SocketAddr)]) -> Vec<(&'static str, String)> {
        let when = match self.placement {
            Placement::After => ", when = \"after-250\"",
            Placement::None | Placement::Before => "",
        };
        let table = |(kind, at): &(Scanner, SocketAddr)| {
            let (name, kind) = (kind.name(), kind.kind());
            (name, format!("{{name = \"{name}\", kind = \"{kind}\", address = \"{at}\", timeout = \"120s\"{when}}}"))
        };
        scanners.iter().map(table).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_contenders() {
        for name in Contender::NAMES {
            assert!(Contender::from_name(name).is_some(), "{name}");
        }
        let after = Contender::from_name("mailrace-after").expect("known");
        let at = SocketAddr::from(([127, 0, 0, 1], 7));
        let [(name, table)] = <[_; 1]>::try_from(after.settings(&[(Scanner::Clamd, at)])).expect("one");
        assert_eq!(name, "clamd");
        assert!(table.contains("address = \"127.0.0.1:7\"") && table.contains("after-250"), "{table}");
    }
}

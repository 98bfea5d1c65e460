//! Rules about `[cluster]`: what a node needs, one login, and engines that stand there twice.

use super::super::number::size_text;
use super::super::parameters::section;
use super::Rules;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The smallest limit of a lane: below it, the mail of a few seconds fills a lane.
const LANE_SIZE_MIN: u64 = 16 << 20;

const ID: (&str, usize) = ("cluster.id", 0);

impl Rules<'_> {
    pub(super) fn cluster(&mut self) {
        let cluster = &self.config().cluster;
        if !cluster.is_used() {
            self.cluster_without_id();
            return;
        }
        if cluster.id_octets().is_none() {
            self.error(
                &[ID],
                format!("cluster.id: \"{}\" is no name of a cluster: 32 hex digits", cluster.id),
                "copy it from another node; \"mailrace cluster init\" makes one for a new cluster",
            );
        }
        if cluster.node == 0 {
            self.error(
                &[("cluster.node", 0), ID],
                "cluster.node: this node has no number".to_owned(),
                "give it one from 1 to 63 that no other node has or had",
            );
        }
        self.cluster_engines();
        self.cluster_login();
        if cluster.ca_file.is_some() && !cluster.tls {
            self.error(
                &[("cluster.ca_file", 0), ("cluster.tls", 0)],
                "cluster.ca_file without TLS".to_owned(),
                "set cluster.tls = true, or remove cluster.ca_file",
            );
        }
        if (1..LANE_SIZE_MIN).contains(&cluster.lane_size_max) {
            let text = |octets: u64| size_text(i64::try_from(octets).unwrap_or(i64::MAX));
            self.error(
                &[("cluster.lane_size_max", 0)],
                format!("cluster.lane_size_max: {} is less than {}", text(cluster.lane_size_max), text(LANE_SIZE_MIN)),
                "a full lane takes no copies: give it the space of the mail that waits at times, or 0",
            );
        }
    }

    /// A key of the section that would have no effect.
    fn cluster_without_id(&mut self) {
        let config = self.config();
        let parameters = section("cluster").map_or(&[][..], |section| section.parameters);
        if let Some(set) = parameters.iter().find(|one| one.get(config, 0) != one.fixed()).map(|one| one.key) {
            self.error(
                &[(set, 0), ID],
                format!("{set} without cluster.id: this server is no node of a cluster"),
                "set cluster.id as at the other nodes, or remove [cluster]",
            );
        }
    }

    fn cluster_engines(&mut self) {
        let cluster = &self.config().cluster;
        let at = [("cluster.engines", 0), ID];
        let mut seen = BTreeSet::new();
        if let Some(twice) = cluster.engines.iter().find(|engine| !seen.insert(engine.as_str())) {
            self.error(&at, format!("cluster.engines: \"{twice}\" is there twice"), "remove one of them");
        }
        if cluster.engines.is_empty() {
            self.error(
                &at,
                "cluster.engines names no nats-server".to_owned(),
                "name that of this node first, then those of the other nodes",
            );
        } else if seen.len() < usize::from(cluster.copies) {
            let (copies, engines) = (cluster.copies, seen.len());
            self.warn(
                &[("cluster.copies", 0), at[0], ID],
                format!("cluster.copies: {copies} copies are at as many nodes, and cluster.engines names {engines}"),
                "name the nats-server of each node; until it is there, listen.on_no_replica decides about mail",
            );
        }
        let is_near = |engine: &&String| {
            engine.starts_with("localhost:")
                || engine.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
        };
        if !cluster.tls
            && let Some(far) = cluster.engines.iter().find(|engine| !is_near(engine))
        {
            let what = if cluster.user.is_empty() { "mail crosses" } else { "mail and a password cross" };
            self.warn(
                &[("cluster.tls", 0), at[0]],
                format!("cluster.tls: {what} the network to {far} in clear"),
                "give the engines certificates and set cluster.tls = true, unless only nodes are in this network",
            );
        }
    }

    fn cluster_login(&mut self) {
        let cluster = &self.config().cluster;
        let (user, password) = (("cluster.user", 0), ("cluster.password_file", 0));
        let ways = [
            (!cluster.user.is_empty() || cluster.password_file.is_some(), user.0),
            (cluster.nkey_file.is_some(), "cluster.nkey_file"),
            (cluster.credentials_file.is_some(), "cluster.credentials_file"),
        ];
        let mut set = ways.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key);
        if let (Some(first), Some(second)) = (set.next(), set.next()) {
            self.error(
                &[(second, 0), (first, 0)],
                format!("{first} and {second} are both set"),
                "keep one of cluster.user, cluster.nkey_file and cluster.credentials_file",
            );
        }
        if !cluster.user.is_empty() && cluster.password_file.is_none() {
            self.error(
                &[user, password],
                "cluster.user without cluster.password_file".to_owned(),
                "name the file whose first line is the password",
            );
        }
        if cluster.user.is_empty() && cluster.password_file.is_some() {
            self.error(
                &[password, user],
                "cluster.password_file without cluster.user".to_owned(),
                "name the user that has this password",
            );
        }
        self.cluster_system_login();
    }

    fn cluster_system_login(&mut self) {
        let cluster = &self.config().cluster;
        let (user, password) = (("cluster.system_user", 0), ("cluster.system_password_file", 0));
        match (cluster.system_user.is_empty(), cluster.system_password_file.is_some()) {
            (false, false) => self.error(
                &[user, password],
                "cluster.system_user without cluster.system_password_file".to_owned(),
                "name the file whose first line is the password, or remove cluster.system_user",
            ),
            (true, true) => self.error(
                &[password, user],
                "cluster.system_password_file without cluster.system_user".to_owned(),
                "name the user of the system account that has this password",
            ),
            (false, true) if cluster.system_user == cluster.user => self.error(
                &[user, ("cluster.user", 0)],
                format!("cluster.system_user: \"{}\" is cluster.user too, and a user has one account", cluster.user),
                "name a user of the system account of nats-server",
            ),
            _ => {}
        }
    }
}

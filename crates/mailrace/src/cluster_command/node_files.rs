//! The texts of a node: the configuration of its nats-server, and the section `[cluster]`.

use super::join_file::ClusterFacts;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml_edit::Value;

/// The monitor that `cluster.monitor` has where nothing else is set.
pub(super) const MONITOR: &str = "127.0.0.1:8222";

/// The facts of one node.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub(super) node: u16,
    /// Where the engine takes clients.
    pub(super) listen: SocketAddr,
    /// Where the engine takes other engines.
    pub(super) cluster_listen: SocketAddr,
    /// The same two as all nodes name them.
    pub(super) engine: String,
    pub(super) route: String,
    pub(super) monitor: SocketAddr,
    pub(super) store_dir: PathBuf,
    pub(super) store_octets: u64,
    pub(super) tls: Option<TlsFiles>,
}

/// Certificate, key and CA of an engine, in PEM.
#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) ca: PathBuf,
}

/// Adds a line; writing to a String cannot fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {{ let _infallible = writeln!($text, $($format)*); }};
}

/// The configuration of nats-server.
pub(super) fn engine_configuration(cluster: &ClusterFacts, node: &NodeFacts) -> String {
    let mut text = String::new();
    line!(text, "# nats-server of node {} of a cluster of mailrace. It holds passwords: mode 0600.", node.node);
    line!(text, "server_name: \"{}-{}\"", cluster.name, node.node);
    line!(text, "listen: \"{}\"", node.listen);
    line!(text, "# mailrace asks here whether data is on the disk before the answer.");
    line!(text, "http: \"{}\"", node.monitor);
    line!(text, "# Copies for this node are placed by this tag.");
    line!(text, "server_tags: [\"node:{}\"]", node.node);
    line!(text, "jetstream {{");
    line!(text, "  store_dir: \"{}\"", node.store_dir.display());
    line!(text, "  sync_interval: always");
    line!(text, "  # Less than the disk has: a server whose disk is full gives no answer at all.");
    line!(text, "  max_file_store: {}", node.store_octets);
    line!(text, "}}");
    text.push_str(&logins(cluster));
    if let Some(tls) = &node.tls {
        text.push_str(&tls_block("", tls));
    }
    line!(text, "cluster {{");
    line!(text, "  name: \"{}\"", cluster.name);
    line!(text, "  listen: \"{}\"", node.cluster_listen);
    line!(text, "  authorization {{");
    line!(text, "    user: \"{}\"", cluster.route_user);
    line!(text, "    password: \"{}\"", cluster.route_password);
    line!(text, "  }}");
    if let Some(tls) = &node.tls {
        text.push_str(&tls_block("  ", tls));
    }
    line!(text, "  # The own address among them does no harm, and JetStream does not start without any.");
    line!(text, "  routes: [");
    for route in &cluster.routes {
        line!(text, "    \"nats-route://{}:{}@{route}\"", cluster.route_user, cluster.route_password);
    }
    line!(text, "  ]");
    line!(text, "}}");
    text
}

/// The users of the engine. nats-server takes one user of `authorization`, or a list of users beside accounts.
fn logins(cluster: &ClusterFacts) -> String {
    let mut text = String::new();
    line!(text, "authorization {{");
    let Some(system) = &cluster.system else {
        line!(text, "  user: \"{}\"", cluster.user);
        line!(text, "  password: \"{}\"", cluster.password);
        line!(text, "}}");
        return text;
    };
    line!(text, "  users: [");
    line!(text, "    {{ user: \"{}\", password: \"{}\" }}", cluster.user, cluster.password);
    line!(text, "  ]");
    line!(text, "}}");
    line!(text, "accounts {{");
    line!(text, "  # mailrace cluster leave --node takes the engine of a dead node out by this user.");
    line!(text, "  $SYS {{");
    line!(text, "    users: [");
    line!(text, "      {{ user: \"{}\", password: \"{}\" }}", system.user, system.password);
    line!(text, "    ]");
    line!(text, "  }}");
    line!(text, "}}");
    text
}

fn tls_block(indent: &str, tls: &TlsFiles) -> String {
    let mut text = String::new();
    line!(text, "{indent}tls {{");
    line!(text, "{indent}  cert_file: \"{}\"", tls.certificate.display());
    line!(text, "{indent}  key_file: \"{}\"", tls.key.display());
    line!(text, "{indent}  ca_file: \"{}\"", tls.ca.display());
    line!(text, "{indent}}}");
    text
}

/// The section of the configuration of mailrace. The files are those of the passwords of the user and of the user of
/// the system account.
pub(super) fn section(
    cluster: &ClusterFacts,
    node: &NodeFacts,
    (password_file, system_file): (&Path, &Path),
) -> String {
    let others = cluster.engines.iter().filter(|engine| **engine != node.engine);
    let engines: Value = std::iter::once(&node.engine).chain(others).map(String::as_str).collect();
    let path = |path: &Path| Value::from(path.display().to_string());
    let monitor = node.monitor.to_string();
    let mut text = "[cluster]\n".to_owned();
    line!(text, "id = \"{}\"", cluster.id);
    line!(text, "node = {}", node.node);
    line!(text, "engines = {engines}");
    if monitor != MONITOR {
        line!(text, "monitor = \"{monitor}\"");
    }
    line!(text, "user = \"{}\"", cluster.user);
    line!(text, "password_file = {}", path(password_file));
    if let Some(system) = &cluster.system {
        line!(text, "system_user = \"{}\"", system.user);
        line!(text, "system_password_file = {}", path(system_file));
    }
    if let Some(tls) = &node.tls {
        line!(text, "tls = true");
        line!(text, "ca_file = {}", path(&tls.ca));
    }
    text
}

/// Whether a path means itself between quotes of a configuration of nats-server.
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| !text.contains(['"', '\\']) && !text.contains(char::is_control))
}

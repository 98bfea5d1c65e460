//! `mailrace cluster init` and `join`: the files of a node, and what is to be done next.

use super::join_file::{ClusterFacts, ENGINE_PORT, ROUTE_PORT, is_word};
use super::new_files::{self, NewFile};
use super::node_files::{MONITOR, NodeFacts, TlsFiles, engine_configuration, is_plain, section};
use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes};
use clap::Args;
use os::accounts::Accounts;
use os::{machine, privileges};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use server::config::{self, Config, DEFAULT_PATH, Host, HostPort, render};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The text of `--help` of `init` behind the options.
pub(super) const INIT_HELP: &str = "\
Makes nats-server.conf, cluster.secret, cluster.system.secret and cluster.join, of mode 0600, and prints the section
[cluster]. Existing files stay as they are.

Example, for three nodes:
  mailrace cluster init --name mail --node 1 --listen 10.0.0.1:4222 --route 10.0.0.2:6222 --route 10.0.0.3:6222
  mailrace cluster join --file cluster.join --node 2 --listen 10.0.0.2:4222      # at the second, and so on

Exit status:
   0  done
  64  wrong arguments
  73  a file is there; nothing was written
  74  reading or writing failed
  77  no permission
  78  the configuration has errors, or this server is a node already";

/// The same for `join`.
pub(super) const JOIN_HELP: &str = "\
Makes nats-server.conf, cluster.secret and cluster.system.secret, of mode 0600, and prints the section [cluster].
Existing files stay as they are.

Example:
  mailrace cluster join --file cluster.join --node 2 --listen 10.0.0.2:4222

Exit status:
   0  done
  64  wrong arguments
  65  the file of init is damaged
  66  there is no such file
  73  a file is there; nothing was written
  74  reading or writing failed
  77  no permission
  78  the configuration has errors, or this server is a node already";

/// Room that is asked for on the disk of the engine.
const STORE_OCTETS_MIN: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    source: Source,
    /// Number of this node, which no other node has or had
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    node: u16,
    /// Address and port where the nats-server of this node takes mailrace of all nodes
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Name of this host in the addresses that all nodes use, as in certificates [default: the address of --listen]
    #[arg(long, value_name = "HOST")]
    host: Option<Host>,
    /// Address and port where it takes the other servers [default: port 6222 of the address of --listen]
    #[arg(long, value_name = "IP:PORT")]
    cluster_listen: Option<SocketAddr>,
    /// Address and port of its monitor, for this machine alone
    #[arg(long, value_name = "IP:PORT", default_value = MONITOR)]
    monitor: SocketAddr,
    /// Directory of its data
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nats")]
    store_dir: PathBuf,
    /// Space for its data, as in 40GiB [default: half of what is free there]
    #[arg(long, value_name = "SIZE")]
    store_size: Option<String>,
    /// Certificate of the nats-server with its chain, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    certificate: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// CAs that vouch for the certificates of all nodes, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    ca: Option<PathBuf>,
    /// User that nats-server runs as
    #[arg(long, value_name = "USER", default_value = "nats")]
    nats_user: String,
    /// Directory of the new files [default: that of the configuration file]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    #[command(flatten)]
    node: NodeArguments,
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Where the nats-server of another node takes servers; once for each node
    #[arg(long = "route", value_name = "HOST[:6222]")]
    routes: Vec<String>,
    /// Where it takes mailrace, in the order of --route [default: the hosts of --route, and the port of --listen]
    #[arg(long = "engine", value_name = "HOST[:4222]")]
    engines: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JoinArguments {
    #[command(flatten)]
    node: NodeArguments,
    /// The file cluster.join that init has made
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// A node to be made.
struct NodeFiles<'a> {
    cluster: ClusterFacts,
    node: NodeFacts,
    directory: PathBuf,
    /// The file that the section goes into.
    config_file: PathBuf,
    config: Config,
    arguments: &'a NodeArguments,
    /// The other nodes do not have its addresses.
    is_new_address: bool,
}

/// Runs `mailrace cluster init`.
pub(super) fn init(arguments: &InitArguments) -> Result<Exit, Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    if !is_word(&arguments.name) {
        let text = format!("--name {:?}: take letters, digits, \"-\", \"_\" and \".\", as in \"mail\"", arguments.name);
        return Err(usage(text));
    }
    let read = |flag: &str, list: &[String], port: u16| -> Result<Vec<HostPort>, Failure> {
        let one = |text: &String| {
            HostPort::read(text, port).map_err(|why| usage(format!("{flag} {text:?} {why}; write it as HOST:{port}")))
        };
        list.iter().map(one).collect()
    };
    let routes = read("--route", &arguments.routes, ROUTE_PORT)?;
    let mut engines = read("--engine", &arguments.engines, ENGINE_PORT)?;
    if engines.is_empty() {
        let port = arguments.node.listen.port();
        engines = routes.iter().map(|route| HostPort { host: route.host.clone(), port }).collect();
    }
    if engines.len() != routes.len() {
        let (engines, routes) = (engines.len(), routes.len());
        return Err(usage(format!(
            "--engine is there {engines} times and --route {routes} times; give both for each node"
        )));
    }
    let mut made = NodeFiles::new(ClusterFacts::new(&arguments.name, random_hex), &arguments.node)?;
    made.cluster.nodes.push(arguments.node.node);
    let texts = |list: &[HostPort]| list.iter().map(HostPort::socket_text).collect::<Vec<_>>();
    made.cluster.engines = texts(&engines);
    made.cluster.routes = texts(&routes);
    made.add_own_addresses();
    let join = made.directory.join("cluster.join");
    made.make(Some(&join))
}

/// Runs `mailrace cluster join`.
pub(super) fn join(arguments: &JoinArguments) -> Result<Exit, Failure> {
    let shown = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::new(Exit::NoInput, format!("{shown}: there is no such file; copy it from the first node"))
        }
        _ => Failure::io(&shown, &error),
    })?;
    let cluster = ClusterFacts::parse(&text).map_err(|why| Failure::new(Exit::Damaged, format!("{shown}: {why}")))?;
    let number = arguments.node.node;
    if cluster.nodes.contains(&number) {
        let text = format!("--node {number} is the number of the first node; give this node one of its own");
        return Err(Failure::new(Exit::Usage, text));
    }
    let mut made = NodeFiles::new(cluster, &arguments.node)?;
    made.add_own_addresses();
    made.make(None)
}

impl<'a> NodeFiles<'a> {
    /// Reads the configuration and looks at the arguments.
    fn new(cluster: ClusterFacts, arguments: &'a NodeArguments) -> Result<Self, Failure> {
        let config_file = arguments.source.path().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
        let loaded = arguments.source.open()?.map_err(|problems| {
            eprint!("{}", render(&problems));
            Failure::new(Exit::Config, "the configuration has errors; correct them first")
        })?;
        let present = &loaded.config.cluster;
        if present.is_used() {
            let text = format!(
                "{}: this server is node {} of cluster {} already; remove [cluster] first if that is over",
                config_file.display(),
                present.node,
                present.id
            );
            return Err(Failure::new(Exit::Config, text));
        }
        let beside = || config_file.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let directory = absolute(&arguments.directory.clone().unwrap_or_else(beside));
        let node = node_facts(arguments)?;
        Ok(Self { cluster, node, directory, config_file, config: loaded.config, arguments, is_new_address: false })
    }

    /// Puts the addresses of this node among those of the others.
    fn add_own_addresses(&mut self) {
        for (list, own) in
            [(&mut self.cluster.engines, &self.node.engine), (&mut self.cluster.routes, &self.node.route)]
        {
            if !list.contains(own) {
                list.push(own.clone());
                self.is_new_address = true;
            }
        }
    }

    fn make(&self, join: Option<&Path>) -> Result<Exit, Failure> {
        let (engine, secret) = (self.directory.join("nats-server.conf"), self.directory.join("cluster.secret"));
        let system_secret = self.directory.join("cluster.system.secret");
        let section = section(&self.cluster, &self.node, (&secret, &system_secret));
        // Rules of the configuration, such as an engine that is there twice.
        if let Err(problems) = config::load(&section, None, &[], &config::this_machine()) {
            let texts: Vec<&str> = problems.iter().map(|problem| problem.text.as_str()).collect();
            return Err(Failure::new(Exit::Usage, format!("{}; nothing was written", texts.join("; "))));
        }
        let accounts = Accounts::read().unwrap_or_default();
        let is_root = machine::is_root();
        let engine_owner = accounts.user(&self.arguments.nats_user).filter(|_| is_root);
        let engine_owner = engine_owner.and_then(|user| Some((user.uid, user.gid?)));
        let mut files = vec![
            NewFile {
                path: engine.clone(),
                text: engine_configuration(&self.cluster, &self.node),
                owner: engine_owner,
            },
            NewFile {
                path: secret,
                text: format!("{}\n", self.cluster.password),
                owner: server_owner(&self.config, &accounts)?,
            },
        ];
        if let Some(system) = &self.cluster.system {
            // Commands alone read it: the server has no use for such rights.
            files.push(NewFile { path: system_secret, text: format!("{}\n", system.password), owner: None });
        }
        if let Some(join) = join {
            files.push(NewFile { path: join.to_owned(), text: self.cluster.text(), owner: None });
        }
        new_files::make(&self.directory, &files)?;
        let steps = self.steps(&engine, join, engine_owner.is_some() || !is_root);
        let paths: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
        let mut output = Output::new();
        if self.arguments.json {
            output.print_json(&json!({
                "cluster": self.cluster.id, "node": self.node.node, "files": paths, "toml": section, "steps": steps,
            }));
        } else {
            let store = bytes(self.node.store_octets);
            output.print_line(format!("written: {}", paths.join(", ")));
            output.print_line(format!("nats-server keeps at most {store} in {}", self.node.store_dir.display()));
            output.print_line(format!("\nfor {}:\n\n{section}\nnow:", self.config_file.display()));
            for (number, step) in (1..).zip(&steps) {
                output.print_line(format!("{number}. {step}"));
            }
        }
        output.finish()?;
        Ok(Exit::Ok)
    }

    fn steps(&self, engine: &Path, join: Option<&Path>, has_owner: bool) -> Vec<String> {
        let (engine, user) = (engine.display(), &self.arguments.nats_user);
        let mut steps = Vec::new();
        if !has_owner {
            steps.push(format!(
                "there is no user \"{user}\": make it, then chown {user} {engine}, or run nats-server as root"
            ));
        }
        steps.push(format!("start nats-server 2.15.2 or newer: nats-server -c {engine}"));
        if let Some(join) = join {
            steps.push(format!(
                "copy {} to each other node, run there: mailrace cluster join --file cluster.join --node N --listen \
                 IP:{}; then remove the copies",
                join.display(),
                self.node.listen.port()
            ));
        } else if self.is_new_address {
            let NodeFacts { route, engine, .. } = &self.node;
            steps.push(format!(
                "at the other nodes, whose addresses lack this one: add {route} to cluster.routes of nats-server \
                 (nats-server --signal reload) and {engine} to cluster.engines of mailrace"
            ));
        }
        let file = self.config_file.display();
        steps.push(format!("put [cluster] as above into {file}, then: mailrace check; mailrace cluster verify"));
        steps.push("systemctl restart mailrace".to_owned());
        steps
    }
}

/// The facts of a node that the arguments give.
fn node_facts(arguments: &NodeArguments) -> Result<NodeFacts, Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    let cluster_listen = arguments.cluster_listen.unwrap_or_else(|| SocketAddr::new(arguments.listen.ip(), ROUTE_PORT));
    for (flag, address) in
        [("--listen", arguments.listen), ("--cluster-listen", cluster_listen), ("--monitor", arguments.monitor)]
    {
        if address.ip().is_unspecified() || address.port() == 0 {
            let text = format!("{flag} {address}: others have to find it; name one address of this machine and a port");
            return Err(usage(text));
        }
    }
    let addresses = [arguments.listen, cluster_listen, arguments.monitor];
    let twice = |(at, one): &(usize, &SocketAddr)| addresses.iter().skip(at + 1).any(|other| other == *one);
    if let Some((_, address)) = addresses.iter().enumerate().find(twice) {
        let text = format!("--listen, --cluster-listen and --monitor: {address} is there twice; take another port");
        return Err(usage(text));
    }
    let store_dir = absolute(&arguments.store_dir);
    let tls = match (&arguments.certificate, &arguments.key, &arguments.ca) {
        (Some(certificate), Some(key), Some(ca)) => {
            Some(TlsFiles { certificate: absolute(certificate), key: absolute(key), ca: absolute(ca) })
        }
        _ => None,
    };
    let files = tls.iter().flat_map(|tls| [&tls.certificate, &tls.key, &tls.ca]);
    if let Some(path) = files.chain([&store_dir]).find(|path| !is_plain(path)) {
        let text = format!("{path:?}: a quote, a backslash or a control character; nats-server needs another path");
        return Err(usage(text));
    }
    let store_octets = match &arguments.store_size {
        Some(text) => config::octets(text)
            .ok_or_else(|| usage(format!("--store-size {text:?} is no size; write it as in 40GiB")))?,
        None => free_octets(&store_dir)? / 2,
    };
    if store_octets < STORE_OCTETS_MIN {
        let (shown, least) = (bytes(store_octets), bytes(STORE_OCTETS_MIN));
        let text = format!("--store-size: {shown} for {} are less than {least}; name more", store_dir.display());
        return Err(usage(text));
    }
    let listen = arguments.listen;
    let named = |address: SocketAddr| {
        let host = arguments.host.clone().unwrap_or_else(|| Host::Address(address.ip()));
        HostPort { host, port: address.port() }.socket_text()
    };
    let (engine, route, monitor) = (named(listen), named(cluster_listen), arguments.monitor);
    Ok(NodeFacts { node: arguments.node, listen, cluster_listen, engine, route, monitor, store_dir, store_octets, tls })
}

/// Free space of the file system that a directory is on, or will be on.
fn free_octets(directory: &Path) -> Result<u64, Failure> {
    let present = directory.ancestors().find(|path| path.is_dir()).unwrap_or_else(|| Path::new("/"));
    let found = rustix::fs::statvfs(present).map_err(|error| Failure::io(present.display(), &error.into()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// User and group of the server, which reads the password when it has given up root; `None`: those of this process.
fn server_owner(config: &Config, accounts: &Accounts) -> Result<Option<(u32, u32)>, Failure> {
    let plan = privileges::plan(machine::is_root(), &config.server.user, &config.server.group, accounts);
    match plan.map_err(|error| Failure::new(Exit::Config, error.to_string()))? {
        privileges::Plan::Become(account) => Ok(Some((account.uid, account.gid))),
        privileges::Plan::Unprivileged | privileges::Plan::Root | privileges::Plan::RootForLackOfUser => Ok(None),
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Sixteen random octets as hex digits.
///
/// # Panics
/// The system has no random numbers: it never does when it has started.
fn random_hex() -> String {
    let mut octets = [0; 16];
    let filled = getrandom(&mut octets, GetRandomFlags::empty());
    assert!(filled.is_ok_and(|length| length == octets.len()), "the kernel gives 16 random octets at once");
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

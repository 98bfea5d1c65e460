//! The nodes of the demonstration: this program started again as `mailrace serve`.

use super::clock;
use super::engines::DemoEngine;
use crate::control_client::Control;
use crate::demo::children::DemoServer;
use crate::exit::{Exit, Failure};
use operator::answers::{AbsentNodesAnswer, StatusAnswer};
use operator::control::Request;
use server::config;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A running node.
#[derive(Debug)]
pub(super) struct DemoNode {
    server: DemoServer,
    control: PathBuf,
    pub(super) number: u16,
}

impl DemoNode {
    /// Starts node `number`, whose engine is `engines[number - 1]`, and waits until it takes connections.
    ///
    /// # Errors
    /// It ended; its own words are on standard error.
    pub(super) fn start(
        directory: &Path,
        number: u16,
        cluster: &str,
        engines: &[DemoEngine],
        next_hop: SocketAddr,
    ) -> Result<Self, Failure> {
        let at = usize::from(number) - 1;
        let own = engines.get(at).into_iter();
        let others = engines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, engine)| engine);
        let addresses: Vec<String> = own.chain(others).map(|engine| format!("{:?}", engine.address())).collect();
        let monitor = engines.get(at).map(DemoEngine::monitor).unwrap_or_default();
        let place = directory.join(format!("node{number}"));
        std::fs::create_dir_all(&place).map_err(|error| Failure::io(place.display(), &error))?;
        let control = place.join("control");
        let mut settings = vec![
            format!("hostname=mx{number}.demo.example"),
            format!("spool.path={}", place.join("spool").display()),
            "spool.size_max=1GiB".to_owned(),
            "spool.free_min=64MiB".to_owned(),
            "spool.ready_bytes=0".to_owned(),
            format!("control.path={}", control.display()),
            "submit.directory=\"\"".to_owned(),
            format!("log.path={}", place.join("log").display()),
            "listen=[{address=\"127.0.0.1:0\"}]".to_owned(),
            format!("route.smart_host=[\"[{}]:{}\"]", next_hop.ip(), next_hop.port()),
            format!("cluster.id=\"{cluster}\""),
            format!("cluster.node={number}"),
            format!("cluster.engines=[{}]", addresses.join(", ")),
            format!("cluster.monitor=\"{monitor}\""),
        ];
        if config::this_machine().is_root {
            settings.push("server.user=root".to_owned());
        }
        let mut words = vec!["serve".to_owned()];
        words.extend(settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]));
        Ok(Self { server: DemoServer::start(&words, Stdio::inherit())?, control, number })
    }

    /// Where it takes connections.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.server.process()
    }

    /// Its status.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn status(&self) -> Result<StatusAnswer, Failure> {
        Control::connect(&self.control)?.ask_for(&Request::Status)
    }

    /// The mail of absent nodes, as it sees it.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn absent(&self) -> Result<AbsentNodesAnswer, Failure> {
        Control::connect(&self.control)?.ask_for(&Request::ClusterAdopt(None))
    }

    /// Where its control socket is.
    pub(super) fn control(&self) -> &Path {
        &self.control
    }

    /// Kills it by SIGKILL.
    ///
    /// # Errors
    /// It had ended by itself.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.server.kill()
    }

    /// Waits until it takes part in the cluster and has somewhere to copy its mail to.
    ///
    /// # Errors
    /// It does not within this time.
    pub(super) fn wait_for_holder(&self, others: usize) -> Result<(), Failure> {
        let until = clock::now() + super::JOIN_TIME;
        loop {
            let cluster = self.status()?.cluster.unwrap_or_default();
            if cluster.state == "member" && cluster.nodes.len() >= others {
                return Ok(());
            }
            if clock::now() > until {
                let why = cluster.refusal.or(cluster.engine_problem).unwrap_or(cluster.state);
                let text = format!("node {} does not come into the cluster: {why}", self.number);
                return Err(Failure::new(Exit::Unavailable, text));
            }
            clock::pause();
        }
    }
}

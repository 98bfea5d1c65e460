//! State for delivering mail: what connections to next hops and local deliveries share besides the [`Context`].

use crate::context::Context;
use crate::dispatch::Dispatch;
use crate::hosts::HostTable;
use crate::local_delivery::LocalDelivery;
use crate::tls::Connector;
use std::sync::Arc;

/// The side of the server that delivers mail.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// State that both sides share.
    pub(crate) context: Arc<Context>,
    /// Gives the jobs; a sink has none.
    pub(crate) dispatch: Option<Arc<Dispatch>>,
    /// TLS towards next hops.
    pub(crate) connector: Connector,
    /// Hosts of a test in place of the network.
    #[cfg(test)]
    pub(crate) internet: Option<crate::transport::Internet>,
    /// State of next hops.
    pub(crate) hosts: Arc<HostTable>,
    /// Mail for this machine.
    pub(crate) local_delivery: Arc<LocalDelivery>,
}

#[cfg(test)]
impl Outbound {
    /// Makes the side of a trial. It has the state of next hops from `dispatch`, if there is one.
    pub(crate) fn trial(context: &Arc<Context>, dispatch: Option<Arc<Dispatch>>) -> Self {
        let live = context.live.load();
        let hosts = match &dispatch {
            Some(dispatch) => Arc::clone(&dispatch.hosts),
            None => Arc::new(HostTable::in_memory(&live.config)),
        };
        Self {
            context: Arc::clone(context),
            dispatch,
            connector: Connector::new(&live.config.tls).unwrap(),
            internet: None,
            hosts,
            local_delivery: Arc::new(LocalDelivery::new(&live.config)),
        }
    }
}

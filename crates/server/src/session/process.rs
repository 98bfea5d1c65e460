//! The listener entry that stands for processes of this machine.

use crate::config::{Acknowledge, Listen, ListenProtocol, ListenTls, OnNoReplica, SenderFailure};
use smtp::server::BareNewline;
use std::net::SocketAddr;

/// Returns the listener that stands for the control socket: `daemon=stdin` in log lines.
pub(crate) fn process_listen() -> Listen {
    Listen {
        name: "stdin".to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        protocol: ListenProtocol::Smtp,
        tls: ListenTls::None,
        tls_required: false,
        proxy_protocol: Vec::new(),
        connections_max: 0,
        auth_required: false,
        acknowledge: Acknowledge::Durable,
        on_no_replica: OnNoReplica::TempFail,
        // Programs write lines as their system has them; nothing is smuggled into a session of one's own.
        bare_newline: BareNewline::Normalize,
        filters: Vec::new(),
        auth_results: false,
        dmarc_reject: SenderFailure::None,
        dmarc_quarantine: SenderFailure::None,
        spf_fail: SenderFailure::None,
        iprev_fail: SenderFailure::None,
    }
}

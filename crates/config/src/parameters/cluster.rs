//! Parameters of a node of a cluster: `[cluster]`.

use super::super::parameter::{Section, at};
use super::{Kind, fixed, list, seconds};

/// The port of nats-server.
const ENGINE: Kind = Kind::Endpoint { port: 4_222 };
/// The port of its monitor.
const MONITOR: Kind = Kind::Endpoint { port: 8_222 };
const FILE: Kind = Kind::Path { empty: true };

pub(super) static CLUSTER: Section = Section {
    key: "cluster",
    summary: "copies of queued mail at other nodes, by nats-server",
    group: None,
    parameters: &[
        fixed(
            "cluster.id",
            at!(cluster.id),
            Kind::Text,
            "",
            "5f0c1d8e4b7a92636f1e0d9c8b7a6950",
            "name of the cluster, 32 hex digits; empty for none",
            "The same at all nodes; mailrace cluster init makes one.",
        )
        .restart(),
        fixed(
            "cluster.node",
            at!(cluster.node),
            Kind::Number { min: 0, max: 63, unit: "" },
            "0",
            "3",
            "number of this node, from 1; 0 for none",
            "The tag node:N in server_tags of its engine. Never given to another node, and never changed while mail is \
             queued.",
        )
        .restart(),
        fixed(
            "cluster.engines",
            at!(cluster.engines),
            list(&ENGINE),
            "[]",
            "[\"10.0.0.3:4222\", \"10.0.0.1:4222\", \"10.0.0.2:4222\"]",
            "the nats-server of each node, that of this node first",
            "Copies go to the server of their node in one step; what fails there, and all else, goes by way of the first. The others \
             are used while the first does not answer.",
        )
        .restart(),
        fixed(
            "cluster.monitor",
            at!(cluster.monitor),
            MONITOR,
            "127.0.0.1:8222",
            "127.0.0.1:8223",
            "monitor of this node's nats-server (http in its configuration)",
            "It tells whether data is on the disk before the answer.",
        )
        .restart(),
        fixed("cluster.user", at!(cluster.user), Kind::Text, "", "mailrace", "user at the engines; empty for none", "")
            .restart(),
        fixed(
            "cluster.password_file",
            at!(cluster.password_file),
            FILE,
            "",
            "/etc/mailrace/cluster.secret",
            "file whose first line is the password of cluster.user",
            "Read at the start.",
        )
        .restart(),
        fixed(
            "cluster.nkey_file",
            at!(cluster.nkey_file),
            FILE,
            "",
            "/etc/mailrace/cluster.nk",
            "file whose first line is the seed of an nkey, in place of user and password",
            "Read at the start.",
        )
        .restart(),
        fixed(
            "cluster.credentials_file",
            at!(cluster.credentials_file),
            FILE,
            "",
            "/etc/mailrace/cluster.creds",
            "file with token and seed as nsc writes it, in place of user and password",
            "Read at the start.",
        )
        .restart(),
        fixed(
            "cluster.system_user",
            at!(cluster.system_user),
            Kind::Text,
            "",
            "system",
            "user of the system account of the engines; empty for none",
            "For mailrace cluster leave --node alone, which takes the nats-server of a dead node out of the majority. The \
             server never uses it.",
        ),
        fixed(
            "cluster.system_password_file",
            at!(cluster.system_password_file),
            FILE,
            "",
            "/etc/mailrace/cluster.system.secret",
            "file whose first line is the password of cluster.system_user",
            "Read by commands; the user of the server need not be able to read it.",
        ),
        fixed(
            "cluster.tls",
            at!(cluster.tls),
            Kind::Flag,
            "false",
            "true",
            "TLS at the engines",
            "An engine without it is not used.",
        )
        .restart(),
        fixed(
            "cluster.ca_file",
            at!(cluster.ca_file),
            FILE,
            "",
            "/etc/ssl/cluster-ca.pem",
            "CA certificates in PEM for the engines; empty for the system's",
            "Read at the start.",
        )
        .restart(),
        fixed(
            "cluster.copies",
            at!(cluster.copies),
            Kind::Number { min: 1, max: 3, unit: "copies" },
            "2",
            "3",
            "copies of a message that the 250 waits for, that of the own disk included",
            "3 outlives the loss of two nodes at once. With 1 mail has no copy at other nodes.",
        )
        .restart(),
        fixed(
            "cluster.lane_size_max",
            at!(cluster.lane_size_max),
            Kind::Bytes { min: 0, max: 1 << 50 },
            "0",
            "20GiB",
            "most space of the mail of one node at one other node; 0: the engine's limit",
            "Counted for messages and for large bodies, each by itself. A full lane is as a node that is away.",
        )
        .restart(),
        fixed(
            "cluster.shared",
            at!(cluster.shared),
            Kind::Flag,
            "false",
            "true",
            "take configuration and maps from mailrace cluster push; this file counts more",
            "They are kept in cluster.shared in the spool directory, so that a node starts without its engine. Without any \
             a node waits for the first push. Keys of one machine, and those that need a restart, stay in this file.",
        )
        .restart(),
        fixed(
            "cluster.host_status",
            at!(cluster.host_status),
            Kind::Flag,
            "true",
            "false",
            "tell other nodes which hosts are down or throttling, and heed what they tell",
            "Mail for a host that another node found down waits here too, for no longer than after a failure of this node. \
             Not for hosts whose [[destination]] has shared = false, or whose limit an operator has set.",
        )
        .restart(),
        fixed(
            "cluster.drain_grace",
            at!(cluster.drain_grace),
            seconds(0, super::HOUR),
            "5s",
            "15s",
            "time for which a node that is drained still takes mail",
            "/healthz/ready says 503 from its beginning: longer than balancers need to notice. Then new sessions get 421.",
        ),
    ],
};

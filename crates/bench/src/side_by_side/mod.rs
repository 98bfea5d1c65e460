//! The common parts of benchmarks beside other servers: running servers, running client programs, figures.
//!
//! [`servers`] starts and ends contenders, [`programs`] runs the clients that come with other mail servers and reads
//! the processor time of the machine, [`figures`] makes medians and spreads. `accept_bench` and `relay_bench` decide
//! which load goes to which server and when.

pub(crate) mod figures;
pub(crate) mod programs;
pub(crate) mod servers;

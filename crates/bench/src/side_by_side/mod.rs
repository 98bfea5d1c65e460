//! What benchmarks beside other servers share: running servers, running client programs, figures.
//!
//! [`servers`] starts and ends contenders, [`programs`] runs the clients that come with other mail servers and reads
//! the processor time of the machine, [`figures`] makes medians and spreads. What is brought to whom and when is
//! decided by `accept_bench` and `relay_bench`.

pub(crate) mod figures;
pub(crate) mod programs;
pub(crate) mod servers;

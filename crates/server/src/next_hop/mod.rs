//! The next hop as configuration and destination say it, without a question to maps or the DNS.
//!
//! [`smart_hosts`] are those of `route.smart_host`, [`local`] destinations are delivered on this machine, and an
//! [`Endpoint`] is one address to connect to. Pure; which hosts a destination has now is found by `resolve`.

mod endpoint;
pub(crate) mod local;
pub(crate) mod smart_hosts;

pub(crate) use endpoint::Endpoint;

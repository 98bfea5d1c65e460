//! HTTP for operators: metrics, health, the API and the page.
//!
//! HTTP/1.1 on one address, with or without TLS. The files, in the order of a request:
//!
//! - [`serve`] keeps the connections and their limits, [`timed_stream`] ends those that take no answer,
//!   [`transport`] is the seam for TLS;
//! - [`access`] has the names and tokens in force and decides about a request;
//! - [`route_table`] lists every address: its method, the rights it needs, its fields; [`query`] reads these;
//! - [`api`] turns a request into one of the control socket and its answer into JSON, [`metrics`] writes the numbers
//!   for Prometheus, [`open_api`] describes the table;
//! - [`assets`] has the files of the page, [`live_feed`] its numbers of each second;
//! - [`held_page`] is the page ([`held_link`]) behind a link in mail, for recipients of mail in quarantine;
//! - [`response`] makes responses, all with the headers that keep a browser from doing more than the page needs.
//!
//! The server's [`HttpHandler`] carries out requests; none does anything that the control socket cannot do
//! for its client.
//! `docs/http.md` is the page for people and programs.

mod access;
mod api;
mod assets;
mod counts;
mod handler;
mod held_link;
mod held_page;
mod live_feed;
mod metrics;
mod open_api;
mod query;
mod response;
mod route_table;
mod serve;
mod timed_stream;
mod transport;

pub use access::{HttpAccess, HttpClient, HttpRights, HttpToken, TOKEN_CHARACTERS_MIN, TokenError};
pub use counts::{HttpCounts, HttpLimit};
pub use handler::{HttpHandler, HttpLimits};
pub use held_link::{HeldFacts, LinkAnswer};
pub use serve::serve_http;
pub use transport::HttpTransport;

//! Asks the name servers for `mailrace check`.

use crate::config::Config;
use crate::dns::Resolver;
use filter::dns_question::{DnsAnswer, DnsQuestion, RecordKind};

/// Returns why the name servers cannot serve sender authentication; `None`: they can, or nothing is checked. Asks them,
/// and waits `dns.timeout` at most.
#[must_use]
pub fn name_server_fault(config: &Config) -> Option<String> {
    if config.auth_results.checks.is_empty() || !config.listen.iter().any(|listen| listen.auth_results) {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let _inside = runtime.enter();
    let resolver = match Resolver::new(&config.dns) {
        Ok(resolver) => resolver,
        Err(error) => return Some(error.to_string()),
    };
    let question = DnsQuestion::new(RecordKind::Txt, &config.hostname)?;
    if runtime.block_on(resolver.answer(&question)) != DnsAnswer::Failed {
        return None;
    }
    let servers: Vec<String> = resolver.servers().map(|server| server.to_string()).collect();
    let servers = servers.join(" and ");
    Some(format!(
        "auth_results.checks: no answer from the DNS ({servers}), so results are temperror; see dns.servers and \
         /etc/resolv.conf"
    ))
}

//! Connects to each filter for `mailrace check`.

use super::connection::FilterError;
use super::facts::FilterFacts;
use super::milter::Milter;
use super::policy::ask_policy;
use super::pool::PooledFilter;
use super::scanners;
use super::settings::FilterSettings;
use super::size_check::size_faults;
use super::smtp;
use crate::config::{Config, FilterKind};
use filter::policy::PolicyState;
use std::time::Duration;

/// The longest wait for one filter.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Connects to each filter of the configuration, and returns a sentence for each that does not answer as it should.
/// Waits for them, 5 seconds at most for each.
#[must_use]
pub fn filter_faults(config: &Config) -> Vec<String> {
    if config.filters.is_empty() {
        return Vec::new();
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(check(config)),
        Err(error) => vec![format!("filters cannot be asked: {error}")],
    }
}

async fn check(config: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    for mut settings in config.filters.iter().filter_map(FilterSettings::of) {
        settings.timeout = settings.timeout.min(WAIT_MAX);
        settings.total_timeout = settings.total_timeout.min(WAIT_MAX);
        match ask(&settings, &config.hostname).await {
            Ok(()) => faults.extend(size_faults(&settings, config.message.size_max).await),
            Err(error) => {
                let (name, address) = (&settings.name, &settings.address);
                faults.push(format!("filter \"{name}\" ({address}): {error}; start it, or correct filter.address"));
            }
        }
    }
    faults
}

async fn ask(settings: &FilterSettings, hostname: &str) -> Result<(), FilterError> {
    match settings.kind {
        FilterKind::Milter => {
            Milter::open(settings).await?.quit().await;
            Ok(())
        }
        FilterKind::Policy => {
            // The question has neither client nor recipient: no mail is judged by what a server keeps of it.
            let filter = PooledFilter::new(settings.clone());
            ask_policy(&filter, PolicyState::Vrfy, &FilterFacts::default()).await.map(drop)
        }
        FilterKind::Clamd | FilterKind::Spamd | FilterKind::Rspamd => scanners::ping(settings).await.map(drop),
        FilterKind::Smtp | FilterKind::Lmtp => smtp::ping(settings, hostname).await,
    }
}

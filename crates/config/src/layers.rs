//! The shared part of a configuration: a file that all nodes of a cluster have alike, below each node's own file.
//!
//! A key of the own file counts more than the same key of the shared one, and a list of tables of the own file replaces
//! that of the shared one as a whole. The shared file has no key that names this machine, and none that takes effect
//! after a restart only: a push must take effect at all nodes at once.

use super::build::{load_layers, read};
use super::loaded::Loaded;
use super::open::decode;
use super::problem::Problem;
use super::{Config, Machine};
use std::path::Path;

/// A file of a configuration: its octets, and its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct ConfigText<'a> {
    /// The octets.
    pub bytes: &'a [u8],
    /// The name; relative paths in the file begin at its directory.
    pub path: Option<&'a Path>,
}

/// Reads the own file of a node over the shared file of its cluster, and applies overrides `KEY=VALUE`.
///
/// # Errors
/// All problems, as [`super::load`] lists them; each has the file that it is in.
pub fn load_shared(
    shared: ConfigText<'_>,
    own: ConfigText<'_>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    let below = decode(shared.bytes.to_vec(), shared.path);
    let above = decode(own.bytes.to_vec(), own.path);
    match (below, above) {
        (Ok(below), Ok(above)) => load_layers(Some((&below, shared.path)), &above, own.path, overrides, machine),
        (below, above) => Err(below.err().into_iter().chain(above.err()).flatten().collect()),
    }
}

/// Reads the own file of a node without the rules between values, for what decides about the shared file: `cluster` and
/// `spool`. A value that cannot be read has its default.
#[must_use]
pub fn own_part(own: ConfigText<'_>, overrides: &[String], machine: &Machine) -> Config {
    let text = String::from_utf8_lossy(own.bytes);
    read(None, &text, own.path, overrides, machine).0.config
}

#[cfg(test)]
mod tests {
    use super::super::own_keys::{OWN_KEYS, OWN_TABLES, may_be_shared};
    use super::super::parameters::{SECTIONS, find, section, section_of};
    use super::super::render;
    use super::*;
    use std::path::PathBuf;

    fn text<'a>(text: &'a str, path: &'a str) -> ConfigText<'a> {
        ConfigText { bytes: text.as_bytes(), path: Some(Path::new(path)) }
    }

    fn both(shared: &str, own: &str) -> Result<Loaded, String> {
        let own = text(own, "/etc/m/own.toml");
        load_shared(text(shared, "/s/r/mailrace.toml"), own, &[], &Machine::default()).map_err(|all| render(&all))
    }

    #[test]
    fn own_keys_count_more_and_lists_replace_lists() {
        let shared = "[message]\nsize_max = '2MiB'\nrecipients_max = 7\n[maps]\naccess = 'access'\n\
                      [[destination]]\nmatch = 'a.test'\n[[destination]]\nmatch = 'b.test'\n[[dnsbl.list]]\nzone = 'z.test'\n";
        let own = "hostname = 'mx1.test'\n[message]\nrecipients_max = 8\n[[destination]]\nmatch = 'c.test'\n";
        let loaded = both(shared, own).unwrap();
        let config = &loaded.config;
        assert_eq!((config.message.size_max, config.message.recipients_max), (2 << 20, 8));
        assert_eq!(config.maps.access, [super::super::MapSource::File(PathBuf::from("/s/r/access"))]);
        assert_eq!((config.destinations.len(), config.dnsbl.list.len()), (1, 1));
        assert_eq!(loaded.set_at("message.size_max").as_deref(), Some("/s/r/mailrace.toml:2"));
        assert_eq!(loaded.set_at("message.recipients_max").as_deref(), Some("/etc/m/own.toml:3"));
        let set = ["message.size_max=3MiB".to_owned()];
        let set = load_shared(text(shared, "/s/m"), text(own, "/o/m"), &set, &Machine::default()).unwrap();
        assert_eq!(set.config.message.size_max, 3 << 20);
    }

    #[test]
    fn keys_of_one_machine_and_keys_that_need_a_restart_are_refused_with_file_and_line() {
        for (line, key) in [
            ("hostname = 'a.test'", "hostname"),
            ("spool.path = '/s'", "spool.path"),
            ("server.threads = 2", "server.threads"),
            ("log.path = '/etc/cron.d/x'", "log.path"),
            ("cluster.shared = true", "cluster.shared"),
            ("listen = [{ address = ':25' }]", "listen"),
            ("webhook = []", "webhook"),
            ("local.accounts = '/x'", "local.accounts"),
        ] {
            let said = both(&format!("\n{line}\n"), "").expect_err(line);
            assert!(said.contains(&format!("\"{key}\" stands in the shared")), "{said}");
            assert!(said.contains("/s/r/mailrace.toml:2:"), "{said}");
            assert!(said.contains("own file of each node"), "{said}");
        }
        // The negative control: the same keys in the own file.
        both("", "hostname = 'a.test'\n[server]\nthreads = 2\n").unwrap();
        let said = both("[maps]\naccess = '../access'\n", "").unwrap_err();
        assert!(said.contains("mailrace.toml:2") && said.contains("leads out of"), "{said}");
    }

    #[test]
    fn faults_of_both_files_come_together() {
        let said = both("[message]\nsize_max = 'much'\n", "[smtp]\nverify = 3\n").unwrap_err();
        assert!(said.contains("/s/r/mailrace.toml:2:") && said.contains("/etc/m/own.toml:2:"), "{said}");
        let spool = "[spool]\nsize_max = '128MiB'\nsegment_bytes = '16MiB'\nshards = 1\n";
        let said = both("[message]\nsize_max = '100MiB'\n", spool).unwrap_err();
        assert!(said.contains("/s/r/mailrace.toml:2:"), "a rule between both files: {said}");
        let own =
            ConfigText { bytes: b"[cluster]\nshared = true\n[spool]\npath = 's'\n", path: Some(Path::new("/e/m")) };
        let config = own_part(own, &[], &Machine::default());
        assert_eq!((config.cluster.shared, config.spool.path), (true, PathBuf::from("/e/s")));
    }

    #[test]
    fn the_tables_of_one_machine_exist() {
        assert!(OWN_TABLES.iter().all(|table| section(table).is_some()));
        assert!(OWN_KEYS.iter().all(|key| find(key).is_some()));
        let shared = |key: &str| find(key).is_some_and(|found| may_be_shared(section_of(found), found));
        for key in ["maps.access", "relay.from", "route.smart_host", "screen.rules", "dkim.key.file", "filter.name"] {
            assert!(shared(key), "{key}");
        }
        assert!(SECTIONS.iter().flat_map(|one| one.parameters).filter(|one| shared(one.key)).count() > 150);
    }
}

//! The names of sites at all nodes of a cluster, which have source addresses and names of their own.

use aws_lc_rs::digest;

/// Octets of a name; a longer one is cut and gets a digest.
const NAME_OCTETS_MAX: usize = 160;

/// Returns the name that a site has at all nodes.
pub(super) fn name_in_cluster(site: &[u8]) -> String {
    const OWN: [&str; 3] = ["from=", "hello=", "limit="];
    let text = String::from_utf8_lossy(site);
    let words: Vec<&str> = text.split(' ').filter(|word| !OWN.iter().any(|own| word.starts_with(own))).collect();
    let name = words.join(" ");
    if name.len() <= NAME_OCTETS_MAX {
        return name;
    }
    let digest = digest::digest(&digest::SHA256, name.as_bytes());
    let digest: String = digest.as_ref().iter().take(16).map(|octet| format!("{octet:02x}")).collect();
    let end = name.floor_char_boundary(NAME_OCTETS_MAX - 2 * 16 - 1);
    format!("{}~{digest}", name.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_the_same_name_at_nodes_with_other_addresses() {
        let name = |site: &[u8]| name_in_cluster(site);
        let here = name(b"mx.example:25 tls=opportunistic from=192.0.2.1 hello=a.example rule=2 limit=mx.example");
        let there = name(b"mx.example:25 tls=opportunistic from=192.0.2.2 hello=b.example rule=2");
        assert_eq!(here, "mx.example:25 tls=opportunistic rule=2");
        assert_eq!(here, there);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        let long = |last: &str| name_in_cluster(format!("{}|{last}:25", "mail.example|".repeat(40)).as_bytes());
        assert!(long("a").len() <= NAME_OCTETS_MAX && long("a") != long("b") && long("a") == long("a"));
    }
}

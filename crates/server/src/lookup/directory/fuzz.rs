//! A body for fuzzing: any bytes as an entry that a directory sends.

use super::entry;
use ldap3::asn1::parse_tag;

/// Reads an entry. Asserts no panic, and that no more text comes out than octets went in.
///
/// # Panics
/// When that does not hold.
pub fn ldap_entry(data: &[u8]) {
    let Ok((_, tag)) = parse_tag(data) else { return };
    let Some(entry) = entry::read(tag) else { return };
    let values = entry.attributes.iter().flat_map(|(name, values)| values.iter().chain([name]));
    let octets: usize = values.map(String::len).sum();
    assert!(octets + entry.dn.len() <= data.len(), "{entry:?}");
}

//! Addresses and names of hosts compared with those of a rule, domains among them.

/// Whether a folded address or name is one of those wanted. `@example.com` is every address of the domain,
/// `@.example.com` every one below it, and `.example.com` every name below it.
pub(crate) fn belongs_to(wanted: &[String], text: &str) -> bool {
    wanted.iter().any(|one| match one.strip_prefix('@') {
        Some(domain) if domain.starts_with('.') => text.ends_with(domain) && text.contains('@'),
        Some(_) => text.ends_with(one.as_str()),
        None if one.starts_with('.') && one.len() > 1 => text.ends_with(one.as_str()),
        None => one == text,
    })
}

/// Returns the texts one of which an address or name must hold to be one of those wanted.
pub(crate) fn literals_of_domains(wanted: &[String]) -> Vec<String> {
    wanted.iter().map(|one| one.strip_prefix('@').unwrap_or(one).to_owned()).collect()
}

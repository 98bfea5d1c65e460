//! The name of the host, the process and its user.
//!
//! Nothing here asks the network. The name of the host serves as default of `hostname`; a machine whose files do not
//! know its full name gets the short one, and the configuration can say better.

/// The host's name, with its domain where the machine's files know it.
///
/// The kernel's name if it has a dot; else the name with a dot that `/etc/hosts` gives for it, the first of its line
/// being the canonical one (hosts(5)); else `/etc/hostname`, if that is a longer form of the same; else the kernel's
/// name.
#[must_use]
pub fn host_name() -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let read = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    full_name(&node, &read("/etc/hosts"), &read("/etc/hostname"))
}

fn full_name(node: &str, hosts: &str, hostname: &str) -> String {
    if node.contains('.') {
        return node.to_owned();
    }
    let in_hosts = hosts.lines().find_map(|line| {
        let names = line.split('#').next().unwrap_or_default().split_ascii_whitespace().skip(1);
        let is_of_node = |name: &str| name.eq_ignore_ascii_case(node) || extends(name, node);
        names.clone().any(is_of_node).then(|| names.clone().find(|name| extends(name, node)))?
    });
    let in_hostname = || hostname.lines().map(str::trim).find(|line| extends(line, node));
    in_hosts.or_else(in_hostname).unwrap_or(node).to_owned()
}

/// Whether `name` is `node` with a domain behind it.
fn extends(name: &str, node: &str) -> bool {
    !node.is_empty()
        && name.split_once('.').is_some_and(|(host, domain)| host.eq_ignore_ascii_case(node) && !domain.is_empty())
}

/// Whether the calling thread acts as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The effective user of the calling thread.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The real user and group of this process: those it was started with, or those it has become for good.
#[must_use]
pub fn user() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// The number of this process.
#[must_use]
pub fn pid() -> u32 {
    std::process::id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_name_is_looked_for() {
        let hosts = "127.0.0.1 localhost localhost.localdomain\n# 10.0.0.9 mx.wrong.example mx\n10.0.0.1\tmx.example.org mx # mx.x\n";
        for (node, hosts, hostname, expected) in [
            ("mx.example.net", hosts, "other", "mx.example.net"),
            ("mx", hosts, "mx.example.com\n", "mx.example.org"),
            ("MX", "10.0.0.1 mx mx.example.org\n", "", "mx.example.org"),
            ("mx", "10.0.0.1 mx\n", "mx.example.com\n", "mx.example.com"),
            ("mx", "10.0.0.1 mx other.example\n", "other.example.com\n", "mx"),
            ("mx", "127.0.1.1 mx.\n", "", "mx"),
            ("", "127.0.1.1 .x\n", ".x\n", ""),
        ] {
            assert_eq!(full_name(node, hosts, hostname), expected, "{node} {hosts:?} {hostname:?}");
        }
        assert!(!host_name().contains(char::is_whitespace));
    }
}

//! Values as sendmail writes them: times with a unit understood, networks, hosts of a mailer.

use mail::DomainName;
use std::net::IpAddr;

/// A time in seconds: `4h`, `1h30m`, `90`; a number alone has `unit`.
pub(super) fn time(text: &str, unit: char) -> Option<u64> {
    let mut sum = 0_u64;
    let mut number: Option<u64> = None;
    for c in text.trim().chars() {
        if let Some(digit) = c.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
        } else {
            sum = sum.checked_add(number.take()?.checked_mul(seconds_of(c)?)?)?;
        }
    }
    match number {
        Some(number) => sum.checked_add(number.checked_mul(seconds_of(unit)?)?),
        None => (!text.trim().is_empty()).then_some(sum),
    }
}

const fn seconds_of(unit: char) -> Option<u64> {
    match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        'w' => Some(604_800),
        _ => None,
    }
}

/// A time as our keys have it, in the largest unit that fits.
pub(super) fn time_text(seconds: u64) -> String {
    match seconds {
        0 => "0".to_owned(),
        s if s % 86_400 == 0 => format!("{}d", s / 86_400),
        s if s % 3_600 == 0 => format!("{}h", s / 3_600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// A name that can be a domain here, in small letters.
pub(super) fn domain(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches('.');
    let is_plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    // A name of digits alone would be read as an address.
    let is_name = text.rsplit('.').next().is_some_and(|last| last.chars().any(|c| !c.is_ascii_digit()));
    (is_plain && is_name && text.parse::<DomainName>().is_ok()).then(|| text.to_ascii_lowercase())
}

/// A network as class R has it: `10.0.0.1`, `192.168.1`, `IPv6:2001:db8::1`, `10.0.0.0/8`.
pub(super) fn network(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix("IPv6:").or_else(|| text.strip_prefix("ipv6:")).unwrap_or(text);
    if let Some((address, bits)) = text.split_once('/') {
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
        return ipnet::IpNet::new(address, bits).ok().map(|net| net.trunc().to_string());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(ipnet::IpNet::from(address).to_string());
    }
    let octets: Vec<u8> = text.split('.').map(|octet| octet.parse().ok()).collect::<Option<_>>()?;
    match *octets.as_slice() {
        [a] => Some(format!("{a}.0.0.0/8")),
        [a, b] => Some(format!("{a}.{b}.0.0/16")),
        [a, b, c] => Some(format!("{a}.{b}.{c}.0/24")),
        _ => None,
    }
}

/// Hosts of a smart host, and whether one of them was a domain whose MX sendmail asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SmartHosts {
    /// In order; those of one list are equal.
    pub(super) groups: Vec<Vec<String>>,
    pub(super) has_mx: bool,
}

/// Reads `relay:[a]:[b]`, `esmtp:a.example`, `[a]`; `Err` says why not.
pub(super) fn hosts(text: &str, port: u16) -> Result<SmartHosts, String> {
    let text = text.trim();
    let rest = match text.split_once(':') {
        Some((mailer, rest)) if mailer.chars().all(|c| c.is_ascii_alphanumeric()) => {
            if !matches!(mailer.to_ascii_lowercase().as_str(), "smtp" | "esmtp" | "smtp8" | "dsmtp" | "relay") {
                return Err(format!("there is no way to the mailer \"{mailer}\" here"));
            }
            rest
        }
        _ => text,
    };
    let mut hosts = SmartHosts { groups: Vec::new(), has_mx: false };
    for group in split(rest, ':') {
        let mut equals = Vec::new();
        for host in split(group, ',') {
            let host = host.trim();
            let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let plain = inside.unwrap_or(host);
            let plain = plain.strip_prefix("IPv6:").unwrap_or(plain);
            equals.push(match plain.parse::<IpAddr>() {
                Ok(address) => format!("[{address}]:{port}"),
                Err(_) => {
                    let name = domain(plain).ok_or_else(|| format!("\"{host}\" is no host"))?;
                    hosts.has_mx |= inside.is_none();
                    format!("{name}:{port}")
                }
            });
        }
        hosts.groups.push(equals);
    }
    Ok(hosts)
}

/// Parts between separators that are not in brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut is_inside = false;
    text.split(|c| {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        c == separator && !is_inside
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_networks() {
        let times = [("4h", 'm'), ("1h30m", 's'), ("90", 'm'), ("", 'm'), ("h", 'm'), ("5x", 'm'), ("0s", 's')];
        assert_eq!(
            times.map(|(text, unit)| time(text, unit)),
            [Some(14_400), Some(5_400), Some(5_400), None, None, None, Some(0)]
        );
        assert_eq!([0, 90, 3_600, 172_800].map(time_text), ["0", "90s", "1h", "2d"]);
        let networks = ["192.168.1", "10", "10.1.2.3", "IPv6:2001:db8::1", "10.1.0.0/16", "a.example", "300.1"];
        let expected = [
            Some("192.168.1.0/24"),
            Some("10.0.0.0/8"),
            Some("10.1.2.3/32"),
            Some("2001:db8::1/128"),
            Some("10.1.0.0/16"),
        ];
        assert_eq!(
            networks.map(network).map(|one| one.unwrap_or_default()).to_vec(),
            [expected.map(Option::unwrap_or_default).to_vec(), vec!["", ""]].concat()
        );
    }

    #[test]
    fn hosts_of_a_smart_host() {
        let one = hosts("esmtp:[a.example]:[192.0.2.1],[IPv6:2001:db8::1]", 25).unwrap();
        assert_eq!(one.groups, [vec!["a.example:25"], vec!["[192.0.2.1]:25", "[2001:db8::1]:25"]]);
        assert!(!one.has_mx);
        assert!(hosts("relay.example", 2525).unwrap().has_mx);
        assert!(hosts("uucp:far", 25).is_err() && hosts("a b", 25).is_err() && hosts("", 25).is_err());
    }
}

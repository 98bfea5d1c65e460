//! Numbers and addresses as text, without `core::fmt`: some dozens of them are written for each message.

use std::net::IpAddr;

/// Appends a number in decimal.
pub fn push_decimal(out: &mut String, number: impl itoa::Integer) {
    out.push_str(itoa::Buffer::new().format(number));
}

/// Appends the last two decimal digits of a number: `07`.
pub fn push_two_digits(out: &mut String, number: u64) {
    for digit in [number / 10 % 10, number % 10] {
        out.push(char::from(b'0' + u8::try_from(digit).unwrap_or(0)));
    }
}

/// Appends an address as its `Display` writes it: `192.0.2.1`, `2001:db8::1`.
pub fn push_ip(out: &mut String, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    out.push('.');
                }
                push_decimal(out, octet);
            }
        }
        IpAddr::V6(address) => out.push_str(&address.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_display() {
        for number in [0, 7, 10, 99, 100, 4_096, u64::MAX] {
            let mut out = String::from("x");
            push_decimal(&mut out, number);
            assert_eq!(out, format!("x{number}"));
        }
        for number in [0, 7, 10, 59, 99, 123] {
            let mut out = String::new();
            push_two_digits(&mut out, number);
            assert_eq!(out, format!("{:02}", number % 100));
        }
        for ip in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "2001:db8::1", "::ffff:192.0.2.1"] {
            let mut out = String::new();
            push_ip(&mut out, ip.parse().unwrap());
            assert_eq!(out, ip);
        }
    }
}

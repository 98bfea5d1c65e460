//! XCLIENT: a trusted front end names the client that it speaks for (Postfix's XCLIENT_README; no RFC).
//!
//! Attributes are read into [`super::Xclient`]; whether the client may say them is asked before.

use std::net::{IpAddr, SocketAddr};

use mail::{Client, HeloName};

use super::step::Xclient;

/// The attributes that are known, as EHLO lists them.
pub(super) const ATTRIBUTES: &str = "NAME ADDR PORT PROTO HELO LOGIN";

/// Reads `NAME=value …`. ADDR and PORT replace those of `client`.
///
/// # Errors
/// The fault, to follow a colon.
pub(super) fn read(rest: &[u8], client: &Client) -> Result<Xclient, &'static str> {
    let mut attributes = Xclient::default();
    let mut address = None;
    let mut port = None;
    let mut none = true;
    for word in rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        none = false;
        let text = str::from_utf8(word).map_err(|_| "it is not UTF-8")?;
        let (name, value) = text.split_once('=').ok_or("it has no =")?;
        let value = if matches!(value, "[UNAVAILABLE]" | "[TEMPUNAVAIL]") { None } else { Some(decode(value)?) };
        match name.to_ascii_uppercase().as_str() {
            "NAME" => attributes.name = Some(value.map(Into::into)),
            "ADDR" => address = value.map(|value| parse_address(&value)).transpose()?,
            "PORT" => port = value.map(|value| value.parse::<u16>().map_err(|_| "PORT is no port")).transpose()?,
            "HELO" => {
                let helo = value.map(|value| HeloName::new(value.as_bytes()).ok_or("HELO is no name"));
                attributes.helo = Some(helo.transpose()?);
            }
            "PROTO" => {
                let proto = value.ok_or("PROTO is SMTP or ESMTP")?;
                let esmtp = proto.eq_ignore_ascii_case("ESMTP");
                if !esmtp && !proto.eq_ignore_ascii_case("SMTP") {
                    return Err("PROTO is SMTP or ESMTP");
                }
                attributes.esmtp = Some(esmtp);
            }
            "LOGIN" => attributes.login = Some(value.map(Into::into)),
            // Where the client connected to: nothing here depends on it.
            "DESTADDR" | "DESTPORT" => {}
            _ => return Err("its name is not known"),
        }
    }
    if none {
        return Err("none is given");
    }
    let known = match client {
        Client::Network(known) => Some(*known),
        Client::Process { .. } | Client::Internal => None,
    };
    attributes.address = match (address, port, known) {
        (Some(address), port, _) => Some(SocketAddr::new(address, port.unwrap_or(0))),
        (None, Some(port), Some(known)) => Some(SocketAddr::new(known.ip(), port)),
        (None, _, _) => None,
    };
    Ok(attributes)
}

fn parse_address(value: &str) -> Result<IpAddr, &'static str> {
    let front = value.get(..5).filter(|front| front.eq_ignore_ascii_case("IPV6:"));
    let value = front.and_then(|front| value.get(front.len()..)).unwrap_or(value);
    value.parse().map_err(|_| "ADDR is no IP address")
}

/// Takes xtext apart (RFC 3461 §4), which Postfix asks for here too.
fn decode(value: &str) -> Result<String, &'static str> {
    let mut octets = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'+' {
            let (digits, after) = rest.split_at_checked(2).ok_or("its xtext breaks off")?;
            let text = str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
            let octet = text.and_then(|text| u8::from_str_radix(text, 16).ok()).ok_or("its xtext is malformed")?;
            octets.push(octet);
            rest = after;
        } else {
            octets.push(*byte);
        }
    }
    let text = String::from_utf8(octets).map_err(|_| "it is not UTF-8")?;
    let printable = !text.is_empty() && text.chars().all(|c| !c.is_control());
    if printable { Ok(text) } else { Err("it is empty or has a control character") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::Network("192.0.2.9:1025".parse().unwrap())
    }

    #[test]
    fn attributes_are_read() {
        let read = read(b"NAME=mx.example ADDR=IPV6:2001:db8::1 PROTO=esmtp HELO=h+2Dx LOGIN=[UNAVAILABLE]", &client());
        let seen = read.unwrap();
        assert_eq!(seen.name, Some(Some("mx.example".into())));
        assert_eq!(seen.address, Some("[2001:db8::1]:0".parse().unwrap()));
        assert_eq!(seen.helo, Some(HeloName::new(b"h-x")));
        assert_eq!((seen.esmtp, seen.login), (Some(true), Some(None)));
        let seen = super::read(b"port=7", &client()).unwrap();
        assert_eq!(seen.address, Some("192.0.2.9:7".parse().unwrap()));
    }

    #[test]
    fn malformed_attributes_are_refused() {
        for rest in [
            &b""[..],
            b"NAME",
            b"NAME=",
            b"NAME=a+0",
            b"NAME=a+0D+0A",
            b"NAME=a+zz",
            b"NAME=a++1",
            b"ADDR=mx.example",
            b"ADDR=IPV6:1.2.3",
            b"PORT=65536",
            b"PROTO=HTTP",
            b"HELO=a+20b",
            b"FROB=1",
            b"NAME=\xff",
        ] {
            assert!(read(rest, &client()).is_err(), "{}", rest.escape_ascii());
        }
    }
}

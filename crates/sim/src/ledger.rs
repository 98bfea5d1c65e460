//! The messages that hosts took, as lines of a file: docs/sim.md, section 4.
//!
//! One line is one message at one host, for any input of a client: octets that could end a field are written `%XX`.

use std::fmt::Write as _;
use std::time::Duration;

/// The first line without the time, which follows it in microseconds since 1970.
pub const HEAD: &str = "# mailrace sim ledger 1 start=";

/// How a message was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The client was told.
    Acknowledged,
    /// The client was not told, or was gone.
    Silent,
}

/// A message that a host took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// When the answer left.
    pub at: Duration,
    /// The number of the host.
    pub host: u32,
    /// The number of the connection.
    pub connection: u64,
    /// Whether the client knows.
    pub how: How,
    /// Octets of the content, as it was before dots were doubled.
    pub octets: u64,
    /// The mark of the message; empty if it has none.
    pub token: Box<[u8]>,
    /// As they were sent, without `<>`.
    pub recipients: Vec<Box<[u8]>>,
}

impl Taken {
    /// Appends its line.
    pub fn write(&self, out: &mut String) {
        let how = match self.how {
            How::Acknowledged => "acknowledged",
            How::Silent => "silent",
        };
        let micros = self.at.as_micros();
        // Writing to a String cannot fail.
        let _infallible = write!(out, "{micros} {} {} {how} {} ", self.host, self.connection, self.octets);
        if self.token.is_empty() {
            out.push('-');
        } else {
            escape(&self.token, out);
        }
        for (at, recipient) in self.recipients.iter().enumerate() {
            out.push(if at == 0 { ' ' } else { ',' });
            escape(recipient, out);
        }
        out.push('\n');
    }

    /// Reads a line without its end.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let taken = Self {
            at: Duration::from_micros(words.next()?.parse().ok()?),
            host: words.next()?.parse().ok()?,
            connection: words.next()?.parse().ok()?,
            how: match words.next()? {
                "acknowledged" => How::Acknowledged,
                "silent" => How::Silent,
                _ => return None,
            },
            octets: words.next()?.parse().ok()?,
            token: match words.next()? {
                "-" => Box::default(),
                token => unescape(token)?,
            },
            recipients: words.next()?.split(',').map(unescape).collect::<Option<_>>()?,
        };
        words.next().is_none().then_some(taken)
    }
}

fn escape(octets: &[u8], out: &mut String) {
    for octet in octets {
        match octet {
            b',' | b'%' => {
                // Writing to a String cannot fail.
                let _infallible = write!(out, "%{octet:02X}");
            }
            b'!'..=b'~' => out.push(char::from(*octet)),
            _ => {
                let _infallible = write!(out, "%{octet:02X}");
            }
        }
    }
}

fn unescape(text: &str) -> Option<Box<[u8]>> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            octet => octet,
        });
    }
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_as_it_is_documented() {
        let taken = Taken {
            at: Duration::from_micros(1_204_512),
            host: 17,
            connection: 3021,
            how: How::Acknowledged,
            octets: 4521,
            token: (*b"storm/7/000000000012/5d1c00aa").into(),
            recipients: vec![(*b"u0@d17.sim.example").into(), (*b"\"a, b\"@d17.sim.example").into()],
        };
        let mut line = String::new();
        taken.write(&mut line);
        assert_eq!(
            line,
            "1204512 17 3021 acknowledged 4521 storm/7/000000000012/5d1c00aa u0@d17.sim.example,\"a%2C%20b\"@d17.sim.example\n"
        );
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let good = "1 2 3 silent 4 t r";
        assert!(Taken::read(good).is_some());
        for bad in [
            "",
            "1 2 3 silent 4 t",
            "1 2 3 silent 4 t r r",
            "1 2 3 maybe 4 t r",
            "a 2 3 silent 4 t r",
            "1 2 3 silent 4 %4 r",
        ] {
            assert_eq!(Taken::read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_line_reads_back(
            micros in 0..u64::MAX, host: u32, connection: u64, is_told: bool, octets: u64,
            token in prop::collection::vec(any::<u8>(), 0..40),
            recipients in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..5),
        ) {
            prop_assume!(token != b"-");
            let taken = Taken {
                at: Duration::from_micros(micros),
                host,
                connection,
                how: if is_told { How::Acknowledged } else { How::Silent },
                octets,
                token: token.into(),
                recipients: recipients.into_iter().map(Into::into).collect(),
            };
            let mut line = String::new();
            taken.write(&mut line);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(Taken::read(line.trim_end_matches('\n')), Some(taken));
        }
    }
}

//! Macros: facts about a session that the MTA sends ahead of a step.
//!
//! The list of each stage is the union of what sendmail and Postfix send. A macro without a value is left out, and none
//! has an empty name: some filters end the connection at either.

use super::packet::write_packet;

/// A step that has a list of macros of its own (`SMFIM_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MacroStage {
    /// `C`
    Connect,
    /// `H`
    Helo,
    /// `M`
    Mail,
    /// `R`
    Recipient,
    /// `T`
    Data,
    /// `E`
    EndOfBody,
    /// `N`
    EndOfHeader,
}

impl MacroStage {
    /// Returns the stage of a number in the negotiation.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Connect,
            1 => Self::Helo,
            2 => Self::Mail,
            3 => Self::Recipient,
            4 => Self::Data,
            5 => Self::EndOfBody,
            6 => Self::EndOfHeader,
            _ => return None,
        })
    }

    /// The command octet that the macros belong to.
    #[must_use]
    pub const fn command(self) -> u8 {
        match self {
            Self::Connect => b'C',
            Self::Helo => b'H',
            Self::Mail => b'M',
            Self::Recipient => b'R',
            Self::Data => b'T',
            Self::EndOfBody => b'E',
            Self::EndOfHeader => b'N',
        }
    }

    /// Macros that a filter gets here unless it or the configuration names others.
    #[must_use]
    pub const fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Connect => &[
                "j",
                "_",
                "v",
                "b",
                "Z",
                "{daemon_name}",
                "{daemon_addr}",
                "{daemon_port}",
                "{if_name}",
                "{if_addr}",
                "{client_addr}",
                "{client_name}",
                "{client_port}",
                "{client_ptr}",
                "{client_connections}",
            ],
            Self::Helo => {
                &["{tls_version}", "{cipher}", "{cipher_bits}", "{cert_subject}", "{cert_issuer}", "{tls_sni}"]
            }
            Self::Mail => &[
                "i",
                "r",
                "{auth_type}",
                "{auth_authen}",
                "{auth_ssf}",
                "{auth_author}",
                "{mail_mailer}",
                "{mail_host}",
                "{mail_addr}",
            ],
            Self::Recipient => &["{rcpt_mailer}", "{rcpt_host}", "{rcpt_addr}", "{auth_authen}", "{auth_type}"],
            Self::Data | Self::EndOfHeader => &["i", "{auth_authen}", "{auth_type}"],
            Self::EndOfBody => &["{msg_id}", "i", "{auth_authen}", "{auth_type}"],
        }
    }
}

/// Appends the macros of `stage` as a packet `D`. `value` gives what is known of each name; nothing is sent if nothing
/// is known.
///
/// Names are one letter or `{name}`; the configuration and the filter may write `$j` or `name` for `j` and `{name}`.
pub fn write_macros<'a>(
    out: &mut Vec<u8>,
    stage: MacroStage,
    names: impl IntoIterator<Item = &'a [u8]>,
    mut value: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) {
    let mut data = vec![stage.command()];
    for name in names {
        let Some(name) = canonical(name) else { continue };
        let Some(value) = value(&name) else { continue };
        if value.is_empty() || value.contains(&0) {
            continue;
        }
        data.extend_from_slice(&name);
        data.push(0);
        data.extend_from_slice(&value);
        data.push(0);
    }
    if data.len() > 1 {
        write_packet(out, b'D', &[&data]);
    }
}

/// Returns the name as the protocol writes it: one octet, or more in braces. `None` for an empty one.
fn canonical(name: &[u8]) -> Option<Vec<u8>> {
    let name = name.strip_prefix(b"$").unwrap_or(name);
    let bare = name.strip_prefix(b"{").map_or(name, |rest| rest.strip_suffix(b"}").unwrap_or(rest));
    match bare.len() {
        0 => None,
        _ if bare.contains(&0) => None,
        1 => Some(bare.to_vec()),
        _ => Some([b"{", bare, b"}"].concat()),
    }
}

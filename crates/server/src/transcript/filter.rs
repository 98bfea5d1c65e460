//! Turns the octets of a dialog into lines that may be shown: commands and replies, without the content of messages and
//! without what AUTH says.
//!
//! It begins between two transactions and outside of AUTH, where neither content nor a secret is on its way. It knows
//! where content is by the commands: DATA up to the line with a dot, once the server has asked for it; BDAT by its
//! number of octets. A line that it cannot place is not shown.

/// The longest line that is kept; of a longer one the beginning.
const LINE_BYTES_MAX: usize = 1_000;
/// Stands for a secret.
const MASK: &str = "***";

/// The kind of the octets to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outgoing {
    /// Lines with commands.
    #[default]
    Commands,
    /// The content behind DATA, with the octets so far; the number of octets of the end that were seen.
    Data(u64, usize),
    /// So many octets are left of the content behind BDAT.
    Bdat(u64),
    /// Answers to AUTH.
    Secret,
}

/// Follows one dialog.
#[derive(Debug, Default)]
pub(crate) struct DialogFilter {
    outgoing: Outgoing,
    sent: Vec<u8>,
    received: Vec<u8>,
    /// DATA was said and is not answered; transactions before it may be open.
    data_waits: bool,
    /// AUTH was said and is not answered for good.
    is_in_auth: bool,
}

/// The line with a dot that ends content, with the end of the line before.
const END: &[u8] = b"\r\n.\r\n";

impl DialogFilter {
    /// Takes octets that were sent; `show` gets each line.
    pub(crate) fn sent(&mut self, mut octets: &[u8], show: &mut dyn FnMut(&str, &str)) {
        while let Some((&octet, rest)) = octets.split_first() {
            match &mut self.outgoing {
                Outgoing::Bdat(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                    *left -= taken as u64;
                    if *left == 0 {
                        self.outgoing = Outgoing::Commands;
                    }
                    octets = octets.get(taken..).unwrap_or_default();
                    continue;
                }
                Outgoing::Data(count, seen) => {
                    *count += 1;
                    *seen = match octet {
                        octet if END.get(*seen) == Some(&octet) => *seen + 1,
                        b'\r' => 1,
                        _ => 0,
                    };
                    if *seen == END.len() {
                        let content = count.saturating_sub(3);
                        show(">", &format!("({content} octets of content)"));
                        show(">", ".");
                        self.outgoing = Outgoing::Commands;
                    }
                }
                Outgoing::Commands | Outgoing::Secret => self.command_octet(octet, show),
            }
            octets = rest;
        }
    }

    fn command_octet(&mut self, octet: u8, show: &mut dyn FnMut(&str, &str)) {
        if octet != b'\n' {
            if self.sent.len() < LINE_BYTES_MAX {
                self.sent.push(octet);
            }
            return;
        }
        let line = text(&std::mem::take(&mut self.sent));
        if self.outgoing == Outgoing::Secret {
            return show(">", MASK);
        }
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "AUTH" => {
                self.is_in_auth = true;
                self.outgoing = Outgoing::Secret;
                let mechanism = words.next().unwrap_or_default();
                let secret = if words.next().is_some() { format!(" {MASK}") } else { String::new() };
                show(">", &format!("AUTH {mechanism}{secret}"));
            }
            "BDAT" => {
                let octets = words.next().and_then(|number| number.parse().ok()).unwrap_or(0);
                show(">", &format!("{line} ({octets} octets of content)"));
                if octets > 0 {
                    self.outgoing = Outgoing::Bdat(octets);
                }
            }
            "DATA" => {
                self.data_waits = true;
                show(">", &line);
            }
            _ => show(">", &line),
        }
    }

    /// Takes octets that came; `show` gets each line.
    pub(crate) fn received(&mut self, octets: &[u8], show: &mut dyn FnMut(&str, &str)) {
        for octet in octets {
            if *octet != b'\n' {
                if self.received.len() < LINE_BYTES_MAX {
                    self.received.push(*octet);
                }
                continue;
            }
            let line = text(&std::mem::take(&mut self.received));
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            if is_last && self.is_in_auth && !line.starts_with('3') {
                self.is_in_auth = false;
                self.outgoing = Outgoing::Commands;
            }
            if is_last && self.data_waits && line.starts_with("354") {
                self.data_waits = false;
                // The end of an empty content has no line before it.
                self.outgoing = Outgoing::Data(0, 2);
            }
            // A challenge of AUTH may tell of the secret.
            let is_challenge = self.is_in_auth && line.starts_with("334");
            show("<", if is_challenge { "334 ***" } else { &line });
        }
    }
}

/// Returns a line without its end, and with `?` for characters that a terminal acts on.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    String::from_utf8_lossy(line).chars().map(|c| if mail::is_unprintable(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a dialog in pieces of so many octets: lines with `>` go out, others come.
    fn shown(dialog: &[(&str, &str)], piece: usize) -> Vec<String> {
        let (mut filter, mut lines) = (DialogFilter::default(), Vec::new());
        let mut show = |direction: &str, text: &str| lines.push(format!("{direction} {text}"));
        for (direction, octets) in dialog {
            for some in octets.as_bytes().chunks(piece) {
                match *direction {
                    ">" => filter.sent(some, &mut show),
                    _ => filter.received(some, &mut show),
                }
            }
        }
        lines
    }

    #[test]
    fn content_is_shown_as_its_size_wherever_it_is_cut() {
        let dialog = [
            (">", "MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n"),
            ("<", "250 ok\r\n250-one\r\n250 two\r\n354 go on\r\n"),
            (">", "Subject: secret\r\n\r\n.. hidden\r\nRCPT TO:<no@command>\r\n.\r\nMAIL FROM:<>\r\nBDAT 12 LAST\r\n"),
            (">", "DATA\r\nhid\r\n\n"),
            (">", "QUIT\r\n"),
            ("<", "250 2.0.0 taken\r\n221 bye\r\n"),
        ];
        for piece in 1..60 {
            let lines = shown(&dialog, piece);
            assert_eq!(
                lines,
                [
                    "> MAIL FROM:<a@b.test>",
                    "> RCPT TO:<c@d.test>",
                    "> DATA",
                    "< 250 ok",
                    "< 250-one",
                    "< 250 two",
                    "< 354 go on",
                    "> (52 octets of content)",
                    "> .",
                    "> MAIL FROM:<>",
                    "> BDAT 12 LAST (12 octets of content)",
                    "> QUIT",
                    "< 250 2.0.0 taken",
                    "< 221 bye",
                ],
                "{piece}"
            );
        }
    }

    #[test]
    fn secrets_of_auth_are_masked() {
        let dialog = [
            (">", "AUTH PLAIN AGFubgBzZWNyZXQ=\r\n"),
            ("<", "235 2.7.0 ok\r\n"),
            (">", "AUTH SCRAM-SHA-256\r\n"),
            ("<", "334 c2VjcmV0\r\n"),
            (">", "c2VjcmV0\r\n"),
            ("<", "535 5.7.8 no\r\n"),
            (">", "MAIL FROM:<a@b.test>\r\n"),
            ("<", "250 \u{1b}[2J\r\n"),
        ];
        for piece in 1..40 {
            let lines = shown(&dialog, piece);
            assert!(!lines.iter().any(|line| line.contains("c2VjcmV0") || line.contains("AGFubg")), "{lines:?}");
            assert_eq!(
                lines,
                [
                    "> AUTH PLAIN ***",
                    "< 235 2.7.0 ok",
                    "> AUTH SCRAM-SHA-256",
                    "< 334 ***",
                    "> ***",
                    "< 535 5.7.8 no",
                    "> MAIL FROM:<a@b.test>",
                    "< 250 ?[2J",
                ]
            );
        }
    }

    #[test]
    fn an_empty_message_and_a_refused_data_leave_commands_visible() {
        let dialog = [
            (">", "DATA\r\n"),
            ("<", "354 go\r\n"),
            (">", ".\r\nDATA\r\n"),
            ("<", "250 ok\r\n503 no\r\n"),
            (">", "QUIT\r\n"),
        ];
        let lines = shown(&dialog, 3);
        assert!(
            lines.contains(&"> (0 octets of content)".to_owned()) && lines.ends_with(&["> QUIT".to_owned()]),
            "{lines:?}"
        );
    }
}

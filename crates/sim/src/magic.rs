//! Recipients that ask for an answer, for people who try software of their own.
//!
//! The table of docs/sim.md, section 3. The text behind a `+` in a local part does not count, so that a list can have
//! many of them.

use std::fmt;

/// The behaviour that a recipient asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Takes the recipient, whatever the host does to others.
    Ok,
    /// This answer to RCPT.
    Refuse(Refusal),
    /// 421 to RCPT, and the end of the connection.
    Dismiss,
    /// To be put off.
    Greylist,
    /// An answer to RCPT that takes long.
    Slow,
    /// No answer to RCPT.
    Hang,
    /// The end of the connection at RCPT.
    Drop,
    /// Something after the content.
    AtDot(AtDot),
}

/// The behaviour after the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDot {
    /// This answer.
    Refuse(Refusal),
    /// No answer.
    Hang,
    /// The end of the connection; the message is not taken.
    Cut,
    /// The end of the connection; the message is taken.
    CutTaken,
}

/// A reply code with its enhanced code (RFC 3463 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From 400 to 599.
    pub code: u16,
    /// The three numbers; the first one is that of the code.
    pub enhanced: [u16; 3],
}

impl Refusal {
    /// A code with an enhanced code of its class.
    pub(crate) const fn new(code: u16, subject: u16, detail: u16) -> Self {
        Self { code, enhanced: [code / 100, subject, detail] }
    }

    /// Reads `450` or `550-5.1.1`.
    fn read(text: &str) -> Option<Self> {
        let (code, enhanced) = text.split_once('-').map_or((text, None), |(code, rest)| (code, Some(rest)));
        let number = |text: &str, digits| {
            let fits = !text.is_empty() && text.len() <= digits && text.bytes().all(|octet| octet.is_ascii_digit());
            fits.then(|| text.parse::<u16>().ok()).flatten()
        };
        let code = number(code, 3).filter(|code| (400..600).contains(code))?;
        let Some(enhanced) = enhanced else { return Some(Self::new(code, 2, 0)) };
        let mut parts = enhanced.split('.').map(|part| number(part, 3));
        let enhanced = [parts.next()??, parts.next()??, parts.next()??];
        // RFC 2034 §4: the class is that of the code
        (parts.next().is_none() && enhanced.first() == Some(&(code / 100))).then_some(Self { code, enhanced })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [class, subject, detail] = self.enhanced;
        write!(f, "{} {class}.{subject}.{detail}", self.code)
    }
}

/// Returns the behaviour that this address asks for; `None` for an ordinary one.
#[must_use]
pub fn wish(address: &[u8]) -> Option<Wish> {
    let local = address.iter().rposition(|octet| *octet == b'@').map_or(address, |at| address.split_at(at).0);
    let word = local.split(|octet| *octet == b'+').next().unwrap_or_default();
    // Ordinary addresses leave here, at the price of a look at one octet.
    if !matches!(word.first()?, b'4' | b'5' | b'd' | b'g' | b'h' | b'o' | b's') {
        return None;
    }
    let word = std::str::from_utf8(word).ok()?;
    Some(match word {
        "ok" => Wish::Ok,
        "4xx" => Wish::Refuse(Refusal::new(450, 2, 0)),
        "5xx" => Wish::Refuse(Refusal::new(550, 2, 0)),
        "421" => Wish::Dismiss,
        "greylist" => Wish::Greylist,
        "slow" => Wish::Slow,
        "hang" => Wish::Hang,
        "drop" => Wish::Drop,
        "hang-dot" => Wish::AtDot(AtDot::Hang),
        "drop-dot" => Wish::AtDot(AtDot::Cut),
        "drop-taken" => Wish::AtDot(AtDot::CutTaken),
        _ => match word.strip_prefix("dot-") {
            Some(code) => Wish::AtDot(AtDot::Refuse(Refusal::read(code)?)),
            None => Wish::Refuse(Refusal::read(word)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_table() {
        let refuse = |code, subject, detail| Some(Wish::Refuse(Refusal::new(code, subject, detail)));
        let table = [
            ("ok@x", Some(Wish::Ok)),
            ("4xx@x", refuse(450, 2, 0)),
            ("5xx+7+8@x", refuse(550, 2, 0)),
            ("421@x", Some(Wish::Dismiss)),
            ("550-5.1.1@x", refuse(550, 1, 1)),
            ("452@x", refuse(452, 2, 0)),
            ("dot-554-5.7.1@x", Some(Wish::AtDot(AtDot::Refuse(Refusal::new(554, 7, 1))))),
            ("drop-taken@x", Some(Wish::AtDot(AtDot::CutTaken))),
            ("hang", Some(Wish::Hang)),
            ("550-4.1.1@x", None),
            ("550-5.1@x", None),
            ("550-5.1.1.1@x", None),
            ("350@x", None),
            ("0450@x", None),
            ("okay@x", None),
            ("dot-@x", None),
            ("\u{e9}@x", None),
            ("@x", None),
            ("", None),
        ];
        for (address, expected) in table {
            assert_eq!(wish(address.as_bytes()), expected, "{address}");
        }
        assert_eq!(Refusal::new(554, 7, 1).to_string(), "554 5.7.1");
    }
}

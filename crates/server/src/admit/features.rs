//! Applies `Srv_Features:` of the access map to the offers to one client.
//!
//! A small letter offers or demands, a capital one does not, as in sendmail. A small letter offers only extensions
//! for which the listener has the means: it creates neither a certificate nor users. Letters of commands that do not
//! exist here (`B`, `E`) change nothing.

use smtp::server::{BareNewline, Settings};

/// Offers to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// The settings of its session.
    pub(crate) settings: Settings,
    /// Whether the server asks it for a certificate, where it asks for any.
    pub(crate) asks_certificate: bool,
}

/// Applies the letters to the offers. Later letters count more than earlier ones.
pub(crate) fn features(letters: &str, settings: &Settings) -> Features {
    let usual = settings;
    let mut features = Features { settings: usual.clone(), asks_certificate: true };
    let offers = &mut features.settings;
    for letter in letters.chars() {
        match letter {
            'S' => offers.starttls = false,
            's' => offers.starttls = usual.starttls,
            'A' => offers.auth.mechanisms.clear(),
            'a' => offers.auth.mechanisms.clone_from(&usual.auth.mechanisms),
            'L' => offers.auth.required = false,
            'l' => offers.auth.required = true,
            'C' => offers.auth.without_tls = true,
            'c' => offers.auth.without_tls = false,
            'D' => offers.dsn = false,
            'd' => offers.dsn = usual.dsn,
            'P' => offers.pipelining = false,
            'p' => offers.pipelining = usual.pipelining,
            'X' => offers.expand = false,
            'x' => offers.expand = usual.expand,
            'V' => features.asks_certificate = false,
            'v' => features.asks_certificate = true,
            // One setting is for both letters: a bare CR or LF becomes CRLF in the content, and neither ever ends
            // DATA.
            'G' | 'U' => offers.bare_newline = BareNewline::Normalize,
            'g' | 'u' => offers.bare_newline = BareNewline::Reject,
            _ => {}
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Settings {
        let mut settings = Settings::new("mx.test");
        settings.starttls = true;
        settings.auth.mechanisms = vec!["PLAIN".into()];
        settings
    }

    #[test]
    fn each_letter_changes_its_offer() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 11] = [
            ("S", |settings| settings.starttls = false),
            ("A", |settings| settings.auth.mechanisms.clear()),
            ("l", |settings| settings.auth.required = true),
            ("C", |settings| settings.auth.without_tls = true),
            ("D", |settings| settings.dsn = false),
            ("P", |settings| settings.pipelining = false),
            ("X", |settings| settings.expand = false),
            ("U", |settings| settings.bare_newline = BareNewline::Normalize),
            ("G", |settings| settings.bare_newline = BareNewline::Normalize),
            ("VvSlaAsL", |settings| settings.auth.mechanisms.clear()),
            ("saLcdpxugbBeEvFO2", |_| {}),
        ];
        for (letters, change) in cases {
            let mut settings = usual();
            change(&mut settings);
            assert_eq!(features(letters, &usual()), Features { settings, asks_certificate: true }, "{letters}");
        }
        assert!(!features("vV", &usual()).asks_certificate);
    }

    #[test]
    fn what_the_listener_has_not_is_not_offered() {
        let plain = Settings::new("mx.test");
        let offered = features("saldpxv", &plain).settings;
        assert!(!offered.starttls && offered.auth.mechanisms.is_empty());
        assert!(offered.auth.required, "a demand it may be all the same");
    }
}

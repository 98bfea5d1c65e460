//! The pass over the literals loses no match: a set of rules finds exactly what its patterns find one by one.

use proptest::prelude::*;

use crate::{message, names, rules};
use filter::Limits;

const PATTERNS: [&str; 8] = ["abc", "a(b|c)d?", "[ab]c", "^subject: x", "k\u{3c3}", "(?-i)ABC", "b+c", "x.*y"];

proptest! {
    #[test]
    fn rules_and_patterns_agree(text in "[a-dxyABCkK\u{212a}\u{3c2}\u{3a3} ]{0,20}") {
        let content = format!("Subject: {text}\r\n\r\n");
        let rule = |(index, pattern): (usize, &&str)| {
            format!("rule r{index} {{\n match any {{ subject ~ /{pattern}/ }}\n class x\n}}\nrule n{index} {{\n match all {{ subject !~ /{pattern}/ }}\n class y\n}}\n")
        };
        let set = rules(&PATTERNS.iter().enumerate().map(rule).collect::<String>());
        let evaluation = set.evaluate(message(content.as_bytes()), &Limits::default());
        let found = names(&set, &evaluation);
        for (index, pattern) in PATTERNS.iter().enumerate() {
            let regex = regex::RegexBuilder::new(pattern).case_insensitive(true).multi_line(true).crlf(true).build().unwrap();
            let matches = regex.is_match(text.trim_matches(|c: char| c.is_ascii_whitespace()));
            prop_assert_eq!(found.contains(&&*format!("r{index}")), matches, "{}", pattern);
            prop_assert_eq!(found.contains(&&*format!("n{index}")), !matches, "{}", pattern);
        }
    }
}

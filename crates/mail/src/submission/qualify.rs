//! Names without a domain in address fields get one, and nothing else of the field changes.

/// The value of an address field with `@host` behind every name that has no domain.
///
/// Quoted strings and comments are no names. A text of several words without an address in brackets is a mistake of its
/// writer and stays as it is.
// RFC 5322 §3.4
pub(super) fn qualified(value: &[u8], host: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 16);
    let mut scan = ElementScan { value, at: 0 };
    while scan.at < value.len() {
        let item = scan.item();
        let mark = value.get(scan.at).copied();
        match mark {
            // The name of a group.
            Some(b':') => out.extend_from_slice(item),
            _ => write_item(item, host, &mut out),
        }
        out.extend(mark);
        scan.at += 1;
    }
    out
}

struct ElementScan<'a> {
    value: &'a [u8],
    at: usize,
}

impl<'a> ElementScan<'a> {
    /// Up to the comma, colon or semicolon that ends an element. A colon ends the name of a group.
    fn item(&mut self) -> &'a [u8] {
        let start = self.at;
        let (mut depth, mut angle) = (0_u32, false);
        while let Some(&byte) = self.value.get(self.at) {
            match byte {
                b'\\' => self.at += 1,
                b'"' if depth == 0 => self.at = self.closing_quote(),
                b'(' => depth += 1,
                b')' => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                b'<' => angle = true,
                b'>' => angle = false,
                b'[' => self.at = self.literal_end(),
                b',' | b';' => break,
                b':' if !angle => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(self.value.len());
        self.value.get(start..self.at).unwrap_or_default()
    }

    fn closing_quote(&self) -> usize {
        let mut at = self.at + 1;
        while let Some(&byte) = self.value.get(at) {
            match byte {
                b'\\' => at += 1,
                b'"' => return at,
                _ => {}
            }
            at += 1;
        }
        at
    }

    fn literal_end(&self) -> usize {
        let rest = self.value.get(self.at..).unwrap_or_default();
        rest.iter().position(|byte| *byte == b']').map_or(self.at, |end| self.at + end)
    }
}

/// The pieces of an element outside comments: where they begin and end.
fn words(item: &[u8]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(&byte) = item.get(at) {
        let start = at;
        match byte {
            b'\\' if depth > 0 => at += 1,
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ if depth > 0 || byte.is_ascii_whitespace() => {}
            _ => {
                if byte == b'"' {
                    at = ElementScan { value: item, at }.closing_quote().min(item.len().saturating_sub(1));
                } else if byte == b'\\' {
                    at = (at + 1).min(item.len().saturating_sub(1));
                }
                match found.last_mut() {
                    Some((_, end)) if *end == start => *end = at + 1,
                    _ => found.push((start, at + 1)),
                }
            }
        }
        at += 1;
    }
    found
}

fn write_item(item: &[u8], host: &str, out: &mut Vec<u8>) {
    let words = words(item);
    let piece = |&(start, end): &(usize, usize)| item.get(start..end).unwrap_or_default();
    let open = words.iter().find_map(|word| {
        let at = piece(word).iter().position(|byte| *byte == b'<')?;
        (!piece(word).starts_with(b"\"")).then_some(word.0 + at)
    });
    let insert_at = match open {
        Some(open) => {
            let close = item.get(open..).and_then(|rest| rest.iter().position(|byte| *byte == b'>'));
            let inner = close.and_then(|close| item.get(open + 1..open + close)).unwrap_or_default();
            let is_bare = !inner.trim_ascii().is_empty() && !inner.contains(&b'@') && !inner.contains(&b' ');
            close.filter(|_| is_bare).map(|close| open + close)
        }
        None => match words.as_slice() {
            [only] if !piece(only).contains(&b'@') => Some(only.1),
            _ => None,
        },
    };
    match insert_at {
        Some(at) => {
            let (before, behind) = item.split_at(at);
            out.extend_from_slice(before);
            out.push(b'@');
            out.extend_from_slice(host.as_bytes());
            out.extend_from_slice(behind);
        }
        None => out.extend_from_slice(item),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_names_without_a_domain_change() {
        for (value, expected) in [
            (" root", " root@h.test"),
            (" root\r\n", " root@h.test\r\n"),
            (" root (Charlie, the root), ann@b.test", " root@h.test (Charlie, the root), ann@b.test"),
            (" \"Joe, B\" <joe>, <ann@b.test>", " \"Joe, B\" <joe@h.test>, <ann@b.test>"),
            (" Joe User <joe>", " Joe User <joe@h.test>"),
            (" Joe User", " Joe User"),
            (" \"joe user\"", " \"joe user\"@h.test"),
            (" <>", " <>"),
            ("", ""),
            (" a@[IPv6:::1], b", " a@[IPv6:::1], b@h.test"),
            (" joe @ b.test", " joe @ b.test"),
            (" =?utf-8?q?J=C3=B6?= <j>", " =?utf-8?q?J=C3=B6?= <j@h.test>"),
            (" \"a < b\" <c>", " \"a < b\" <c@h.test>"),
            (" team: joe, ann@b.test;", " team: joe@h.test, ann@b.test;"),
            (" undisclosed-recipients:;", " undisclosed-recipients:;"),
            (" a,\r\n\tb", " a@h.test,\r\n\tb@h.test"),
        ] {
            let found = qualified(value.as_bytes(), "h.test");
            assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_panics(value in "[ab\"\\\\()<>@,:;\\[\\] \t]{0,30}") {
            let found = String::from_utf8(qualified(value.as_bytes(), "H")).unwrap();
            prop_assert_eq!(found.replace("@H", ""), value);
        }
    }
}

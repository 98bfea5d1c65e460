//! Keys of the coordination store as subjects of its bucket, and back.
//!
//! A key has parts between slashes, as `node/3`; a subject has tokens between dots, so that a wildcard has the keys
//! below a prefix. An octet that a token cannot have is written as `=` and two digits, an empty part as `=`.

/// The bucket.
pub(super) const BUCKET: &str = "mailrace";
/// The stream behind the bucket.
pub(super) const BUCKET_STREAM: &str = "KV_mailrace";
/// All subjects of the bucket.
pub(super) const BUCKET_SUBJECTS: &str = "$KV.mailrace.>";
/// Subject of a message that each read writes before it, to find the newest state. No key has it.
pub(super) const BARRIER_SUBJECT: &str = "$KV.mailrace.=barrier";

/// The subject of a key.
pub(super) fn subject(key: &str) -> String {
    format!("$KV.{BUCKET}.{}", tokens(key))
}

/// A subject with wildcard that has all keys with this prefix, and perhaps more.
pub(super) fn subjects_with_prefix(prefix: &str) -> String {
    match prefix.rsplit_once('/') {
        Some((parent, _)) => format!("{}.>", subject(parent)),
        None => BUCKET_SUBJECTS.to_owned(),
    }
}

/// The key of a subject; `None` for one that belongs to no key.
pub(super) fn key(subject: &str) -> Option<String> {
    let tokens = subject.strip_prefix("$KV.")?.strip_prefix(BUCKET)?.strip_prefix('.')?;
    let parts: Option<Vec<String>> = tokens.split('.').map(decode).collect();
    Some(parts?.join("/"))
}

fn tokens(key: &str) -> String {
    let parts: Vec<String> = key.split('/').map(encode).collect();
    parts.join(".")
}

fn encode(part: &str) -> String {
    if part.is_empty() {
        return "=".to_owned();
    }
    let mut token = String::new();
    for byte in part.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' => token.push(char::from(byte)),
            _ => token.push_str(&format!("={byte:02X}")),
        }
    }
    token
}

fn decode(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let (mut octets, mut rest) = (Vec::new(), token.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'=' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            octets.push(u8::from_str_radix(digits, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            octets.push(*first);
        }
    }
    let part = String::from_utf8(octets).ok()?;
    // A token that we would not write belongs to somebody else.
    (encode(&part) == token).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_from_their_subjects() {
        for (wanted, subject_of_it) in [
            ("node/3", "$KV.mailrace.node.3"),
            ("claim/3/7/0", "$KV.mailrace.claim.3.7.0"),
            ("limit/mx.example", "$KV.mailrace.limit.mx=2Eexample"),
            ("limit//a b*>=ü", "$KV.mailrace.limit.=.a=20b=2A=3E=3D=C3=BC"),
            ("", "$KV.mailrace.="),
        ] {
            assert_eq!(subject(wanted), subject_of_it);
            assert_eq!(key(subject_of_it).as_deref(), Some(wanted));
        }
        for strange in [BARRIER_SUBJECT, "$KV.mailrace.a..b", "$KV.mailrace.=2e", "$KV.other.a", "$KV.mailrace.=41"] {
            assert_eq!(key(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_prefix_has_the_subjects_of_its_keys() {
        assert_eq!(subjects_with_prefix("node/"), "$KV.mailrace.node.>");
        assert_eq!(subjects_with_prefix("claim/3/1"), "$KV.mailrace.claim.3.>");
        assert_eq!(subjects_with_prefix("no"), BUCKET_SUBJECTS);
    }
}

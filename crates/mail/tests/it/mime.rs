//! A reader of MIME messages for tests, written line by line and without the crate's own parsers, so that a mistake in
//! one is not made in the other. Strict: an unexpected form fails an assertion.

/// A message or a part.
#[derive(Debug)]
pub(crate) struct Entity {
    /// Name in lower case, unfolded value.
    pub(crate) fields: Vec<(String, String)>,
    /// Decoded for leaves; as it stands for others.
    pub(crate) body: Vec<u8>,
    pub(crate) parts: Vec<Self>,
}

impl Entity {
    pub(crate) fn read(message: &[u8]) -> Self {
        Self::read_to_depth(message, true)
    }

    /// The same, but messages within the message stay unread: a stranger's may be anything.
    pub(crate) fn read_outer(message: &[u8]) -> Self {
        Self::read_to_depth(message, false)
    }

    fn read_to_depth(message: &[u8], looks_into_messages: bool) -> Self {
        let (mut fields, mut rest) = (Vec::<(String, String)>::new(), message);
        loop {
            let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
                assert!(rest.is_empty(), "header ends without an empty line: {}", rest.escape_ascii());
                break;
            };
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 2..];
            if line.is_empty() {
                break;
            }
            if line.starts_with([' ', '\t']) {
                let last = fields.last_mut().expect("a field to continue");
                last.1.push_str(&line);
            } else {
                let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line:?}"));
                assert!(name.bytes().all(|b| b.is_ascii_graphic()), "field name {name:?}");
                fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        let mut entity = Self { fields, body: rest.to_vec(), parts: Vec::new() };
        let kind = entity.kind();
        match entity.field("content-transfer-encoding").unwrap_or("7bit").to_ascii_lowercase().as_str() {
            "base64" => entity.body = base64(rest),
            "quoted-printable" => entity.body = quoted_printable(rest),
            "7bit" | "8bit" | "binary" => {}
            other => panic!("encoding {other}"),
        }
        if kind.starts_with("multipart/") {
            let boundary = entity.parameter("content-type", "boundary").expect("a boundary");
            entity.parts =
                split(rest, &boundary).iter().map(|part| Self::read_to_depth(part, looks_into_messages)).collect();
        } else if kind == "message/rfc822" && looks_into_messages {
            entity.parts = vec![Self::read(&entity.body)];
        }
        entity
    }

    /// The value of the only field of a name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} twice");
        value
    }

    pub(crate) fn kind(&self) -> String {
        let value = self.field("content-type").unwrap_or("text/plain");
        value.split(';').next().unwrap().trim().to_ascii_lowercase()
    }

    pub(crate) fn parameter(&self, field: &str, name: &str) -> Option<String> {
        let value = self.field(field)?;
        value.split(';').skip(1).find_map(|parameter| {
            let (key, text) = parameter.split_once('=')?;
            (key.trim().eq_ignore_ascii_case(name)).then(|| text.trim().trim_matches('"').to_owned())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text in UTF-8")
    }

    /// The decoded bodies of all leaves, in order.
    pub(crate) fn leaves(&self) -> Vec<Vec<u8>> {
        if self.parts.is_empty() {
            return vec![self.body.clone()];
        }
        self.parts.iter().flat_map(Self::leaves).collect()
    }
}

/// The lines of octets with their line ends; only CRLF ends one.
fn lines(octets: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut start = 0;
    for at in 1..octets.len() {
        if octets[at - 1] == b'\r' && octets[at] == b'\n' {
            lines.push(&octets[start..=at]);
            start = at + 1;
        }
    }
    if start < octets.len() {
        lines.push(&octets[start..]);
    }
    lines
}

fn split(body: &[u8], boundary: &str) -> Vec<Vec<u8>> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut is_inside = false;
    for line in lines(body) {
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let text = text.trim_ascii_end();
        if text == open.as_bytes() || text == close.as_bytes() {
            if let Some(part) = parts.last_mut().filter(|part| part.ends_with(b"\r\n")) {
                part.truncate(part.len() - 2);
            }
            if text == close.as_bytes() {
                return parts;
            }
            is_inside = true;
            parts.push(Vec::new());
        } else if is_inside {
            parts.last_mut().unwrap().extend_from_slice(line);
        }
    }
    panic!("no closing delimiter {close}");
}

pub(crate) fn base64(text: &[u8]) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters: Vec<u8> = text.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    assert!(letters.len().is_multiple_of(4), "base64 comes in fours");
    let mut out = Vec::new();
    for four in letters.chunks(4) {
        let value = |at: usize| ALPHABET.find(char::from(four[at])).map(|value| u8::try_from(value).unwrap());
        let (a, b) = (value(0).expect("a letter"), value(1).expect("a letter"));
        out.push(a << 2 | b >> 4);
        match (value(2), value(3)) {
            (Some(c), Some(d)) => out.extend([b << 4 | c >> 2, c << 6 | d]),
            (Some(c), None) => out.push(b << 4 | c >> 2),
            (None, None) => assert_eq!(&four[2..], b"=="),
            (None, Some(_)) => panic!("padding in the middle"),
        }
    }
    out
}

pub(crate) fn quoted_printable(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines(text) {
        let (line, end) = line.strip_suffix(b"\r\n").map_or((line, &b""[..]), |line| (line, &b"\r\n"[..]));
        assert!(line.len() <= 76, "line of {} octets", line.len());
        assert!(!line.ends_with(b" ") && !line.ends_with(b"\t"), "white space at the end of a line");
        let mut at = 0;
        let mut is_soft = false;
        while at < line.len() {
            match line[at] {
                b'=' if at + 1 == line.len() => {
                    is_soft = true;
                    at += 1;
                }
                b'=' => {
                    let digits = str::from_utf8(&line[at + 1..at + 3]).unwrap();
                    assert_eq!(digits, digits.to_ascii_uppercase());
                    out.push(u8::from_str_radix(digits, 16).unwrap());
                    at += 3;
                }
                byte => {
                    assert!(matches!(byte, b'\t' | b' '..=b'~'), "{byte} in quoted-printable");
                    out.push(byte);
                    at += 1;
                }
            }
        }
        if !is_soft {
            out.extend_from_slice(end);
        }
    }
    out
}

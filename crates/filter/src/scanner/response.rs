//! A response of the form that spamd and HTTP servers share: a first line, fields, an empty line, a body.
//!
//! The body ends as its fields say: after `Content-Length` octets, with the last chunk (RFC 9112 §7.1), or with the
//! connection.

use super::ScannerError;

/// Octets of first line and fields together.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The first line without its line end.
    pub first_line: String,
    /// Names in lower case, and values without blanks around them.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection is ready for another request (RFC 9112 §9.3).
    pub stays_open: bool,
}

impl Response {
    /// Returns the value of the first field of a name, which is given in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// Whether the server does not close the connection behind it.
    fn is_persistent(&self) -> bool {
        let said = self.field("connection").unwrap_or_default();
        match said.to_ascii_lowercase().as_str() {
            "close" => false,
            "keep-alive" => true,
            _ => self.first_line.starts_with("HTTP/1.1 "),
        }
    }
}

/// Collects the octets of one response.
#[derive(Debug)]
pub struct ResponseReader {
    protocol: &'static str,
    /// A response begins with this.
    prefix: &'static [u8],
    body_bytes_max: usize,
    buffer: Vec<u8>,
}

impl ResponseReader {
    /// Makes a reader of responses of `protocol`, a name for errors, that begin with `prefix`.
    pub(super) const fn new(protocol: &'static str, prefix: &'static [u8], body_bytes_max: usize) -> Self {
        Self { protocol, prefix, body_bytes_max, buffer: Vec::new() }
    }

    /// Takes octets, and returns the response when it is whole. `is_end` says that the connection ended.
    ///
    /// # Errors
    /// Another protocol answers, the response is malformed or over a limit, or the connection ended within it.
    pub fn push(&mut self, octets: &[u8], is_end: bool) -> Result<Option<Response>, ScannerError> {
        self.buffer.extend_from_slice(octets);
        let common = self.buffer.len().min(self.prefix.len());
        if self.buffer.get(..common) != self.prefix.get(..common) {
            return Err(ScannerError::other_protocol(self.protocol, &self.buffer));
        }
        let Some(head_bytes) = head_end(&self.buffer, is_end) else {
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(self.too_long("head_bytes_max", HEAD_BYTES_MAX));
            }
            return if is_end { Err(self.incomplete()) } else { Ok(None) };
        };
        let (head, rest) = self.buffer.split_at(head_bytes);
        let (first_line, fields) = read_head(self.protocol, head)?;
        let response = Response { first_line, fields, body: Vec::new(), stays_open: false };
        let length = self.body_length(&response)?;
        // Where a body ends otherwise, a driver cannot know that nothing follows.
        let stays_open = matches!(length, BodyLength::Octets(count) if rest.len() == count) && response.is_persistent();
        let body = match length {
            BodyLength::Octets(count) => rest.get(..count).map(<[u8]>::to_vec),
            BodyLength::Chunked => self.chunked(rest)?,
            BodyLength::ToTheEnd => is_end.then(|| rest.to_vec()),
        };
        match body {
            Some(body) => Ok(Some(Response { body, stays_open, ..response })),
            // Chunks have a frame of their own, which is a few octets for each.
            None if rest.len() > self.body_bytes_max.saturating_mul(2) => {
                Err(self.too_long("body_bytes_max", self.body_bytes_max))
            }
            None if is_end => Err(self.incomplete()),
            None => Ok(None),
        }
    }

    fn body_length(&self, response: &Response) -> Result<BodyLength, ScannerError> {
        if response.field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return Ok(BodyLength::Chunked);
        }
        let Some(value) = response.field("content-length") else { return Ok(BodyLength::ToTheEnd) };
        let is_number = !value.is_empty() && value.bytes().all(|octet| octet.is_ascii_digit());
        match value.parse::<usize>().ok().filter(|_| is_number) {
            None => {
                Err(ScannerError::Malformed { protocol: self.protocol, what: "a Content-Length that is no number" })
            }
            Some(count) if count > self.body_bytes_max => Err(self.too_long("body_bytes_max", self.body_bytes_max)),
            Some(count) => Ok(BodyLength::Octets(count)),
        }
    }

    /// Joins chunks. `None` until the last one is there.
    fn chunked(&self, octets: &[u8]) -> Result<Option<Vec<u8>>, ScannerError> {
        let bad = |what| Err(ScannerError::Malformed { protocol: self.protocol, what });
        let mut body = Vec::new();
        let mut rest = octets;
        loop {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return if rest.len() > 1_024 { bad("a chunk without its size") } else { Ok(None) };
            };
            let (line, behind) = rest.split_at(end + 1);
            let digits = line.split(|octet| b";\r\n ".contains(octet)).next().unwrap_or_default();
            let size = str::from_utf8(digits).ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_hexdigit()));
            let Some(size) = size.and_then(|text| usize::from_str_radix(text, 16).ok()) else {
                return bad("a chunk size that is no number");
            };
            if size == 0 {
                return Ok(Some(body));
            }
            if size > self.body_bytes_max - body.len() {
                return Err(self.too_long("body_bytes_max", self.body_bytes_max));
            }
            let Some((chunk, behind)) = behind.split_at_checked(size) else { return Ok(None) };
            body.extend_from_slice(chunk);
            rest = match behind {
                [b'\r', b'\n', behind @ ..] | [b'\n', behind @ ..] => behind,
                [] | [b'\r'] => return Ok(None),
                _ => return bad("a chunk that does not end where its size says"),
            };
        }
    }

    const fn too_long(&self, limit: &'static str, value: usize) -> ScannerError {
        ScannerError::TooLong { protocol: self.protocol, limit, value }
    }

    const fn incomplete(&self) -> ScannerError {
        ScannerError::Incomplete { protocol: self.protocol }
    }
}

enum BodyLength {
    Octets(usize),
    Chunked,
    ToTheEnd,
}

/// Returns the number of octets up to and with the empty line. spamd omits it behind an answer of one line, such as
/// that to PING, and closes the connection.
fn head_end(octets: &[u8], is_end: bool) -> Option<usize> {
    let octets = octets.get(..HEAD_BYTES_MAX).unwrap_or(octets);
    let mut line_start = 0;
    for end in memchr::memchr_iter(b'\n', octets) {
        if matches!(octets.get(line_start..end), Some(b"" | b"\r")) && line_start > 0 {
            return Some(end + 1);
        }
        line_start = end + 1;
    }
    (is_end && line_start > 0 && line_start == octets.len()).then_some(line_start)
}

type Head = (String, Vec<(String, String)>);

fn read_head(protocol: &'static str, head: &[u8]) -> Result<Head, ScannerError> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let first_line = lines.next().unwrap_or_default().to_owned();
    let mut fields = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else {
            return Err(ScannerError::Malformed { protocol, what: "a line in its head that is no field" });
        };
        fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok((first_line, fields))
}

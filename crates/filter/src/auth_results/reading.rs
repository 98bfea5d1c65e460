//! Reads the results that a field of another server, or of this one, reports.
//!
//! A field that cannot be read has fewer results; none is made up. The caller knows whether the server behind the field
//! may be believed.

/// Results of one field that are read.
const RESULTS_MAX: usize = 100;

/// One result that a field reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedResult {
    /// The method in lower case: `spf`, `dkim`, `dmarc`.
    pub method: String,
    /// Its result in lower case: `pass`, `fail`.
    pub code: String,
    /// Properties with their values: `header.from` and `example.org`.
    pub properties: Vec<(String, String)>,
}

impl ReportedResult {
    /// Returns the value of a property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads the results in the value of a field; what is no result, as the name of the server, is passed over.
// RFC 8601 §2.2
#[must_use]
pub fn reported_results(value: &[u8]) -> Vec<ReportedResult> {
    let mut results = Vec::new();
    for words in statements(value) {
        let mut pairs = words.into_iter().filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let Some((method, code)) = pairs.next() else { continue };
        // RFC 8601 §2.2: a version may stand behind the method
        let method = method.split('/').next().unwrap_or_default().to_ascii_lowercase();
        results.push(ReportedResult { method, code: code.to_ascii_lowercase(), properties: pairs.collect() });
        if results.len() == RESULTS_MAX {
            break;
        }
    }
    results
}

/// Splits a value at semicolons, and each part into words: without comments, quotes and the blanks around `=`.
fn statements(value: &[u8]) -> Vec<Vec<String>> {
    let text = String::from_utf8_lossy(value);
    let (mut statements, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let (mut depth, mut is_quoted, mut has_blank) = (0_usize, false, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if depth > 0 || is_quoted => {
                let next = letters.next();
                word.extend(next.filter(|_| depth == 0));
            }
            '(' if !is_quoted => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => word.push(letter),
            ' ' | '\t' | '\r' | '\n' => has_blank = true,
            ';' => {
                words.push(std::mem::take(&mut word));
                statements.push(std::mem::take(&mut words));
                has_blank = false;
            }
            _ => {
                let is_joined = letter == '=' || word.ends_with('=');
                if std::mem::take(&mut has_blank) && !is_joined && !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                word.push(letter);
            }
        }
    }
    words.push(word);
    statements.push(words);
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> String {
        let results = reported_results(value.as_bytes());
        let one = |one: &ReportedResult| {
            let properties = one.properties.iter().map(|(name, value)| format!(" {name}={value}"));
            format!("{}={}{}", one.method, one.code, properties.collect::<String>())
        };
        results.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    // RFC 8601 §2.2 (test)
    #[test]
    fn results_of_several_writers() {
        for (value, expected) in [
            (
                " mx.google.example;\r\n       dkim=pass header.i=@a.example header.s=x;\r\n       \
                 dmarc=pass (p=NONE sp=NONE dis=NONE) header.from=a.example",
                "dkim=pass header.i=@a.example header.s=x; dmarc=pass header.from=a.example",
            ),
            (
                " i=1; mx.test 1; DMARC/1 = Pass reason=\"a; dkim=pass\" header.from = b.test",
                "i=1; dmarc=pass reason=a; dkim=pass header.from=b.test",
            ),
            (" mx.test; none", ""),
            (
                " mx.test (dmarc=pass; x); spf=fail (a \\) b) smtp.mailfrom=\"x y\"@a.test",
                "spf=fail smtp.mailfrom=x y@a.test",
            ),
            (" mx.test; spf=pass (open; dmarc=pass", "spf=pass"),
            (";;=;", "="),
            ("", ""),
        ] {
            assert_eq!(read(value), expected, "{value:?}");
        }
        assert_eq!(reported_results("a=b;".repeat(1_000).as_bytes()).len(), RESULTS_MAX);
    }

    #[test]
    fn fields_of_ours_read_back() {
        let result = super::super::MethodResult {
            method: "arc",
            code: "pass",
            reason: "a; b=c (".to_owned(),
            properties: vec![("header.d", "a.test".to_owned())],
        };
        let field = super::super::field("mx.test", &[result]);
        let (_, value) = field.split_once(':').unwrap();
        assert_eq!(read(value), "arc=pass reason=a; b=c ( header.d=a.test");
    }
}

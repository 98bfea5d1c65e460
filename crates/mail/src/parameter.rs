//! The parameters behind the path of `MAIL` and `RCPT`: splitting `KEYWORD[=value]` and the faults of one.
//!
//! [`crate::MailParams`] and [`crate::RecipientParams`] know the meaning of keywords.

use std::fmt;

/// One parameter as it stands in the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Letters, digits and hyphens, in the case they came with.
    pub keyword: &'a str,
    /// The text behind the `=`: at least one character, no spaces, no `=`.
    pub value: Option<&'a str>,
}

/// The fault of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamReason {
    /// Not of the form `KEYWORD[=value]`; 501 5.5.4.
    Syntax,
    /// A keyword that no extension we know defines for this command; 555 5.5.4.
    Unknown,
    /// Given twice, or together with one that excludes it; 501 5.5.4.
    Duplicate,
    /// A value missing, superfluous or malformed; 501 5.5.4.
    Value,
}

/// A parameter that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    keyword: Box<str>,
    value: Option<Box<str>>,
    reason: ParamReason,
}

impl ParamError {
    pub(crate) fn new(parameter: Parameter<'_>, reason: ParamReason) -> Self {
        let printable = |text: &str| text.escape_debug().collect::<String>().into_boxed_str();
        Self { keyword: printable(parameter.keyword), value: parameter.value.map(printable), reason }
    }

    /// The keyword as it came; for [`ParamReason::Syntax`] the whole parameter, fit to print.
    #[must_use]
    pub fn keyword(&self) -> &str {
        &self.keyword
    }

    /// The value, fit to print.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Returns the fault.
    #[must_use]
    pub const fn reason(&self) -> ParamReason {
        self.reason
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            ParamReason::Syntax => "is not of the form KEYWORD=value",
            ParamReason::Unknown => "is not known here",
            ParamReason::Duplicate => "is given twice or contradicts another",
            ParamReason::Value => "has a wrong value",
        };
        match &self.value {
            Some(value) => write!(f, "parameter {}={value} {reason}", self.keyword),
            None => write!(f, "parameter {} {reason}", self.keyword),
        }
    }
}

impl std::error::Error for ParamError {}

/// Splits what follows the path, spaces first, into parameters.
///
/// The iterator goes on after an error; more than one space between parameters is forgiven.
// RFC 5321 §4.1.2: Mail-parameters = esmtp-param *(SP esmtp-param)
pub fn parameters(bytes: &[u8]) -> impl Iterator<Item = Result<Parameter<'_>, ParamError>> {
    bytes.split(|byte| *byte == b' ').filter(|part| !part.is_empty()).map(|part| {
        parameter(part).ok_or_else(|| {
            let whole = String::from_utf8_lossy(part);
            ParamError::new(Parameter { keyword: &whole, value: None }, ParamReason::Syntax)
        })
    })
}

fn parameter(part: &[u8]) -> Option<Parameter<'_>> {
    let text = str::from_utf8(part).ok()?;
    let (keyword, value) = match text.split_once('=') {
        Some((keyword, value)) => (keyword, Some(value)),
        None => (text, None),
    };
    // RFC 5321 §4.1.2: esmtp-keyword = (ALPHA / DIGIT) *(ALPHA / DIGIT / "-")
    let keyword_fits = keyword.starts_with(|c: char| c.is_ascii_alphanumeric())
        && keyword.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    // RFC 5321 §4.1.2: esmtp-value = 1*(%d33-60 / %d62-126); RFC 6531 §3.3 adds non-ASCII
    let value_fits =
        value.is_none_or(|value| !value.is_empty() && value.chars().all(|c| c != '=' && !c.is_control() && c != ' '));
    (keyword_fits && value_fits).then_some(Parameter { keyword, value })
}

/// Fills a slot that may be filled once.
pub(crate) fn fill<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), ParamReason> {
    let value = value.ok_or(ParamReason::Value)?;
    if slot.replace(value).is_some() {
        return Err(ParamReason::Duplicate);
    }
    Ok(())
}

/// Writes parameters with single spaces between them, for `Display`.
pub(crate) struct ParamWriter<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl<'a, 'f> ParamWriter<'a, 'f> {
    pub(crate) const fn new(f: &'a mut fmt::Formatter<'f>) -> Self {
        Self { f, first: true }
    }

    /// Writes `KEYWORD` alone, if it is set.
    pub(crate) fn flag(&mut self, keyword: &str, is_set: bool) -> fmt::Result {
        if is_set { self.separate().and_then(|()| self.f.write_str(keyword)) } else { Ok(()) }
    }

    /// Writes `KEYWORD=value`, if there is one.
    pub(crate) fn value(&mut self, keyword: &str, value: Option<impl fmt::Display>) -> fmt::Result {
        match value {
            Some(value) => self.separate().and_then(|()| write!(self.f, "{keyword}={value}")),
            None => Ok(()),
        }
    }

    fn separate(&mut self) -> fmt::Result {
        if std::mem::take(&mut self.first) { Ok(()) } else { self.f.write_str(" ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5321 §4.1.2 (test)
    #[test]
    fn splitting() {
        let split: Vec<_> = parameters(b"  SIZE=12  body=8bitmime X-1 \xc3\xbc=1 A= B==C -D E=\x01 F=\xff").collect();
        assert_eq!(
            split.iter().filter_map(|part| part.as_ref().ok()).map(|p| (p.keyword, p.value)).collect::<Vec<_>>(),
            [("SIZE", Some("12")), ("body", Some("8bitmime")), ("X-1", None)],
        );
        let errors: Vec<_> = split.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(|error| error.reason() == ParamReason::Syntax), "{errors:?}");
        assert_eq!(errors.len(), 6);
        assert_eq!(errors.get(4).unwrap().to_string(), r"parameter E=\u{1} is not of the form KEYWORD=value");
    }
}

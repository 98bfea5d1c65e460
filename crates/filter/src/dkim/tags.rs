//! Lists of tags: `v=DKIM1; k=rsa; p=…` (RFC 6376 §3.2).

/// A list whose text is broken, or which has a tag twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagListError;

impl std::fmt::Display for TagListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no list of tags as name=value; name=value, each name once")
    }
}

impl std::error::Error for TagListError {}

/// A list of tags, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagList<'a>(Vec<(&'a str, &'a str)>);

impl<'a> TagList<'a> {
    /// Reads a list. White space around names and values does not count.
    ///
    /// # Errors
    /// A tag has no `=` or no valid name, or a name stands there twice.
    // RFC 6376 §3.2: tags with duplicate names must not occur; names are case-sensitive
    pub fn parse(text: &'a str) -> Result<Self, TagListError> {
        let mut tags: Vec<(&str, &str)> = Vec::new();
        let mut specs = text.split(';').peekable();
        while let Some(spec) = specs.next() {
            if specs.peek().is_none() && is_blank(spec) {
                break;
            }
            let (name, value) = spec.split_once('=').ok_or(TagListError)?;
            let (name, value) = (name.trim_matches(is_space), value.trim_matches(is_space));
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
            if !is_name || tags.iter().any(|(known, _)| *known == name) {
                return Err(TagListError);
            }
            tags.push((name, value));
        }
        Ok(Self(tags))
    }

    /// Returns the value of a tag, with the white space in it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns the value of a tag without any white space, as base64 and names need it.
    #[must_use]
    pub fn compact(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| value.chars().filter(|c| !is_space(*c)).collect())
    }

    /// Returns the name of the first tag.
    #[must_use]
    pub fn first(&self) -> Option<&'a str> {
        self.0.first().map(|(name, _)| *name)
    }
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_or_refused() {
        let list = TagList::parse(" v=1;\r\n\ta = rsa-sha256 ; b=A B\r\n C;empty=;").unwrap();
        assert_eq!((list.get("v"), list.get("a"), list.get("empty")), (Some("1"), Some("rsa-sha256"), Some("")));
        assert_eq!((list.get("A"), list.compact("b").as_deref(), list.first()), (None, Some("ABC"), Some("v")));
        assert_eq!(TagList::parse("a=b=c").unwrap().get("a"), Some("b=c"));
        assert_eq!(TagList::parse(" ").unwrap(), TagList::default());
        for text in ["v", "v=1;;a=b", "v=1; v=1", "=1", "1a=b", "a b=c", "v=1; x"] {
            assert_eq!(TagList::parse(text), Err(TagListError), "{text}");
        }
    }
}

//! A small Rust tokenizer: words, punctuation and literals on one side, comments on the other, each with its line.
//!
//! The rules of `tidy` look at tokens, so a banned word inside a string or a comment raises no alarm, and `rfc-check`
//! looks at comments only. It knows nested block comments, raw strings, raw identifiers, and tells a lifetime from a
//! character literal. It does not parse: a file that does not compile gives tokens all the same.

/// The kind of a token; the text of literals is kept because `#[ignore = "reason"]` needs to be seen as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identifier, keyword or number.
    Word,
    /// One punctuation character, or `::`.
    Punct,
    /// String, byte string, C string or character.
    Literal,
    /// `'a`.
    Lifetime,
}

/// One token of code.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// Line of the first character, counted from 1.
    pub(crate) line: usize,
}

impl Token {
    /// True for a word or a punctuation of this text; a literal never matches.
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Punct) && self.text == text
    }
}

/// One comment, without its `//`, `///`, `//!` or `/*`.
#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub(crate) text: String,
    /// Line of the first character, counted from 1.
    pub(crate) line: usize,
    /// `//!` or `/*!`: documentation of the file itself.
    pub(crate) inner: bool,
}

/// Splits Rust source into tokens and comments.
pub(crate) fn lex(text: &str) -> (Vec<Token>, Vec<Comment>) {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0, line: 1, tokens: Vec::new(), comments: Vec::new() };
    while lexer.step() {}
    (lexer.tokens, lexer.comments)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Takes one character and counts lines.
    fn take(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, into: &mut String, keep: impl Fn(char) -> bool) {
        while let Some(c) = self.peek(0).filter(|c| keep(*c)) {
            into.push(c);
            self.take();
        }
    }

    fn push(&mut self, kind: Kind, text: String, line: usize) {
        self.tokens.push(Token { kind, text, line });
    }

    /// Takes one token or comment; false at the end.
    fn step(&mut self) -> bool {
        let Some(c) = self.peek(0) else { return false };
        match (c, self.peek(1)) {
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (':', Some(':')) => {
                let line = self.line;
                self.take();
                self.take();
                self.push(Kind::Punct, "::".to_owned(), line);
            }
            _ if c.is_whitespace() => {
                self.take();
            }
            _ if is_word(c) => self.word(),
            _ => {
                let line = self.line;
                self.take();
                self.push(Kind::Punct, c.to_string(), line);
            }
        }
        true
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let mut text = String::new();
        self.take_while(&mut text, |c| c != '\n');
        let inner = text.starts_with("//!");
        let body = text.trim_start_matches('/').trim_start_matches('!').trim().to_owned();
        self.comments.push(Comment { text: body, line, inner });
    }

    fn block_comment(&mut self) {
        let line = self.line;
        let mut depth = 0_usize;
        let mut text = String::new();
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.take();
                    self.take();
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.take();
                    self.take();
                    if depth == 0 {
                        break;
                    }
                }
                (Some(c), _) => {
                    text.push(c);
                    self.take();
                }
                (None, _) => break,
            }
        }
        let inner = text.starts_with('!');
        self.comments.push(Comment { text: text.trim_start_matches('!').to_owned(), line, inner });
    }

    /// A string whose opening quote is next; escapes hide quotes.
    fn string(&mut self) {
        let line = self.line;
        let mut text = String::new();
        self.take();
        while let Some(c) = self.take() {
            match c {
                '"' => break,
                '\\' => {
                    text.push(c);
                    text.extend(self.take());
                }
                _ => text.push(c),
            }
        }
        self.push(Kind::Literal, text, line);
    }

    /// A raw string whose `#`s or quote are next.
    fn raw_string(&mut self) {
        let line = self.line;
        let mut hashes = String::new();
        self.take_while(&mut hashes, |c| c == '#');
        self.take();
        let mut text = String::new();
        while let Some(c) = self.take() {
            if c == '"' && (0..hashes.len()).all(|ahead| self.peek(ahead) == Some('#')) {
                for _ in 0..hashes.len() {
                    self.take();
                }
                break;
            }
            text.push(c);
        }
        self.push(Kind::Literal, text, line);
    }

    /// A lifetime or a character: `'a` followed by no quote is a lifetime.
    fn quote(&mut self) {
        let line = self.line;
        self.take();
        let mut text = String::new();
        if self.peek(0).is_some_and(is_word) && self.peek(1) != Some('\'') {
            self.take_while(&mut text, is_word);
            self.push(Kind::Lifetime, text, line);
            return;
        }
        while let Some(c) = self.take() {
            match c {
                '\'' => break,
                '\\' => {
                    text.push(c);
                    text.extend(self.take());
                }
                _ => text.push(c),
            }
        }
        self.push(Kind::Literal, text, line);
    }

    /// A word, or the prefix of a string: `r"…"`, `br#"…"#`, `b'x'`, `c"…"`, `r#ident`.
    fn word(&mut self) {
        let line = self.line;
        let mut text = String::new();
        self.take_while(&mut text, is_word);
        let hashes = (0..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        let raw = matches!(text.as_str(), "r" | "br" | "cr") && self.peek(hashes) == Some('"');
        match self.peek(0) {
            Some('"' | '#') if raw => self.raw_string(),
            Some('#') if text == "r" => {
                self.take();
                self.word();
            }
            Some('"') if matches!(text.as_str(), "b" | "c") => self.string(),
            Some('\'') if text == "b" => self.quote(),
            _ => self.push(Kind::Word, text, line),
        }
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::{Kind, lex};

    #[track_caller]
    fn check(source: &str, words: &[&str], comments: &[&str]) {
        let (tokens, found) = lex(source);
        let seen: Vec<&str> = tokens.iter().filter(|t| t.kind == Kind::Word).map(|t| t.text.as_str()).collect();
        assert_eq!(seen, words);
        let seen: Vec<&str> = found.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(seen, comments);
    }

    #[test]
    fn strings_and_comments_hold_no_words() {
        check("let a = \"unsafe \\\" todo\"; // b c\nd", &["let", "a", "d"], &["b c"]);
        check("r#\"x \" y\"# br\"z\" b\"q\" c\"p\" w", &["w"], &[]);
        check("a /* x /* y */ z */ b", &["a", "b"], &[" x  y  z "]);
    }

    #[test]
    fn a_lifetime_is_no_string() {
        check(
            "fn f<'a>(x: &'a str) -> char { 'x' } '\\'' 'q'; b'\\n' end",
            &["fn", "f", "x", "str", "char", "end"],
            &[],
        );
    }

    #[test]
    fn raw_identifiers_and_lines() {
        let (tokens, comments) = lex("r#type\n\"a\nb\"\nlast //! c");
        let last = tokens.last().expect("three tokens");
        assert_eq!((last.text.as_str(), last.line), ("last", 4));
        assert_eq!(tokens.first().map(|t| t.text.as_str()), Some("type"));
        assert!(comments.first().is_some_and(|c| c.inner && c.line == 4));
    }
}

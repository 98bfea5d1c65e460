//! One Rust file as the rules see it: tokens, comments, paths in use, functions, and which lines are test code.

use crate::lex::{Comment, Kind, Token, lex};

/// A Rust file, taken apart once.
pub(crate) struct Source {
    /// Path from the root.
    pub(crate) path: String,
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
    /// Number of lines.
    pub(crate) lines: usize,
    /// First and last line of every item under a test attribute.
    tests: Vec<(usize, usize)>,
}

/// A path such as `std::fs::File`, from a `use` or from an expression.
#[derive(Debug)]
pub(crate) struct PathUse {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// Followed by `(`.
    pub(crate) called: bool,
    /// Followed by `!`.
    pub(crate) invoked: bool,
    /// Preceded by `.`.
    pub(crate) method: bool,
}

/// A function and the lines it takes, from `fn` to its closing brace.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

impl Source {
    /// Takes a file apart.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (tokens, comments) = lex(text);
        let tests = test_items(&tokens);
        Self { path: path.to_owned(), tokens, comments, lines: text.lines().count(), tests }
    }

    /// True when this line is in a test: by the file's place, or by an attribute around it.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// `tests/…`, `benches/…`, `testkit/…`, `tests.rs`, `NAME_tests.rs`.
    fn is_test_file(&self) -> bool {
        self.path.split('/').any(|part| {
            matches!(part, "tests" | "benches" | "testkit" | "tests.rs")
                || part.ends_with("_tests.rs")
                || part.ends_with("_test.rs")
        })
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.token(at).is_some_and(|token| token.is(text))
    }

    /// Every path of the file: `use` trees are spread out to full paths.
    pub(crate) fn paths(&self) -> Vec<PathUse> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(token) = self.token(at) {
            // `use<'a>` in a bound is no import.
            if token.is("use") && !self.is(at + 1, "<") {
                at = self.use_tree(at + 1, &mut Vec::new(), &mut found);
            } else if token.kind == Kind::Word {
                at = self.plain_path(at, &mut found);
            } else {
                at += 1;
            }
        }
        found
    }

    /// Collects `a::b::c` starting at `at`; returns the index after it.
    fn plain_path(&self, start: usize, found: &mut Vec<PathUse>) -> usize {
        let Some(first) = self.token(start) else { return start + 1 };
        let mut segments = vec![first.text.clone()];
        let mut at = start + 1;
        while self.is(at, "::") {
            let Some(next) = self.token(at + 1).filter(|t| t.kind == Kind::Word) else { break };
            segments.push(next.text.clone());
            at += 2;
        }
        let method = start.checked_sub(1).is_some_and(|before| self.is(before, "."));
        found.push(PathUse {
            segments,
            line: first.line,
            called: self.is(at, "("),
            invoked: self.is(at, "!") && !self.is(at + 1, "="),
            method,
        });
        at
    }

    /// Spreads a `use` tree; returns the index after it.
    fn use_tree(&self, start: usize, prefix: &mut Vec<String>, found: &mut Vec<PathUse>) -> usize {
        let depth = prefix.len();
        let mut at = start;
        let line = self.token(at).map_or(0, |token| token.line);
        let mut leaf = true;
        while let Some(token) = self.token(at) {
            if token.is("{") {
                leaf = false;
                at += 1;
                while self.token(at).is_some() && !self.is(at, "}") {
                    at = self.use_tree(at, prefix, found);
                    if self.is(at, ",") {
                        at += 1;
                    }
                }
                at += 1;
                break;
            }
            if token.is("as") {
                at += 2;
                break;
            }
            if token.kind != Kind::Word && !token.is("::") && !token.is("*") {
                break;
            }
            if !token.is("::") {
                prefix.push(token.text.clone());
            }
            at += 1;
        }
        if leaf && prefix.len() > depth {
            let segments = prefix.clone();
            found.push(PathUse { segments, line, called: false, invoked: false, method: false });
        }
        prefix.truncate(depth);
        // Nothing taken: step over it, so that broken source cannot hold the loop.
        at.max(start + usize::from(at == start))
    }

    /// Every function with a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            if !token.is("fn") {
                continue;
            }
            let Some(name) = self.token(at + 1).filter(|t| t.kind == Kind::Word) else { continue };
            if let Some(last) = item_end(&self.tokens, at) {
                let ends = self.token(last).map_or(token.line, |t| t.line);
                if self.is(last, "}") {
                    found.push(Function { name: name.text.clone(), line: token.line, lines: ends + 1 - token.line });
                }
            }
        }
        found
    }

    /// Every attribute: its line and its tokens between the brackets.
    pub(crate) fn attributes(&self) -> Vec<(usize, &[Token])> {
        let mut found = Vec::new();
        for (at, token) in self.tokens.iter().enumerate() {
            if let Some((first, last)) = attribute(&self.tokens, at) {
                found.push((token.line, self.tokens.get(first..last).unwrap_or_default()));
            }
        }
        found
    }
}

/// The range of tokens between the brackets of the attribute at `at`, if there is one.
fn attribute(tokens: &[Token], at: usize) -> Option<(usize, usize)> {
    if !tokens.get(at)?.is("#") {
        return None;
    }
    let open = if tokens.get(at + 1)?.is("!") { at + 2 } else { at + 1 };
    if !tokens.get(open)?.is("[") {
        return None;
    }
    let close = closing(tokens, open)?;
    Some((open + 1, close))
}

/// The index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is("(") || token.is("[") || token.is("{") {
            depth += 1;
        } else if token.is(")") || token.is("]") || token.is("}") {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The index of the last token of the item at `at`: its closing brace, or its semicolon.
fn item_end(tokens: &[Token], at: usize) -> Option<usize> {
    let mut next = at;
    while let Some(token) = tokens.get(next) {
        if token.is("{") {
            return closing(tokens, next);
        }
        if token.is(";") {
            return Some(next);
        }
        next = if token.is("(") || token.is("[") { closing(tokens, next)? + 1 } else { next + 1 };
    }
    None
}

/// The lines of every item under `#[test]`, `#[cfg(test)]` or an attribute that ends in `::test`.
fn test_items(tokens: &[Token]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some((first, last)) = attribute(tokens, at) else { continue };
        let inside = tokens.get(first..last).unwrap_or_default();
        let names_test = inside.iter().any(|t| t.is("test")) && !inside.iter().any(|t| t.is("not"));
        let is_test = names_test && inside.first().is_some_and(|t| !t.is("cfg_attr") && !t.is("doc"));
        if !is_test {
            continue;
        }
        if tokens.get(at + 1).is_some_and(|t| t.is("!")) {
            // `#![cfg(test)]` speaks of the whole file.
            found.push((1, usize::MAX));
            continue;
        }
        let mut item = last + 1;
        while let Some((_, close)) = attribute(tokens, item) {
            item = close + 1;
        }
        if let Some(end) = item_end(tokens, item).and_then(|end| tokens.get(end)) {
            found.push((token.line, end.line));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Source;

    fn paths(text: &str) -> Vec<String> {
        Source::new("crates/mail/src/a.rs", text).paths().iter().map(|p| p.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_spread() {
        assert_eq!(
            paths("use std::{fs, io::{self, Read as R}, net::*};"),
            ["std::fs", "std::io::self", "std::io::Read", "std::net::*"]
        );
        assert_eq!(paths("use a::b; c::d(e)"), ["a::b", "c::d", "e"]);
        assert_eq!(paths("use {"), Vec::<String>::new());
    }

    #[test]
    fn test_lines_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\n#[rustfmt::skip]\nmod tests {\n fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n#[tokio::test]\nasync fn e() {\n}\n";
        let source = Source::new("crates/mail/src/a.rs", text);
        let seen: Vec<usize> = (1..=12).filter(|line| source.is_test(*line)).collect();
        assert_eq!(seen, [2, 3, 4, 5, 6, 10, 11, 12]);
        assert!(Source::new("crates/mail/tests/a.rs", "").is_test(1));
        assert!(Source::new("crates/mail/src/a.rs", "#![cfg(test)]\nfn a() {}").is_test(2));
    }

    #[test]
    fn functions_have_lengths() {
        let source = Source::new("a.rs", "fn a(x: [u8; 4]) -> u8 {\n{}\n}\ntrait T { fn b(); }\nlet f: fn(u8) = a;");
        let seen: Vec<(String, usize)> = source.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(seen, [("a".to_owned(), 3)]);
    }
}

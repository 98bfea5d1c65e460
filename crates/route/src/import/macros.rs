//! The m4 of a `.mc` file, as far as administrators write it: calls with quoted arguments, comments, raw lines.
//!
//! Nothing is expanded. A call that stands within the arguments of another is text of that argument; `ifdef` and
//! `ifelse` are calls like others, which the reader of calls reports. `divert(-1)` hides what follows until the next
//! `divert`.

/// One macro and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// As written: `define`, `FEATURE`.
    pub(super) name: String,
    /// Without their outer quotes.
    pub(super) arguments: Vec<String>,
    /// Where it begins, counted from 1.
    pub(super) line: usize,
}

/// A statement of a file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// A macro with parentheses, or one of capitals alone on its line (`LOCAL_CONFIG`).
    Call(Call),
    /// A line for the `.cf` file that no macro makes.
    Raw {
        /// Without white space around it.
        text: String,
        /// Where it begins, counted from 1.
        line: usize,
    },
    /// A call without an end: from here on nothing is known.
    Open(Call),
}

/// Reads a file. Never fails: an open call at the end is the last piece.
pub(super) fn read(text: &str) -> Vec<Statement> {
    let mut reader =
        MacroReader { rest: text, line: 1, pieces: Vec::new(), raw: String::new(), raw_line: None, is_hidden: false };
    reader.run();
    reader.pieces
}

struct MacroReader<'a> {
    rest: &'a str,
    line: usize,
    pieces: Vec<Statement>,
    raw: String,
    /// Where the raw line begins: `dnl` joins the next one to it.
    raw_line: Option<usize>,
    is_hidden: bool,
}

impl MacroReader<'_> {
    fn run(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            if c == '\n' {
                self.end_line();
                self.skip(1);
            } else if c == '#' {
                // A comment of m4: no macro is looked for in it.
                self.skip_line();
            } else if is_name_start(c) {
                self.word();
            } else {
                if !c.is_whitespace() {
                    self.raw_line.get_or_insert(self.line);
                }
                self.raw.push(c);
                self.skip(c.len_utf8());
            }
        }
        self.end_line();
    }

    /// Octets that are a whole number of characters.
    fn skip(&mut self, octets: usize) {
        let (gone, rest) = self.rest.split_at_checked(octets).unwrap_or((self.rest, ""));
        self.line += gone.matches('\n').count();
        self.rest = rest;
    }

    fn skip_line(&mut self) {
        self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
    }

    fn word(&mut self) {
        let end = self.rest.find(|c: char| !is_name_part(c)).unwrap_or(self.rest.len());
        let (name, after) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        let (name, line, is_call) = (name.to_owned(), self.line, after.starts_with('('));
        self.skip(end);
        if name == "dnl" {
            self.skip_line();
            self.skip(1);
        } else if is_call && is_macro(&name) {
            self.skip(1);
            let (arguments, is_closed) = self.arguments();
            self.call(Call { name, arguments, line }, is_closed);
        } else if self.raw.trim().is_empty() && is_section(&name) {
            self.call(Call { name, arguments: Vec::new(), line }, true);
        } else {
            self.raw_line.get_or_insert(line);
            self.raw.push_str(&name);
        }
    }

    fn call(&mut self, call: Call, is_closed: bool) {
        if call.name == "divert" {
            self.is_hidden = call.arguments.first().is_some_and(|number| number.trim().starts_with('-'));
            self.raw.clear();
            self.raw_line = None;
        } else if !is_closed {
            self.pieces.push(Statement::Open(call));
        } else if !self.is_hidden {
            self.pieces.push(Statement::Call(call));
        }
    }

    /// The arguments behind an open parenthesis, and whether it was closed.
    fn arguments(&mut self) -> (Vec<String>, bool) {
        let mut arguments = Vec::new();
        let mut one = String::new();
        let (mut quotes, mut parentheses) = (0_usize, 0_usize);
        while let Some(c) = self.rest.chars().next() {
            if quotes == 0 && is_name_start(c) {
                let end = self.rest.find(|c: char| !is_name_part(c)).unwrap_or(self.rest.len());
                let name = self.rest.get(..end).unwrap_or_default();
                if name == "dnl" {
                    self.skip_line();
                    self.skip(1);
                    continue;
                }
                one.push_str(name);
                self.skip(end);
                continue;
            }
            self.skip(c.len_utf8());
            match c {
                '`' => {
                    quotes += 1;
                    if quotes > 1 {
                        one.push(c);
                    }
                }
                '\'' if quotes > 0 => {
                    quotes -= 1;
                    if quotes > 0 {
                        one.push(c);
                    }
                }
                ',' if quotes == 0 && parentheses == 0 => arguments.push(std::mem::take(&mut one)),
                '(' if quotes == 0 => {
                    parentheses += 1;
                    one.push(c);
                }
                ')' if quotes == 0 && parentheses == 0 => {
                    arguments.push(one);
                    return (arguments, true);
                }
                ')' if quotes == 0 => {
                    parentheses -= 1;
                    one.push(c);
                }
                // White space before an argument is not part of it.
                c if quotes == 0 && one.is_empty() && c.is_whitespace() => {}
                c => one.push(c),
            }
        }
        arguments.push(one);
        (arguments, false)
    }

    fn end_line(&mut self) {
        let text = std::mem::take(&mut self.raw);
        let (text, line) = (text.trim(), self.raw_line.take().unwrap_or(self.line));
        if !text.is_empty() && !self.is_hidden {
            self.pieces.push(Statement::Raw { text: text.to_owned(), line });
        }
    }
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Macros of m4 in small letters, and those of sendmail in capitals: a word of a rule before a parenthesis is neither.
fn is_macro(name: &str) -> bool {
    const OF_M4: [&str; 12] = [
        "define",
        "undefine",
        "include",
        "sinclude",
        "divert",
        "ifdef",
        "ifelse",
        "changequote",
        "pushdef",
        "popdef",
        "errprint",
        "syscmd",
    ];
    OF_M4.contains(&name)
        || (name.len() > 2 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
}

/// Macros that stand alone and begin a part of raw lines.
fn is_section(name: &str) -> bool {
    matches!(name, "MAILER_DEFINITIONS") || (name.starts_with("LOCAL_") && is_macro(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, arguments and line of a call.
    type CallFields = (String, Vec<String>, usize);

    fn calls(text: &str) -> Vec<CallFields> {
        read(text)
            .into_iter()
            .filter_map(|piece| match piece {
                Statement::Call(call) => Some((call.name, call.arguments, call.line)),
                _ => None,
            })
            .collect()
    }

    fn call(name: &str, arguments: &[&str], line: usize) -> CallFields {
        (name.to_owned(), arguments.iter().map(|one| (*one).to_owned()).collect(), line)
    }

    #[test]
    fn calls_as_they_are_written() {
        let table: [(&str, Vec<CallFields>); 9] = [
            ("define(`confMAX_HOP', `30')dnl\n", vec![call("define", &["confMAX_HOP", "30"], 1)]),
            ("dnl define(`confMAX_HOP', `30')\n# define(`x', `y')\n", vec![]),
            ("FEATURE(`access_db', , `skip')", vec![call("FEATURE", &["access_db", "", "skip"], 1)]),
            (
                "define(`A',dnl\n`b,c')dnl\nFEATURE(redirect)",
                vec![call("define", &["A", "b,c"], 1), call("FEATURE", &["redirect"], 3)],
            ),
            (
                "FEATURE(`dnsbl', `z.example', `\"550 `see' (there)\"')",
                vec![call("FEATURE", &["dnsbl", "z.example", "\"550 `see' (there)\""], 1)],
            ),
            ("divert(-1)dnl\nFEATURE(`hidden')\ndivert(0)dnl\nOSTYPE(`linux')", vec![call("OSTYPE", &["linux"], 4)]),
            ("MAILER(smtp)MAILER(local)", vec![call("MAILER", &["smtp"], 1), call("MAILER", &["local"], 1)]),
            ("LOCAL_CONFIG\nDSx\n", vec![call("LOCAL_CONFIG", &[], 1)]),
            ("ifdef(`A', `define(`B', `c')')", vec![call("ifdef", &["A", "define(`B', `c')"], 1)]),
        ];
        for (text, expected) in table {
            assert_eq!(calls(text), expected, "{text}");
        }
    }

    #[test]
    fn a_raw_line_that_dnl_joins_to_the_next_one_is_at_its_beginning() {
        assert_eq!(read("\n x dnl\n"), [Statement::Raw { text: "x".to_owned(), line: 2 }]);
        assert_eq!(read("x dnl\ny\n"), [Statement::Raw { text: "x y".to_owned(), line: 1 }]);
    }

    #[test]
    fn raw_lines_and_what_is_open() {
        let pieces = read("LOCAL_CONFIG\nCPuucp # not\nKx hash (y)\ndefine(`confX', `v\n");
        assert_eq!(pieces.get(1), Some(&Statement::Raw { text: "CPuucp".to_owned(), line: 2 }));
        assert_eq!(pieces.get(2), Some(&Statement::Raw { text: "Kx hash (y)".to_owned(), line: 3 }));
        assert!(matches!(pieces.last(), Some(Statement::Open(call)) if call.name == "define" && call.line == 4));
    }
}

//! The command line of an alias, `|/usr/bin/vacation -a "all of us" joe`, as words. No shell sees it.
//!
//! | In the text | Means |
//! |---|---|
//! | blanks | end a word |
//! | `'…'` | all of it is part of a word, as it is |
//! | `"…"` | the same; `\"` and `\\` are a quote and a backslash |
//! | `\x` outside quotes | the letter x |
//! | `exec` as the first word | left out: the program takes our place anyway |
//! | `exit N` alone | no program; its exit status, as sendmail's restricted shell has it |
//! | `; & \| < > ( ) { } $ * ? [ ] # ~ !`, a backquote or a line end outside quotes; `$` or a backquote in `"…"` | would mean something to a shell: refused |
//!
//! What is refused waits: an alias that was written for a shell is for its owner to change, and no reason to give mail
//! back.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The most words, and the longest text that is given to a program.
const WORDS_MAX: usize = 100;

/// What an alias has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// These words: the program and its arguments.
    Run(Vec<String>),
    /// Nothing, with this exit status.
    Exit(i32),
}

/// Reads a command line.
///
/// # Errors
/// What about it is not done, and what to do.
pub fn parse(text: &str) -> Result<Command, String> {
    let mut words = words(text.strip_prefix('|').unwrap_or(text))?;
    if words.first().is_some_and(|word| word == "exec") {
        words.remove(0);
    }
    match words.as_slice() {
        [] => Err("the alias names no program".to_owned()),
        [exit, number] if exit == "exit" => match number.parse() {
            Ok(status @ 0..=255) => Ok(Command::Exit(status)),
            _ => Err("exit has no number from 0 to 255".to_owned()),
        },
        some if some.len() > WORDS_MAX => Err(format!("the command has more than {WORDS_MAX} words")),
        _ => Ok(Command::Run(words)),
    }
}

fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err(open_quote('\'')),
                    }
                }
            }
            '"' => in_quotes(&mut letters, word.get_or_insert_default())?,
            '\\' => match letters.next() {
                Some(letter) if !letter.is_control() => word.get_or_insert_default().push(letter),
                _ => return Err("a backslash stands before nothing".to_owned()),
            },
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '{' | '}' | '$' | '`' | '*' | '?' | '[' | ']' | '!' => {
                return Err(of_a_shell(letter));
            }
            // In the middle of a word they mean nothing to a shell either.
            '#' | '~' if word.is_none() => return Err(of_a_shell(letter)),
            letter if letter.is_control() => {
                return Err("a line end or control character stands outside quotes".to_owned());
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if text.contains('\0') { Err("there is a NUL in it".to_owned()) } else { Ok(words) }
}

fn in_quotes(letters: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    loop {
        match letters.next() {
            Some('"') => return Ok(()),
            Some(letter @ ('$' | '`')) => return Err(of_a_shell(letter)),
            Some('\\') => match letters.next() {
                Some(letter @ ('"' | '\\' | '$' | '`')) => word.push(letter),
                Some(letter) => word.extend(['\\', letter]),
                None => return Err(open_quote('"')),
            },
            Some(letter) => word.push(letter),
            None => return Err(open_quote('"')),
        }
    }
}

fn open_quote(quote: char) -> String {
    format!("a {quote} has no second one")
}

fn of_a_shell(letter: char) -> String {
    format!(
        "{letter} means something to a shell, and there is none; write a program and its arguments, {letter} in single quotes if it \
         is meant as it is, or put the command into a script"
    )
}

/// Where programs are looked for by their last name when all directories are allowed.
const USUAL: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The file of a program, if it may be run: it lies in one of the directories, or a file of its last name does.
///
/// # Errors
/// Why not, and what to do.
pub fn find(program: &str, directories: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(program);
    let Some(name) = path.file_name() else { return Err(format!("\"{program}\" is no program")) };
    let is_any = directories.iter().any(|directory| directory == Path::new("/"));
    let is_plain = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
    let is_in = |directory: &PathBuf| path.parent() == Some(directory.as_path());
    if is_plain && (is_any || directories.iter().any(is_in)) && is_program(path) {
        return checked(path.to_owned(), is_any);
    }
    let usual = USUAL.map(PathBuf::from);
    let others = if is_any && !program.contains('/') { usual.as_slice() } else { &[] };
    let named = directories.iter().filter(|directory| *directory != Path::new("/")).chain(others);
    if let Some(found) = named.map(|directory| directory.join(name)).find(|path| is_program(path)) {
        return checked(found, is_any);
    }
    if is_any {
        return Err(format!("there is no program {program}"));
    }
    let all: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    Err(match all.first() {
        None => format!("local.programs is empty, so {program} may not be run"),
        Some(first) => format!(
            "{program} is in none of the directories of local.programs ({}); to allow it, put a link to it into {first}",
            all.join(", ")
        ),
    })
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A directory in which others may put programs allows nothing.
fn checked(path: PathBuf, is_any: bool) -> Result<PathBuf, String> {
    let directory = path.parent().unwrap_or(&path);
    let is_open = std::fs::metadata(directory).is_ok_and(|found| found.permissions().mode() & 0o022 != 0);
    if is_open && !is_any {
        let directory = directory.display();
        return Err(format!(
            "{directory} may be written to by others, so nothing in it is run; chmod go-w {directory}"
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Vec<String> {
        match parse(text) {
            Ok(Command::Run(words)) => words,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_words() {
        for (text, wanted) in [
            ("/bin/cat", &["/bin/cat"][..]),
            ("|/usr/bin/vacation -a 'all of us' joe", &["/usr/bin/vacation", "-a", "all of us", "joe"]),
            (r#"  /x "a b"c'd e'\ f ""  "#, &["/x", "a bcd e f", ""]),
            (r#"/x "\"\\\n" '$HOME `x` "' \$"#, &["/x", r#""\\n"#, "$HOME `x` \"", "$"]),
            ("exec /usr/bin/procmail -f-", &["/usr/bin/procmail", "-f-"]),
            ("/x a#b a~ --x=y @%+,:^", &["/x", "a#b", "a~", "--x=y", "@%+,:^"]),
            ("/x exit 1", &["/x", "exit", "1"]),
        ] {
            assert_eq!(run(text), wanted, "{text}");
        }
        assert_eq!((parse("exit 75"), parse("|exit 0")), (Ok(Command::Exit(75)), Ok(Command::Exit(0))));
    }

    #[test]
    fn what_a_shell_would_do_is_refused() {
        for letter in [';', '&', '|', '<', '>', '(', ')', '{', '}', '$', '`', '*', '?', '[', ']', '!', '\n'] {
            for text in [format!("/x a{letter}b"), format!("/x {letter}"), format!("{letter}/x")] {
                if !(letter == '|' && text.starts_with('|')) {
                    assert!(parse(&text).is_err(), "{text:?}");
                }
                let quoted = text.replace(letter, &format!("'{letter}'"));
                assert!(parse(&quoted).is_ok(), "{quoted:?}");
            }
        }
        for text in [
            "/x \"$HOME\"",
            "/x \"`id`\"",
            "/x # y",
            "/x ~/y",
            "/x 'a",
            "/x \"a",
            "/x \"a\\",
            "/x \\",
            "",
            " ",
            "exec",
            "exit x",
            "exit 256",
            "/x '\0'",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("IFS=' ' && exec /usr/bin/procmail").unwrap_err().starts_with("& means something to a shell"));
    }

    #[test]
    fn programs_lie_in_allowed_directories() {
        let directory = tempfile::tempdir().unwrap();
        let allowed = directory.path().join("allowed");
        std::fs::create_dir(&allowed).unwrap();
        std::os::unix::fs::symlink("/bin/cat", allowed.join("cat")).unwrap();
        std::fs::write(allowed.join("text"), "").unwrap();
        let list = [PathBuf::from("/nowhere"), allowed.clone()];
        let cat = allowed.join("cat");
        for program in ["cat", "/bin/cat", "/usr/bin/../bin/cat", cat.to_str().unwrap()] {
            assert_eq!(find(program, &list), Ok(cat.clone()), "{program}");
        }
        for (program, word) in
            [("/bin/sh", "put a link"), ("text", "put a link"), ("..", "is no program"), ("/", "is no program")]
        {
            let why = find(program, &list).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(find("/bin/cat", &[]).unwrap_err().contains("local.programs is empty"));
        let any = [PathBuf::from("/")];
        assert_eq!((find("/bin/cat", &any), find("cat", &any).is_ok()), (Ok("/bin/cat".into()), true));
        assert!(find("/bin/nothing", &any).unwrap_err().contains("there is no program"));
        std::fs::set_permissions(&allowed, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(find("cat", &list).unwrap_err().contains("chmod go-w"));
    }
}

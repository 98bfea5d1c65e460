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
//! | `#` that begins a word | a comment to the end |
//! | `IFS=' ' &&` in front | left out: no shell parts the words |
//! | `test -f FILE &&`, `test -x FILE &&`, `[ -f FILE ] &&` in front | left out where FILE is the program |
//! | `\|\| exit N` at the end | the exit status if the program fails |
//! | `exec … \|\| exit N` | `exit` left out: the mail waits if the program cannot be started |
//! | `? * [ ] !` in a word | themselves: there are no file names to fill in |
//! | `; & \| < > ( ) { } $ ~`, a backquote or a line end outside quotes | refused: it means something to a shell |
//! | `$` or a backquote in `"…"` | refused for the same reason |
//!
//! So the lines that procmail and vacation tell their users to write do what they mean. Mail for a command that is
//! refused waits until its owner changes it, and is not returned.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The most words, and the longest text that is given to a program.
const WORDS_MAX: usize = 100;

/// The result of an alias's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program.
    Run {
        /// The program and its arguments; at least one word.
        words: Vec<String>,
        /// The exit status that counts if the program fails, in place of its own.
        failure: Option<i32>,
    },
    /// Nothing, with this exit status.
    Exit(i32),
}

/// Reads a command line.
///
/// # Errors
/// The part of it that is not supported, and the next step.
pub fn parse(text: &str) -> Result<Command, String> {
    let pieces = pieces(text.strip_prefix('|').unwrap_or(text))?;
    let (pieces, failure) = exit_at_end(&pieces)?;
    // Conditions stand in front; the last command is the program.
    let mut commands = pieces.split(|piece| *piece == Piece::And).rev();
    let mut words: Vec<String> = commands.next().unwrap_or_default().iter().filter_map(Piece::word).collect();
    let is_exec = words.first().is_some_and(|word| word == "exec");
    if is_exec {
        words.remove(0);
    }
    let program = words.first().cloned().unwrap_or_default();
    for condition in commands {
        let condition: Vec<String> = condition.iter().filter_map(Piece::word).collect();
        if !is_left_out(&condition, &program) {
            return Err(of_a_shell('&'));
        }
    }
    match words.as_slice() {
        [] => Err("the alias names no program".to_owned()),
        [exit, number] if exit == "exit" => Ok(Command::Exit(status(number)?)),
        some if some.len() > WORDS_MAX => Err(format!("the command has more than {WORDS_MAX} words")),
        _ => Ok(Command::Run { words, failure: failure.filter(|_| !is_exec) }),
    }
}

/// A part of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Word(String),
    /// `&&`
    And,
    /// `||`
    Or,
}

impl Piece {
    fn word(&self) -> Option<String> {
        if let Self::Word(word) = self { Some(word.clone()) } else { None }
    }
}

/// The pieces before `|| exit N`, and N.
fn exit_at_end(pieces: &[Piece]) -> Result<(&[Piece], Option<i32>), String> {
    let Some(at) = pieces.iter().position(|piece| *piece == Piece::Or) else { return Ok((pieces, None)) };
    let (before, behind) = pieces.split_at_checked(at).unwrap_or((pieces, &[]));
    match behind {
        [Piece::Or, Piece::Word(exit), Piece::Word(number)] if exit == "exit" => Ok((before, Some(status(number)?))),
        _ => Err(of_a_shell('|')),
    }
}

fn status(number: &str) -> Result<i32, String> {
    number
        .parse()
        .ok()
        .filter(|status| (0..=255).contains(status))
        .ok_or_else(|| "exit has no number from 0 to 255".to_owned())
}

/// Whether a condition in front of a program needs no shell: it parts words by blanks, or asks for the program.
fn is_left_out(condition: &[String], program: &str) -> bool {
    let words: Vec<&str> = condition.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["IFS= "] => true,
        ["test", "-f" | "-x" | "-e", file] | ["[", "-f" | "-x" | "-e", file, "]"] => *file == program,
        _ => false,
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => pieces.extend(word.take().map(Piece::Word)),
            '&' | '|' if letters.peek() == Some(&letter) => {
                letters.next();
                pieces.extend(word.take().map(Piece::Word));
                pieces.push(if letter == '&' { Piece::And } else { Piece::Or });
            }
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
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '{' | '}' | '$' | '`' => return Err(of_a_shell(letter)),
            '#' if word.is_none() => break,
            // In the middle of a word they mean nothing to a shell either.
            '~' | '!' if word.is_none() => return Err(of_a_shell(letter)),
            letter if letter.is_control() => {
                return Err("a line end or control character stands outside quotes".to_owned());
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    pieces.extend(word.map(Piece::Word));
    if text.contains('\0') { Err("there is a NUL in it".to_owned()) } else { Ok(pieces) }
}

fn in_quotes(letters: &mut impl Iterator<Item = char>, word: &mut String) -> Result<(), String> {
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

/// Finds the file of a program that may be run: it lies in one of the directories, or a file of its last name does.
///
/// # Errors
/// The reason, and the next step.
pub fn find_program(program: &str, directories: &[PathBuf]) -> Result<PathBuf, String> {
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
            Ok(Command::Run { words, failure: None }) => words,
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
            ("IFS=' ' && exec /usr/bin/procmail -f- || exit 75 #joe", &["/usr/bin/procmail", "-f-"]),
            ("exec /usr/bin/procmail -f- || exit 75", &["/usr/bin/procmail", "-f-"]),
            ("test -f /x && exec /x -f- || exit 75 #u", &["/x", "-f-"]),
            ("[ -x /x ] && IFS=\" \" && /x -t", &["/x", "-t"]),
            (
                "/x http://h.example/in?list=a *.c [1] a!b # the rest",
                &["/x", "http://h.example/in?list=a", "*.c", "[1]", "a!b"],
            ),
        ] {
            assert_eq!(run(text), wanted, "{text}");
        }
        assert_eq!((parse("exit 75"), parse("|exit 0")), (Ok(Command::Exit(75)), Ok(Command::Exit(0))));
        let words = vec!["/usr/bin/vacation".to_owned(), "joe".to_owned()];
        assert_eq!(parse("/usr/bin/vacation joe || exit 75"), Ok(Command::Run { words, failure: Some(75) }));
    }

    #[test]
    fn what_a_shell_would_do_is_refused() {
        for letter in [';', '&', '|', '<', '>', '(', ')', '{', '}', '$', '`', '\n'] {
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
            "/x ~/y",
            "! /x",
            "# /x",
            "/x || /y",
            "/x || exit",
            "/x || exit 256",
            "/x && /y",
            "test -f /y && exec /x",
            "IFS=: && exec /x",
            "P=/x && exec /y",
            "/x &&",
            "/x & /y",
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
        assert!(parse("cd /x && exec /usr/bin/procmail").unwrap_err().starts_with("& means something to a shell"));
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
            assert_eq!(find_program(program, &list), Ok(cat.clone()), "{program}");
        }
        for (program, word) in
            [("/bin/sh", "put a link"), ("text", "put a link"), ("..", "is no program"), ("/", "is no program")]
        {
            let why = find_program(program, &list).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(find_program("/bin/cat", &[]).unwrap_err().contains("local.programs is empty"));
        let any = [PathBuf::from("/")];
        assert_eq!((find_program("/bin/cat", &any), find_program("cat", &any).is_ok()), (Ok("/bin/cat".into()), true));
        assert!(find_program("/bin/nothing", &any).unwrap_err().contains("there is no program"));
        std::fs::set_permissions(&allowed, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(find_program("cat", &list).unwrap_err().contains("chmod go-w"));
    }
}

//! One file after the other: statements in their order, files that they include, conditions, and calls of names that
//! were defined.
//!
//! `DOMAIN(x)` and `OSTYPE(x)` name files beside sendmail's own macros: in `domain` and `ostype` of the directory in
//! whose `m4` the file `cf.m4` is that was included. The settings of an `OSTYPE` are defaults of a system: they count,
//! and the rest gets no note.
//!
//! A file that includes itself, files within files without end and macros that call themselves are bounded, and a note
//! says where.

use super::expand::{Called, Decided, Names};
use super::macros::{self, Call, Statement};
use super::mc;
use super::settings::{FILES_MAX, ImportedSettings, Listener};

/// Where sendmail's macros are in packages, when nothing is said.
const USUAL: &str = "/usr/share/sendmail/cf";
/// The file of sendmail's macros, below that.
const MACROS: &str = "/m4/cf.m4";
/// Files within files, and texts within texts.
const DEPTH_MAX: usize = 32;
/// Octets that macros make of others, in all.
const MADE_MAX: usize = 4 << 20;

/// Reads a file, and those that it includes.
pub(super) fn read(settings: &mut ImportedSettings<'_>, text: &str) {
    let mut run = McReader::new(settings);
    run.text(settings, text, 0);
    run.finish(settings);
    let said = &settings.said;
    let (has_no_mta, has_msa) = (settings.listeners.is_empty(), said.has_msa.unwrap_or(true));
    if has_no_mta {
        listener(settings, ":25", "MTA", 0);
    }
    if has_msa && !settings.listeners.iter().any(|one| one.address.ends_with(":587")) {
        listener(settings, ":587", "MSA", 0);
    }
}

fn listener(settings: &mut ImportedSettings<'_>, address: &str, name: &str, line: usize) {
    let (address, name) = (address.to_owned(), Some(name.to_owned()));
    settings.listeners.push(Listener { address, name, is_comment: false, is_implicit_tls: false, line });
}

/// The state while files are read.
pub(super) struct McReader {
    names: Names,
    /// The directory of sendmail's macros.
    base: String,
    /// Files that are open, the innermost last.
    open: Vec<String>,
    /// Names that sendmail does not know; a statement that needs one makes it known.
    unknown: Vec<(String, String, usize)>,
    depth: usize,
    /// Octets that macros have made.
    made: usize,
    /// A bound was reached: nothing more is read.
    is_over: bool,
}

impl McReader {
    pub(super) fn new(settings: &ImportedSettings<'_>) -> Self {
        let open = vec![settings.main_file()];
        Self {
            names: Names::default(),
            base: USUAL.to_owned(),
            open,
            unknown: Vec::new(),
            depth: 0,
            made: 0,
            is_over: false,
        }
    }

    /// Adds a note on each name that was not needed.
    pub(super) fn finish(self, settings: &mut ImportedSettings<'_>) {
        for (name, shown, line) in self.unknown {
            if !self.names.is_used(&name) {
                settings.missing(line, &shown, "this name is not known", "see what it does, and add it by hand");
            }
        }
    }

    /// Reads the text of a file, whose lines are counted from `first`.
    pub(super) fn text(&mut self, settings: &mut ImportedSettings<'_>, text: &str, first: usize) {
        for piece in macros::read(text) {
            self.piece(settings, piece, |line| first + line);
        }
    }

    /// Reads a text that a statement in this place stands for.
    fn inner(&mut self, settings: &mut ImportedSettings<'_>, text: &str, place: usize, shown: &str) {
        self.made += text.len();
        if self.depth >= DEPTH_MAX || self.made > MADE_MAX {
            return self.end(settings, place, shown);
        }
        self.depth += 1;
        for piece in macros::read(text) {
            self.piece(settings, piece, |_| place);
        }
        self.depth -= 1;
    }

    fn piece(&mut self, settings: &mut ImportedSettings<'_>, piece: Statement, place: impl Fn(usize) -> usize) {
        if self.is_over {
            return;
        }
        match piece {
            Statement::Call(call) => {
                let line = place(call.line);
                self.call(settings, Call { line, ..call });
            }
            Statement::Raw { text, line } => {
                let (line, expanded) = (place(line), self.names.expand(&text));
                if expanded != text {
                    return self.inner(settings, &expanded, line, &text);
                }
                let reason = "a line for sendmail.cf itself";
                settings.missing(line, &text, reason, "if it is a rule, see [[route.rule]] and the access map");
            }
            Statement::Open(call) => {
                let reason = "a quote or a parenthesis is not closed; nothing behind it was read";
                settings.missing(place(call.line), &call.name, reason, "close it and import again");
            }
        }
    }

    fn call(&mut self, settings: &mut ImportedSettings<'_>, call: Call) {
        let (line, shown) = (call.line, mc::shown(&call));
        let argument = |at: usize| call.arguments.get(at).map_or("", |one| one.trim());
        match call.name.as_str() {
            "define" | "pushdef" => {
                let name = argument(0).to_owned();
                self.names.define(&name, argument(1));
                let value = self.names.expand(argument(1));
                if !mc::define(settings, &name, value.trim(), &shown, line) {
                    self.unknown.push((name, shown, line));
                }
            }
            "undefine" | "popdef" => {
                self.names.undefine(argument(0));
                mc::undefine(settings, argument(0), &shown, line);
            }
            "ifdef" => {
                let decided = self.names.ifdef(&call.arguments, settings.is_quiet);
                self.decided(settings, decided, &shown, line);
            }
            "ifelse" => {
                let decided = self.names.ifelse(&call.arguments);
                self.decided(settings, decided, &shown, line);
            }
            "include" | "sinclude" => self.include(settings, &call, &shown),
            "DOMAIN" => {
                let path = format!("{}/domain/{}.m4", self.base, self.names.expand(argument(0)));
                if !self.file(settings, &path, line, &shown) {
                    settings.missing(
                        line,
                        &shown,
                        format!("{path} was not read"),
                        "import that file too and add what it gives",
                    );
                }
            }
            "OSTYPE" => {
                let path = format!("{}/ostype/{}.m4", self.base, self.names.expand(argument(0)));
                let was_quiet = std::mem::replace(&mut settings.is_quiet, true);
                self.file(settings, &path, line, &shown);
                settings.is_quiet = was_quiet;
            }
            name => match self.names.call(name, &call.arguments) {
                Called::Text(body) => self.inner(settings, &body, line, &shown),
                Called::TooLong => self.end(settings, line, &shown),
                Called::Unknown => {
                    // The name of a feature is a word, not a macro.
                    let is_name = |at: usize| at == 0 && name == "FEATURE";
                    let arguments = call.arguments.iter().enumerate();
                    let arguments: Vec<String> = arguments
                        .map(|(at, one)| if is_name(at) { one.clone() } else { self.names.expand(one) })
                        .collect();
                    let octets = |all: &[String]| all.iter().map(String::len).sum::<usize>();
                    self.made += octets(&arguments).saturating_sub(octets(&call.arguments));
                    if self.made > MADE_MAX {
                        return self.end(settings, line, &shown);
                    }
                    mc::statement(settings, &Call { arguments, ..call });
                }
            },
        }
    }

    /// Macros that call themselves.
    fn end(&mut self, settings: &mut ImportedSettings<'_>, place: usize, shown: &str) {
        self.is_over = true;
        settings.is_quiet = false;
        let reason = format!(
            "macros within macros, more than {DEPTH_MAX} deep or longer than {MADE_MAX} octets; nothing behind them was read"
        );
        settings.missing(place, shown, reason, "write what they stand for and import again");
    }

    fn decided(&mut self, settings: &mut ImportedSettings<'_>, decided: Decided<'_>, shown: &str, line: usize) {
        match decided {
            Decided::Holds(text) => self.inner(settings, text, line, shown),
            Decided::Nothing => {}
            Decided::Unknown => settings.missing(
                line,
                shown,
                "the condition is not decided: it hangs on what this file does not define",
                "write what holds without a condition and import again",
            ),
        }
    }

    fn include(&mut self, settings: &mut ImportedSettings<'_>, call: &Call, shown: &str) {
        let path = self.names.expand(call.arguments.first().map_or("", |one| one.trim()));
        // The macros of sendmail itself set defaults alone.
        if let Some(base) =
            path.strip_suffix(MACROS).or_else(|| path.strip_suffix("m4/cf.m4").filter(|base| base.is_empty()))
        {
            self.base = if base.starts_with('/') { base.to_owned() } else { format!("{}/{base}", self.directory()) };
            return;
        }
        let places = match path.starts_with('/') {
            true => vec![path.clone()],
            false => vec![format!("{}/{path}", self.directory()), format!("{}/{path}", self.base)],
        };
        let is_read = !path.is_empty() && places.iter().any(|place| self.file(settings, place, call.line, shown));
        // sinclude takes a missing file for an empty one.
        if !is_read && call.name == "include" {
            settings.missing(
                call.line,
                shown,
                "what it includes was not read",
                "import that file too and add what it gives",
            );
        }
    }

    /// The directory of the file that is open.
    fn directory(&self) -> String {
        let file = self.open.last().map_or("", String::as_str);
        file.rsplit_once('/').map_or_else(|| ".".to_owned(), |(directory, _)| directory.to_owned())
    }

    /// Reads another file; `false` if it cannot be read. A file that is not read because of a bound gets a note.
    fn file(&mut self, settings: &mut ImportedSettings<'_>, path: &str, line: usize, shown: &str) -> bool {
        let no = |settings: &mut ImportedSettings<'_>, reason: String| {
            let was_quiet = std::mem::replace(&mut settings.is_quiet, false);
            settings.missing(line, shown, reason, "import that file too and add what it gives");
            settings.is_quiet = was_quiet;
        };
        if self.open.iter().any(|open| open == path) {
            no(settings, format!("{path} includes itself; it was read once"));
            return true;
        }
        if self.open.len() >= DEPTH_MAX || settings.files_read() >= FILES_MAX {
            no(
                settings,
                format!(
                    "{path} was not read: files within files, more than {DEPTH_MAX} deep, or more than {FILES_MAX}"
                ),
            );
            return true;
        }
        let Some(text) = (settings.files.read)(path) else { return false };
        let first = settings.begin_file(path);
        self.open.push(path.to_owned());
        self.text(settings, &text, first);
        self.open.pop();
        true
    }
}

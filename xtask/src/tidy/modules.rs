//! Modules inside a crate: the order of the server's modules, import circles, `#[path]`, and types of the same name.
//!
//! `xtask/modules.txt` holds the order and the exceptions. A line of it that fits nothing any more is an error, so the
//! lists shrink with the tree; a line is not added to make a finding go away.
//!
//! An arrow goes from a module to a module of the same parent that a file below the first imports from. Imports of
//! tests do not count.

use super::Finding;
use crate::lex::{Kind, Token};
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// The order and the exceptions.
pub(super) const LIST: &str = "xtask/modules.txt";

/// The contents of `LIST`, each exception as the text of its line.
#[derive(Debug, Default)]
struct Rules {
    /// Modules of a crate, lowest first.
    orders: BTreeMap<String, Vec<String>>,
    exceptions: BTreeSet<String>,
}

/// The name of a module: the crate, then the modules down to it.
type Module = Vec<String>;

/// Checks all files against the rules in the text of `LIST`.
pub(super) fn check(sources: &[Source], list: &str, findings: &mut Vec<Finding>) {
    let rules = read(list);
    let mut used = BTreeSet::new();
    let sources = product(sources);
    for (_, source) in &sources {
        check_attributes(source, findings);
    }
    check_types(&sources, &rules, &mut used, findings);
    let arrows = arrows(&sources);
    check_order(&sources, &arrows, &rules, &mut used, findings);
    check_circles(&arrows, &rules, &mut used, findings);
    for line in rules.exceptions.difference(&used) {
        findings.push(Finding::error(LIST, 0, format!("\"{line}\" fits nothing any more; take the line out")));
    }
}

fn read(list: &str) -> Rules {
    let mut rules = Rules::default();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("order ").and_then(|rest| rest.split_once(": ")) {
            Some((name, modules)) => {
                let modules = modules.split_whitespace().map(str::to_owned);
                rules.orders.entry(name.to_owned()).or_default().extend(modules);
            }
            None => drop(rules.exceptions.insert(line.to_owned())),
        }
    }
    rules
}

/// The module of a file below `crates/NAME/src`.
fn module_of(path: &str) -> Option<Module> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let rest = rest.strip_suffix(".rs")?;
    let rest = rest.strip_suffix("/mod").unwrap_or(rest);
    let inner = rest.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod"));
    Some(std::iter::once(name).chain(inner).map(str::to_owned).collect())
}

/// Files of crates that no test attribute leaves out, with their modules.
fn product(sources: &[Source]) -> Vec<(Module, &Source)> {
    let all: Vec<(Module, &Source)> =
        sources.iter().filter_map(|source| Some((module_of(&source.path)?, source))).collect();
    let mut of_tests = BTreeSet::new();
    for (module, source) in &all {
        for window in source.tokens.windows(3) {
            if let [keyword, name, end] = window
                && keyword.is("mod")
                && end.is(";")
                && source.is_test(name.line)
            {
                of_tests.insert(child(module, &name.text));
            }
        }
    }
    let is_of_tests =
        |module: &Module| (1..=module.len()).any(|end| of_tests.contains(module.get(..end).unwrap_or(&[])));
    // A file of tests by its place is one test from its first line.
    all.into_iter().filter(|(module, source)| !is_of_tests(module) && !source.is_test(0)).collect()
}

fn child(module: &[String], name: &str) -> Module {
    let mut module = module.to_vec();
    module.push(name.to_owned());
    module
}

/// Checks that the folder of a file says its module.
fn check_attributes(source: &Source, findings: &mut Vec<Finding>) {
    for (line, inside) in source.attributes() {
        if let [word, sign, ..] = inside
            && word.is("path")
            && sign.is("=")
        {
            let message = "#[path] hides where a module is; move the file to the folder of its module";
            findings.push(Finding::error(&source.path, line, message));
        }
    }
}

/// Checks that a crate has one type of each name.
fn check_types(sources: &[(Module, &Source)], rules: &Rules, used: &mut BTreeSet<String>, findings: &mut Vec<Finding>) {
    let mut places: BTreeMap<(&str, &str), Vec<(&Source, usize)>> = BTreeMap::new();
    for (module, source) in sources {
        for token in types(source) {
            let name = module.first().map_or("", String::as_str);
            places.entry((name, token.text.as_str())).or_default().push((source, token.line));
        }
    }
    for ((name, of_type), found) in places {
        let (Some((first, _)), [_, others @ ..]) = (found.first(), found.as_slice()) else { continue };
        if others.is_empty() {
            continue;
        }
        if !allowed(format!("type {name}: {of_type}"), rules, used) {
            for (source, line) in others {
                let message = format!("{} has a type {of_type} too; say in its name what it is", first.path);
                findings.push(Finding::error(&source.path, *line, message));
            }
        }
    }
}

/// Names of types that product code defines.
fn types(source: &Source) -> impl Iterator<Item = &Token> {
    source.tokens.windows(2).filter_map(|pair| match pair {
        [keyword, name]
            if ["struct", "enum", "trait", "union"].iter().any(|word| keyword.is(word))
                && name.kind == Kind::Word
                && name.text.starts_with(char::is_uppercase)
                && !source.is_test(name.line) =>
        {
            Some(name)
        }
        _ => None,
    })
}

/// Says whether an exception is on the list, and notes that it fits.
fn allowed(line: String, rules: &Rules, used: &mut BTreeSet<String>) -> bool {
    let is_there = rules.exceptions.contains(&line);
    if is_there {
        used.insert(line);
    }
    is_there
}

/// An import: where it stands first.
type Place = (String, usize);

/// For each parent the arrows between its children.
type Arrows = BTreeMap<Module, BTreeMap<(String, String), Place>>;

fn arrows(sources: &[(Module, &Source)]) -> Arrows {
    let with_parents =
        |module: &Module| (1..=module.len()).filter_map(|end| Some(module.get(..end)?.to_vec())).collect();
    let known: BTreeSet<Module> =
        sources.iter().flat_map(|(module, _)| -> Vec<Module> { with_parents(module) }).collect();
    let mut arrows = Arrows::new();
    for (module, source) in sources {
        for path in source.paths().iter().filter(|path| !source.is_test(path.line)) {
            let Some(target) = target(module, &path.segments, &known) else { continue };
            let same = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(same), target.get(same)) {
                let parent = module.get(..same).unwrap_or_default().to_vec();
                let between = arrows.entry(parent).or_default();
                between.entry((from.clone(), to.clone())).or_insert_with(|| (source.path.clone(), path.line));
            }
        }
    }
    arrows
}

/// The module that a path of `crate::`, `super::` or `self::` leads into.
fn target(module: &Module, segments: &[String], known: &BTreeSet<Module>) -> Option<Module> {
    let mut target = match segments.first()?.as_str() {
        "crate" => module.get(..1)?.to_vec(),
        "super" | "self" => module.clone(),
        _ => return None,
    };
    for segment in segments {
        match segment.as_str() {
            "crate" | "self" => {}
            "super" => drop(target.pop()),
            name => {
                let below = child(&target, name);
                if !known.contains(&below) {
                    break;
                }
                target = below;
            }
        }
    }
    Some(target)
}

/// Checks that modules of an ordered crate import from lower modules alone, and that the order names each of them.
fn check_order(
    sources: &[(Module, &Source)],
    arrows: &Arrows,
    rules: &Rules,
    used: &mut BTreeSet<String>,
    findings: &mut Vec<Finding>,
) {
    for (name, order) in &rules.orders {
        let of_crate = sources.iter().filter(|(module, _)| module.first() == Some(name));
        let there: BTreeSet<&String> = of_crate.filter_map(|(module, _)| module.get(1)).collect();
        for module in there.iter().filter(|module| !order.contains(module)) {
            findings.push(Finding::error(LIST, 0, format!("order {name} lacks the module {module}; give it a place")));
        }
        for module in order.iter().filter(|module| !there.contains(module)) {
            findings.push(Finding::error(LIST, 0, format!("order {name}: there is no module {module}; take it out")));
        }
        let place = |module: &String| order.iter().position(|other| other == module);
        for ((from, to), (path, line)) in arrows.get(&vec![name.clone()]).into_iter().flatten() {
            let is_up = place(from).zip(place(to)).is_some_and(|(from, to)| from < to);
            if is_up && !allowed(format!("up {name}: {from} -> {to}"), rules, used) {
                let message = format!("{from} stands below {to} in the order of {LIST}, and imports from it");
                findings.push(Finding::error(path, *line, message));
            }
        }
    }
}

/// Checks that no chain of imports leads back, the listed arrows left out.
fn check_circles(arrows: &Arrows, rules: &Rules, used: &mut BTreeSet<String>, findings: &mut Vec<Finding>) {
    for (parent, between) in arrows {
        let is_ordered = parent.len() == 1 && parent.first().is_some_and(|name| rules.orders.contains_key(name));
        if is_ordered {
            continue;
        }
        let name = parent.join("::");
        let line = |from: &str, to: &str| format!("circle {name}: {from} -> {to}");
        let is_kept = |arrow: &&(String, String)| !rules.exceptions.contains(&line(&arrow.0, &arrow.1));
        let kept: BTreeSet<&(String, String)> = between.keys().filter(is_kept).collect();
        for (from, to) in between.keys().filter(|arrow| !kept.contains(arrow)) {
            // It fits as long as leaving it in would close a circle.
            if reaches(&kept, to, from) {
                used.insert(line(from, to));
            }
        }
        for (from, to) in &kept {
            if let Some((path, at)) = between.get(&(from.clone(), to.clone())).filter(|_| reaches(&kept, to, from)) {
                let message = format!("{name}: {from} and {to} import from each other, directly or through others");
                findings.push(Finding::error(path, *at, message));
            }
        }
    }
}

/// Says whether arrows lead from one module to another.
fn reaches(arrows: &BTreeSet<&(String, String)>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        let further = arrows.iter().filter(|(start, _)| start == module).map(|(_, end)| end.as_str());
        next.extend(further.filter(|end| seen.insert(end)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::source::Source;

    /// Checks a tree of files against a list; `says` is a part of each finding.
    #[track_caller]
    fn finds(files: &[(&str, &str)], list: &str, says: &[&str]) {
        let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut findings = Vec::new();
        check(&sources, list, &mut findings);
        assert_eq!(findings.len(), says.len(), "{findings:?}");
        for part in says {
            assert!(findings.iter().any(|finding| finding.message.contains(part)), "{part} not in {findings:?}");
        }
    }

    const LOW: (&str, &str) = ("crates/server/src/low.rs", "pub struct A;");
    const HIGH: (&str, &str) = ("crates/server/src/high/mod.rs", "use crate::low::A;");
    const BACK: (&str, &str) = ("crates/server/src/low/inner.rs", "fn b() { super::super::high::c() }");

    #[test]
    fn modules_have_an_order() {
        let order = "order server: low high\n";
        finds(&[LOW, HIGH], order, &[]);
        finds(&[LOW, HIGH, BACK], order, &["low stands below high"]);
        finds(&[LOW, HIGH, BACK], &format!("{order}up server: low -> high\n"), &[]);
        finds(&[LOW, HIGH], &format!("{order}up server: low -> high\n"), &["fits nothing any more"]);
        finds(&[LOW, HIGH], "order server: low\n", &["lacks the module high"]);
        finds(&[LOW, HIGH], "order server: low high other\n", &["there is no module other"]);
    }

    #[test]
    fn circles_are_found_at_every_depth() {
        finds(&[LOW, HIGH], "", &[]);
        finds(&[LOW, HIGH, BACK], "", &["low and high", "high and low"]);
        finds(&[LOW, HIGH, BACK], "circle server: low -> high\n", &[]);
        finds(&[LOW, HIGH], "circle server: low -> high\n", &["fits nothing any more"]);
        let (a, b) = (("crates/mail/src/x/a.rs", "use super::b::B;"), ("crates/mail/src/x/b.rs", "use super::c;"));
        finds(&[a, b, ("crates/mail/src/x/c.rs", "")], "", &[]);
        let circle = ["a and b", "b and c", "c and a"];
        finds(&[a, b, ("crates/mail/src/x/c.rs", "use crate::x::a::A;")], "", &circle);
        // A parent and its child may know each other; tests may import from anywhere.
        let parent = ("crates/mail/src/x.rs", "mod a; use self::a::A;");
        finds(&[parent, ("crates/mail/src/x/a.rs", "use super::X; use crate::x::Y;")], "", &[]);
        let test = "#[cfg(test)]\nmod tests { use super::super::a::A; }";
        finds(&[a, ("crates/mail/src/x/b.rs", test)], "", &[]);
        let trials = ("crates/mail/src/x/b/trials.rs", "use crate::x::a::A;");
        finds(&[a, ("crates/mail/src/x/b.rs", "#[cfg(test)]\nmod trials;"), trials], "", &[]);
        finds(&[a, ("crates/mail/src/x/b.rs", "mod trials;"), trials], "", &["a and b", "b and a"]);
    }

    #[test]
    fn a_path_attribute_is_refused() {
        finds(&[("crates/mail/src/a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;")], "", &["#[path]"]);
        finds(&[("crates/mail/src/a.rs", "#[cfg(test)]\nmod tests; const PATH: u8 = 1;")], "", &[]);
    }

    #[test]
    fn a_crate_has_one_type_of_a_name() {
        let (a, b) = (("crates/mail/src/a.rs", "pub struct Rate;"), ("crates/mail/src/b.rs", "enum Rate { A }"));
        finds(&[a, b], "", &["crates/mail/src/a.rs has a type Rate too"]);
        finds(&[a, b], "type mail: Rate\n", &[]);
        finds(&[a], "type mail: Rate\n", &["fits nothing any more"]);
        finds(&[a, ("crates/smtp/src/b.rs", "enum Rate { A }")], "", &[]);
        finds(&[a, ("crates/mail/src/b.rs", "#[cfg(test)]\nmod tests { struct Rate; }")], "", &[]);
    }
}

//! `cargo xtask fuzz`: runs every fuzz target for some seconds, and sums up what they did.
//!
//! A target that fails does not keep the others from running. Its input stays in `fuzz/artifacts`, its output in
//! `fuzz/output`.

mod seeds;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Report;

/// An input that takes longer is a failure.
const INPUT_SECONDS: u32 = 10;
/// A target that has more memory is a failure.
const MEMORY_MB: u32 = 2_048;

/// Writes the seeds of the targets, all of them if none is named.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn write_seeds(root: &Path, named: &[&str]) -> Result<Report, String> {
    let mut text = String::new();
    for target in targets(root, named)? {
        text.push_str(&format!("{target:<32} {:>4} seeds\n", seeds::write(root, &target)?));
    }
    Ok(Report { text, failed: false })
}

/// Runs the targets for `seconds` each, all of them if none is named.
///
/// # Errors
/// The targets cannot be built, or a file cannot be written.
pub(crate) fn command(root: &Path, seconds: &str, named: &[&str]) -> Result<Report, String> {
    let seconds: u32 = seconds.parse().map_err(|_| format!("{seconds} is no number of seconds"))?;
    let targets = targets(root, named)?;
    for target in &targets {
        seeds::write(root, target)?;
    }
    let has_tool = fuzz(root).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !has_tool.is_ok_and(|status| status.success()) {
        return Err("fuzzing needs a nightly toolchain and cargo-fuzz:\n  \
             rustup toolchain install nightly && cargo install --locked cargo-fuzz"
            .to_owned());
    }
    // One target alone is built by itself; cargo-fuzz builds one or all.
    let only = targets.first().filter(|_| targets.len() == 1);
    let built = fuzz(root).arg("build").args(target_dir()).args(only).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the fuzz targets cannot be built; the lines above say why".to_owned());
    }
    let mut done = Vec::new();
    for target in targets {
        eprintln!("fuzz: {target}");
        done.push(run(root, target, seconds)?);
    }
    Ok(Report { text: table(&done), failed: done.iter().any(|one| one.failure.is_some()) })
}

fn fuzz(root: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "fuzz"]).current_dir(root).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    cargo
}

/// cargo-fuzz takes the folder of a build as an option only.
fn target_dir() -> Vec<String> {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| Vec::new(), |dir| vec![format!("--target-dir={dir}/fuzz")])
}

fn targets(root: &Path, named: &[&str]) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()));
    let mut targets: Vec<String> = names.collect();
    targets.sort();
    if let Some(unknown) = named.iter().find(|name| !targets.iter().any(|target| target == *name)) {
        return Err(format!("there is no fuzz target {unknown}; there are {}", targets.join(", ")));
    }
    targets.retain(|target| named.is_empty() || named.contains(&target.as_str()));
    Ok(targets)
}

/// Result of running one target.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    target: String,
    executions: u64,
    /// Edges of the code that were reached.
    edges: u64,
    /// Why it failed, with the file that holds the input.
    failure: Option<String>,
}

fn run(root: &Path, target: String, seconds: u32) -> Result<Done, String> {
    let folder = root.join("fuzz/output");
    let corpus = root.join("fuzz/corpus").join(&target);
    for folder in [&folder, &corpus] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let output = folder.join(format!("{target}.txt"));
    let file = File::create(&output).map_err(|e| format!("{}: {e}", output.display()))?;
    let status = fuzz(root)
        .arg("run")
        .args(target_dir())
        .arg(&target)
        // New inputs go to the first folder.
        .arg(corpus)
        .arg(root.join("fuzz/seeds").join(&target))
        .arg("--")
        .arg(format!("-dict={}", root.join("fuzz/seeds").join(&target).with_extension("dict").display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB}"))
        .arg("-print_final_stats=1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .map_err(|e| format!("cargo fuzz run {target}: {e}"))?;
    let text = std::fs::read(&output).map_err(|e| format!("{}: {e}", output.display()))?;
    let text = String::from_utf8_lossy(&text);
    let (executions, edges) = numbers(&text);
    let failure = (!status.success()).then(|| failure(&text));
    Ok(Done { target, executions, edges, failure })
}

/// Executions and edges, as libFuzzer prints them.
fn numbers(output: &str) -> (u64, u64) {
    let behind = |line: &str, word: &str| {
        line.split_once(word).and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok())
    };
    let last = |word: &str| output.lines().rev().find_map(|line| behind(line, word)).unwrap_or(0);
    let running = output.lines().rev().find_map(|line| line.strip_prefix('#')?.split_whitespace().next()?.parse().ok());
    let executions = last("stat::number_of_executed_units:").max(running.unwrap_or(0));
    (executions, last(" cov: "))
}

fn failure(output: &str) -> String {
    let file = output.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, file)| file));
    match file {
        Some(file) => file.to_owned(),
        None => "it ended without an input that fails; see its output in fuzz/output".to_owned(),
    }
}

fn table(done: &[Done]) -> String {
    let mut text = format!("{:<32} {:>12} {:>8}  failure\n", "target", "executions", "edges");
    for one in done {
        let failure = one.failure.as_deref().unwrap_or("-");
        text.push_str(&format!("{:<32} {:>12} {:>8}  {failure}\n", one.target, one.executions, one.edges));
    }
    let executions: u64 = done.iter().map(|one| one.executions).sum();
    let failed = done.iter().filter(|one| one.failure.is_some()).count();
    text.push_str(&format!("{} targets, {executions} executions, {failed} failed\n", done.len()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "INFO: Loaded 1 modules\n#2 INITED cov: 90 ft: 91\n#4096 pulse  cov: 100 ft: 200 corp: 3/4b\n\
        Done 5000 runs in 1 second(s)\nstat::number_of_executed_units: 5000\n";
    const FAILED: &str = "#17 NEW    cov: 12 ft: 13\nthread panicked\n\
        artifact_prefix='fuzz/artifacts/a/'; Test unit written to fuzz/artifacts/a/crash-1\n";

    #[test]
    fn the_output_of_libfuzzer_is_summed_up() {
        assert_eq!(numbers(PASSED), (5_000, 100));
        assert_eq!(numbers(FAILED), (17, 12));
        assert_eq!(failure(FAILED), "fuzz/artifacts/a/crash-1");
        assert!(failure(PASSED).contains("fuzz/output"));
    }

    #[test]
    fn the_table_counts_failures() {
        let one = |target: &str, failure: Option<&str>| Done {
            target: target.to_owned(),
            executions: 10,
            edges: 5,
            failure: failure.map(str::to_owned),
        };
        let text = table(&[one("a", None), one("b", Some("fuzz/artifacts/b/crash-1"))]);
        assert!(text.ends_with("2 targets, 20 executions, 1 failed\n"), "{text}");
        assert!(text.contains("crash-1"), "{text}");
    }
}

//! Questions to cargo: `cargo metadata`, once about our own packages and once about everything they pull in.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Our packages alone: needs no network, no lock file and no downloaded crate.
///
/// # Errors
/// cargo cannot be run, or refuses a manifest; its own message is passed on.
pub(crate) fn our_packages(root: &Path) -> Result<Vec<Value>, String> {
    packages(root, &["--no-deps", "--offline"])
}

/// Our packages and all their dependencies with every feature on, for this machine's platform.
///
/// # Errors
/// As `our_packages`; also when a crate is not downloaded and there is no network.
pub(crate) fn all_packages(root: &Path) -> Result<Vec<Value>, String> {
    let host = host(root)?;
    packages(root, &["--all-features", "--locked", "--filter-platform", &host])
}

fn packages(root: &Path, flags: &[&str]) -> Result<Vec<Value>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(&cargo);
    command.args(["metadata", "--format-version", "1"]).args(flags).current_dir(root);
    let text = run(command, "cargo metadata")?;
    let mut value: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    match value.get_mut("packages").map(Value::take) {
        Some(Value::Array(packages)) => Ok(packages),
        _ => Err("cargo metadata lists no packages; is this cargo 1.95 or newer?".to_owned()),
    }
}

/// The target triple of this machine.
fn host(root: &Path) -> Result<String, String> {
    let mut command = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
    command.arg("-vV").current_dir(root);
    let text = run(command, "rustc -vV")?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn run(mut command: Command, name: &str) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{name} cannot be started: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{name} printed no UTF-8: {e}"))
}

/// A string field of a package, empty when it is missing.
pub(crate) fn field<'a>(package: &'a Value, name: &str) -> &'a str {
    package.get(name).and_then(Value::as_str).unwrap_or("")
}

/// An array field of a package, empty when it is missing.
pub(crate) fn list<'a>(package: &'a Value, name: &str) -> &'a [Value] {
    package.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

//! A folder of dialogs, played one after the other, each with its input cut in several ways.

use std::path::Path;

/// How input is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Whole,
    Octets,
    Random(u8),
}

impl Cut {
    /// Numbers for a dialog that is cut so.
    pub(crate) fn random(self) -> Random {
        Random(if let Self::Random(seed) = self { u64::from(seed) } else { 0 })
    }

    /// How much of the rest comes next.
    pub(crate) fn take(self, rest: usize, random: &mut Random) -> usize {
        match self {
            Self::Whole => rest,
            Self::Octets => 1,
            Self::Random(_) => 1 + random.below(rest.min(40)),
        }
    }
}

/// Numbers that are the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, max: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % max
    }
}

/// Plays every file of `tests/NAME`: whole, octet by octet, and `rounds` times cut at random.
#[track_caller]
pub(crate) fn play_all(name: &str, least: usize, rounds: u8, play: impl Fn(&str, Cut) -> Result<(), String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    files.sort();
    assert!(files.len() >= least, "only {} dialogs are there", files.len());
    let mut failures = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a dialog is text");
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let mut cuts = [Cut::Whole, Cut::Octets].into_iter().chain((0..rounds).map(Cut::Random));
        if let Err(why) = cuts.try_for_each(|cut| play(&text, cut)) {
            failures.push(format!("{name}: {why}"));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

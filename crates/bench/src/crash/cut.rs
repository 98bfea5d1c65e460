//! The remains of unflushed writes after a power cut.
//!
//! A disk writes its cache back in any order and a sector whole or not at all. Every choice of sectors is therefore a
//! possible outcome; the modes here draw from the corners of that space and from its middle.

use crate::crash::random::Random;
use std::collections::BTreeMap;

/// The unit of a torn write: a disk writes a sector whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// Which of the pending sectors survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// None.
    None,
    /// All writes, in order, as after kill -9.
    All,
    /// Each sector has one of its pending contents, or the stable one, by the toss of a coin.
    Half,
    /// Only the last writes, from a random sector on: the order of writing is turned round.
    Newest,
    /// Only the first writes, up to a random sector, which may lie within a write.
    Oldest,
}

impl Survivors {
    /// All modes, to draw from.
    pub const ALL: [Self; 5] = [Self::None, Self::Half, Self::Newest, Self::Oldest, Self::All];

    /// The name used between processes and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
            Self::Half => "half",
            Self::Newest => "newest",
            Self::Oldest => "oldest",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Chooses a mode, each with the same chance.
    pub(crate) fn pick(random: &mut Random) -> Self {
        let mode = usize::try_from(random.below(Self::ALL.len() as u64)).unwrap_or(0);
        Self::ALL.get(mode).copied().unwrap_or(Self::None)
    }

    /// Chooses sectors from the pending writes, given in their order; applied in the returned order they make the
    /// image.
    pub(crate) fn choose<'a>(
        self,
        pending: impl Iterator<Item = (u64, &'a [u8])>,
        seed: u64,
    ) -> (Vec<(u64, &'a [u8])>, Cut) {
        let sectors: Vec<(u64, &[u8])> = pending.flat_map(|(offset, data)| sectors(offset, data)).collect();
        let mut random = Random::new(seed);
        let pending = sectors.len() as u64;
        let cut_at = usize::try_from(random.below(pending + 1)).unwrap_or(0);
        let kept: Vec<(u64, &[u8])> = match self {
            Self::None => Vec::new(),
            Self::All => sectors,
            Self::Oldest => sectors.into_iter().take(cut_at).collect(),
            Self::Newest => sectors.into_iter().skip(cut_at).collect(),
            Self::Half => toss(sectors, &mut random),
        };
        let cut = Cut { pending, kept: kept.len() as u64 };
        (kept, cut)
    }
}

/// The parts of a crash image.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut {
    /// Sectors that were pending, counted once per write.
    pub(crate) pending: u64,
    /// How many of them are in the image.
    pub(crate) kept: u64,
}

/// The sectors of a write, each with its offset.
pub(crate) fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    data.chunks(SECTOR).enumerate().map(move |(index, sector)| (offset + (index * SECTOR) as u64, sector))
}

/// One content per sector, or none: of several pending writes of a sector any may be the last that reached the disk.
fn toss<'a>(sectors: Vec<(u64, &'a [u8])>, random: &mut Random) -> Vec<(u64, &'a [u8])> {
    let mut versions: BTreeMap<u64, Vec<&'a [u8]>> = BTreeMap::new();
    for (offset, data) in sectors {
        versions.entry(offset).or_default().push(data);
    }
    let mut kept = Vec::new();
    for (offset, contents) in versions {
        if random.percent(50) {
            let choice = usize::try_from(random.below(contents.len() as u64)).unwrap_or(0);
            kept.extend(contents.get(choice).map(|data| (offset, *data)));
        }
    }
    kept
}

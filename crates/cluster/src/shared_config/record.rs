//! The keys of shared configuration and their values: lines of text with fields, of which unknown ones are passed over.

use crate::coordination::KeyValue;
use crate::identity::NodeId;
use std::collections::BTreeMap;
use std::fmt;

/// The prefix of all keys.
pub const CONFIG_PREFIX: &str = "config/";
/// The revision that counts.
pub(super) const ACTIVE_KEY: &str = "config/active";
/// The push that is under way.
pub(super) const PUSH_KEY: &str = "config/push";
/// The prefix of the reports of nodes.
const REPORT_PREFIX: &str = "config/node/";
/// Octets of a reason in a report.
const WHY_OCTETS_MAX: usize = 2_048;
/// Octets of a piece of a bundle in the engine.
const PIECE_OCTETS: u32 = 256 << 10;

/// The key of the report of a node.
pub(super) fn report_key(node: NodeId) -> String {
    format!("{REPORT_PREFIX}{}", node.0)
}

/// The SHA-256 of the octets of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleDigest(pub [u8; 32]);

impl BundleDigest {
    /// Reads 64 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(digest))
    }

    /// The first digits, for a person.
    #[must_use]
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(12);
        text
    }
}

impl fmt::Display for BundleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BundleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// A bundle in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleName {
    /// Its name.
    pub digest: BundleDigest,
    /// Its octets.
    pub octets: u32,
}

impl BundleName {
    /// The number of its pieces.
    #[must_use]
    pub const fn pieces(&self) -> u32 {
        self.octets.div_ceil(PIECE_OCTETS)
    }

    /// The octets of a piece.
    #[must_use]
    pub fn piece(octets: &[u8], number: u32) -> &[u8] {
        let size = usize::try_from(PIECE_OCTETS).unwrap_or(usize::MAX);
        let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(size);
        octets.get(at..at.saturating_add(size).min(octets.len())).unwrap_or_default()
    }
}

/// One push, told from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushId(pub u64);

/// The revision that counts for all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveRevision {
    /// Counted from 1; higher with each activation.
    pub number: u64,
    /// Its files.
    pub bundle: BundleName,
    /// The revision before.
    pub previous: Option<BundleName>,
    /// The push that activated it.
    pub push: PushId,
    /// The node at which it was pushed.
    pub by: NodeId,
}

const ACTIVE_HEAD: &str = "mailrace-config-1";

impl ActiveRevision {
    /// Reads a value; `None` for any other text.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let fields = Fields::of(value, ACTIVE_HEAD)?;
        Some(Self {
            number: fields.number("number")?,
            bundle: fields.bundle("bundle", "octets")?,
            previous: fields.bundle("previous", "previous_octets"),
            push: PushId(fields.number("push")?),
            by: NodeId(fields.number("by")?),
        })
    }
}

impl fmt::Display for ActiveRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, bundle, previous, push, by } = self;
        write!(f, "{ACTIVE_HEAD} number={number} bundle={} octets={}", bundle.digest, bundle.octets)?;
        if let Some(previous) = previous {
            write!(f, " previous={} previous_octets={}", previous.digest, previous.octets)?;
        }
        write!(f, " push={} by={}", push.0, by.0)
    }
}

/// A push that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushClaim {
    /// Which.
    pub push: PushId,
    /// The node at which it runs.
    pub by: NodeId,
    /// Its files.
    pub bundle: BundleName,
    /// The files are in the engine: nodes examine them.
    pub is_offered: bool,
}

const CLAIM_HEAD: &str = "mailrace-config-push-1";

impl PushClaim {
    /// Reads a value; `None` for any other text.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let fields = Fields::of(value, CLAIM_HEAD)?;
        Some(Self {
            push: PushId(fields.number("push")?),
            by: NodeId(fields.number("by")?),
            bundle: fields.bundle("bundle", "octets")?,
            is_offered: fields.get("offered")? == "1",
        })
    }
}

impl fmt::Display for PushClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { push, by, bundle, is_offered } = self;
        let offered = u8::from(*is_offered);
        let (digest, octets) = (bundle.digest, bundle.octets);
        write!(f, "{CLAIM_HEAD} push={} by={} bundle={digest} octets={octets} offered={offered}", push.0, by.0)
    }
}

/// The report of a node on the shared configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The revision in force there: number and files.
    pub taken: Option<(u64, BundleDigest)>,
    /// The push that it has examined last, and why its files do not fit there.
    pub push: Option<(PushId, Result<(), String>)>,
    /// The active bundle that it has not taken, and why.
    pub problem: Option<(BundleDigest, String)>,
}

const REPORT_HEAD: &str = "mailrace-config-node-1";

impl NodeReport {
    /// Reads a value; `None` for any other text.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let fields = Fields::of(value, REPORT_HEAD)?;
        let taken =
            fields.number("number").and_then(|number| Some((number, BundleDigest::parse(fields.get("bundle")?)?)));
        let refusal = fields.line("refused");
        let push = fields.number("push").map(|push| (PushId(push), refusal.map_or(Ok(()), Err)));
        let wanted = fields.get("wanted").and_then(BundleDigest::parse);
        Some(Self { taken, push, problem: wanted.and_then(|digest| Some((digest, fields.line("problem")?))) })
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REPORT_HEAD)?;
        if let Some((number, digest)) = self.taken {
            write!(f, " number={number} bundle={digest}")?;
        }
        self.problem.iter().try_for_each(|(digest, _)| write!(f, " wanted={digest}"))?;
        if let Some((push, answer)) = &self.push {
            write!(f, " push={}", push.0)?;
            if let Err(why) = answer {
                write!(f, "\nrefused {}", on_one_line(why))?;
            }
        }
        self.problem.iter().try_for_each(|(_, why)| write!(f, "\nproblem {}", on_one_line(why)))
    }
}

/// Cuts a text for a report.
fn on_one_line(text: &str) -> String {
    let mut line: String = text.trim().chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    if line.len() > WHY_OCTETS_MAX {
        line.truncate(line.floor_char_boundary(WHY_OCTETS_MAX));
        line.push('…');
    }
    line
}

/// The fields of a value: `NAME=VALUE` behind the head, and lines `NAME TEXT`.
struct Fields<'a> {
    first: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a [u8], head: &str) -> Option<Self> {
        let mut lines = std::str::from_utf8(value).ok()?.lines();
        let first = lines.next()?.strip_prefix(head)?;
        (first.is_empty() || first.starts_with(' ')).then(|| Self { first, lines: lines.collect() })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.first.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    fn line(&self, name: &str) -> Option<String> {
        self.lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(ToOwned::to_owned)
    }

    fn bundle(&self, digest: &str, octets: &str) -> Option<BundleName> {
        Some(BundleName { digest: BundleDigest::parse(self.get(digest)?)?, octets: self.number(octets)? })
    }
}

/// All keys as one answer of the store has them, each with its revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigView {
    /// The revision that counts.
    pub active: Option<(ActiveRevision, u64)>,
    /// The push that is under way.
    pub claim: Option<(PushClaim, u64)>,
    /// The reports of nodes, also of those that are gone.
    pub reports: BTreeMap<NodeId, (NodeReport, u64)>,
    /// A key that a later version has written: nothing is changed then.
    pub unreadable: Option<String>,
}

impl ConfigView {
    /// Reads the keys below [`CONFIG_PREFIX`].
    #[must_use]
    pub fn of(listed: &[KeyValue]) -> Self {
        let mut view = Self::default();
        for KeyValue { key, value, revision } in listed {
            let is_read = if key == ACTIVE_KEY {
                view.active = ActiveRevision::parse(value).map(|active| (active, *revision));
                view.active.is_some()
            } else if key == PUSH_KEY {
                view.claim = PushClaim::parse(value).map(|claim| (claim, *revision));
                view.claim.is_some()
            } else {
                let node = key.strip_prefix(REPORT_PREFIX).and_then(|node| node.parse().ok()).map(NodeId);
                let report = node.and_then(|node| Some((node, (NodeReport::parse(value)?, *revision))));
                view.reports.extend(report);
                true
            };
            if !is_read {
                view.unreadable = Some(key.clone());
            }
        }
        view
    }

    /// The number of the next revision. An engine that lost its data must not count from the beginning.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        let taken = self.reports.values().filter_map(|(report, _)| report.taken.map(|(number, _)| number));
        taken.chain(self.active.iter().map(|(active, _)| active.number)).max().unwrap_or(0).saturating_add(1)
    }
}

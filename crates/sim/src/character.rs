//! The behaviours of a host, and when it has which.
//!
//! A character is one way to treat clients. A script is the character of a host with episodes in which it is another
//! one. The names are those of the options of `mailrace sim` and of the map it writes.

use std::fmt;
use std::time::Duration;

/// How a host treats its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Character {
    /// Takes mail.
    Live,
    /// Refuses connections.
    Dead,
    /// Drops packets.
    Drop,
    /// Accepts and never greets.
    Hung,
    /// Greets and never answers EHLO.
    HungHello,
    /// Answers EHLO and nothing behind it.
    HungMail,
    /// Takes the content and never answers it.
    HungData,
    /// Waits long before each flight of replies.
    Slow,
    /// 450 to a recipient until a time has passed since its first try.
    Greylist,
    /// 421 above a number of connections and a rate of messages.
    Throttle,
    /// 550 to a share of the recipients.
    Reject,
    /// 451 to MAIL.
    Busy,
    /// Closes after the content and has not taken it.
    Cut,
    /// Closes after the content and has taken it.
    CutTaken,
    /// No extensions.
    Plain,
    /// Offers STARTTLS and cannot do it.
    BrokenTls,
    /// Means harm.
    Hostile(Hostility),
}

/// The behaviour of a hostile host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hostility {
    /// Answers EHLO with lines that never end.
    Endless,
    /// Answers EHLO with a line of 1 MiB.
    LongLine,
    /// Answers EHLO with 100,000 lines.
    Flood,
    /// Says all its replies before the commands, a `250` for the content among them.
    Early,
    /// Offers STARTTLS and ends in the middle of the first TLS record.
    TlsCut,
    /// Greets with octets that are no reply.
    Garbage,
    /// Greets with an octet a second.
    Trickle,
    /// Refuses MAIL or every RCPT, with replies that are as long as they may be.
    Wordy,
}

impl Hostility {
    /// All of them, in the order in which `--hostile` deals them out.
    pub const ALL: [Self; 8] = [
        Self::Endless,
        Self::LongLine,
        Self::Flood,
        Self::Early,
        Self::TlsCut,
        Self::Garbage,
        Self::Trickle,
        Self::Wordy,
    ];
}

/// The result of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// It is accepted.
    Open,
    /// It is refused.
    Refuses,
    /// It gets no answer.
    Drops,
}

const NAMES: [(Character, &str); 24] = [
    (Character::Live, "live"),
    (Character::Dead, "dead"),
    (Character::Drop, "drop"),
    (Character::Hung, "hung"),
    (Character::HungHello, "hung-hello"),
    (Character::HungMail, "hung-mail"),
    (Character::HungData, "hung-data"),
    (Character::Slow, "slow"),
    (Character::Greylist, "greylist"),
    (Character::Throttle, "throttle"),
    (Character::Reject, "reject"),
    (Character::Busy, "busy"),
    (Character::Cut, "cut"),
    (Character::CutTaken, "cut-taken"),
    (Character::Plain, "plain"),
    (Character::BrokenTls, "broken-tls"),
    (Character::Hostile(Hostility::Endless), "hostile-endless"),
    (Character::Hostile(Hostility::LongLine), "hostile-long-line"),
    (Character::Hostile(Hostility::Flood), "hostile-flood"),
    (Character::Hostile(Hostility::Early), "hostile-early"),
    (Character::Hostile(Hostility::TlsCut), "hostile-tls-cut"),
    (Character::Hostile(Hostility::Garbage), "hostile-garbage"),
    (Character::Hostile(Hostility::Trickle), "hostile-trickle"),
    (Character::Hostile(Hostility::Wordy), "hostile-wordy"),
];

impl Character {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(character, _)| character)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(character, _)| *character == self).map_or("", |(_, name)| name)
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(character, _)| *character)
    }

    /// Returns the result of a connection attempt.
    #[must_use]
    pub fn door(self) -> Door {
        match self {
            Self::Dead => Door::Refuses,
            Self::Drop => Door::Drops,
            _ => Door::Open,
        }
    }
}

impl fmt::Display for Character {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A time in which a host is something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    /// When it begins, since the start.
    pub from: Duration,
    /// When it is over.
    pub to: Duration,
    /// The character of the host in the episode.
    pub character: Character,
}

/// The character of a host over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The character outside every episode.
    pub base: Character,
    /// Where two hold, the first one counts.
    pub episodes: Vec<Episode>,
}

impl Script {
    /// Returns the character at this time.
    #[must_use]
    pub fn at(&self, now: Duration) -> Character {
        let holds = |episode: &&Episode| episode.from <= now && now < episode.to;
        self.episodes.iter().find(holds).map_or(self.base, |episode| episode.character)
    }

    /// When an episode begins or ends next, after `now`.
    #[must_use]
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let times = self.episodes.iter().flat_map(|episode| [episode.from, episode.to]);
        times.filter(|time| *time > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_characters_belong_together() {
        for character in Character::all() {
            assert_eq!(Character::from_name(character.name()), Some(character));
        }
        assert!(Hostility::ALL.iter().all(|kind| Character::all().any(|one| one == Character::Hostile(*kind))));
        assert_eq!(Character::from_name("nice"), None);
    }

    #[test]
    fn an_episode_holds_from_its_beginning_to_before_its_end() {
        use Character::{Busy, Dead, Live};
        let second = Duration::from_secs;
        let episode = |from, to, character| Episode { from: second(from), to: second(to), character };
        let script = Script { base: Live, episodes: vec![episode(10, 20, Dead), episode(15, 30, Busy)] };
        let at: Vec<Character> = [0, 10, 19, 20, 29, 30].into_iter().map(|now| script.at(second(now))).collect();
        assert_eq!(at, [Live, Dead, Dead, Busy, Busy, Live]);
        let next: Vec<_> = [0, 9, 10, 15, 20, 30].into_iter().map(|now| script.next_change(second(now))).collect();
        assert_eq!(next, [Some(10), Some(10), Some(15), Some(20), Some(30), None].map(|time| time.map(second)));
    }
}

//! The classes of delays: how long mail was here when a next hop took it, for the histogram of the metrics.

use std::time::Duration;

/// The upper bounds of all classes but the last, in milliseconds, with the text of the metrics.
const BOUNDS: [(u64, &str); 15] = [
    (50, "0.05"),
    (100, "0.1"),
    (250, "0.25"),
    (500, "0.5"),
    (1_000, "1"),
    (2_500, "2.5"),
    (5_000, "5"),
    (10_000, "10"),
    (30_000, "30"),
    (60_000, "60"),
    (300_000, "300"),
    (1_800_000, "1800"),
    (3_600_000, "3600"),
    (14_400_000, "14400"),
    (86_400_000, "86400"),
];

/// A class of delays: longer than the bound of the class before, and at most its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DelayClass(u8);

impl DelayClass {
    /// How many classes there are. The last has no bound.
    pub const COUNT: usize = BOUNDS.len() + 1;

    /// Every class, the shortest delays first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).take(Self::COUNT).map(Self)
    }

    /// Returns the class of a delay.
    #[must_use]
    pub fn of(delay: Duration) -> Self {
        let milliseconds = delay.as_millis();
        let class = BOUNDS.iter().take_while(|(bound, _)| u128::from(*bound) < milliseconds).count();
        Self(u8::try_from(class).unwrap_or(u8::MAX))
    }

    /// Returns its bound in seconds; `None` for the last.
    #[must_use]
    pub fn bound_seconds(self) -> Option<f64> {
        let milliseconds = BOUNDS.get(self.index()).map(|(bound, _)| *bound)?;
        Some(Duration::from_millis(milliseconds).as_secs_f64())
    }

    /// Its place among all classes.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns its bound in seconds as a text: `0.25`, `+Inf`.
    #[must_use]
    pub fn bound(self) -> &'static str {
        BOUNDS.get(self.index()).map_or("+Inf", |(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_in_the_first_class_that_has_room_for_it() {
        let bound = |milliseconds| DelayClass::of(Duration::from_millis(milliseconds)).bound();
        assert_eq!(
            [bound(0), bound(50), bound(51), bound(1_000), bound(86_400_001)],
            ["0.05", "0.05", "0.1", "1", "+Inf"]
        );
        assert_eq!(DelayClass::of(Duration::MAX).bound(), "+Inf");
    }

    #[test]
    fn bounds_grow_and_their_texts_are_the_same_numbers() {
        assert!(BOUNDS.is_sorted_by(|(one, _), (other, _)| one < other));
        for (milliseconds, text) in BOUNDS {
            let seconds: f64 = text.parse().unwrap();
            assert_eq!(Duration::from_millis(milliseconds), Duration::from_secs_f64(seconds));
        }
        assert_eq!(
            DelayClass::all().map(DelayClass::index).collect::<Vec<_>>(),
            (0..DelayClass::COUNT).collect::<Vec<_>>()
        );
    }
}

//! The state of `mailrace top`, and the effect of its keys.

use operator::answers::{DestinationLine, StatusAnswer, StragglerLine};
use operator::queue::Action;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::VecDeque;
use std::time::Duration;

/// Looks whose rates are kept for the chart.
const CHART_MAX: usize = 300;

/// The answers of one look.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) status: StatusAnswer,
    pub(super) destinations: Vec<DestinationLine>,
    pub(super) stragglers: Vec<StragglerLine>,
}

/// The order of destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopSort {
    #[default]
    Recipients,
    Connections,
    Name,
}

/// The list that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopList {
    #[default]
    Destinations,
    Stragglers,
}

/// The work of the caller after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopOrder {
    Nothing,
    End,
    Change { action: Action, destination: String },
}

/// Rates between two looks, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TopRates {
    pub(super) accepted: f64,
    pub(super) sent: f64,
    pub(super) deferred: f64,
    pub(super) failed: f64,
}

/// Everything on the screen.
#[derive(Debug, Default)]
pub(super) struct TopState {
    pub(super) snapshot: Snapshot,
    pub(super) rates: TopRates,
    /// Recipients sent a second, the last look last.
    pub(super) chart: VecDeque<u64>,
    pub(super) sort: TopSort,
    pub(super) list: TopList,
    /// The chosen line.
    pub(super) chosen: usize,
    pub(super) is_paused: bool,
    /// A change that waits for a yes.
    pub(super) question: Option<(Action, String)>,
    /// The result of the last change.
    pub(super) message: Option<String>,
}

impl TopState {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        let mut state = Self { snapshot, ..Self::default() };
        state.order();
        state
    }

    /// Takes the answers of the next look, so much later.
    pub(super) fn update(&mut self, next: Snapshot, after: Duration) {
        let (before, now) = (&self.snapshot.status, &next.status);
        let seconds = after.as_secs_f64().max(0.001);
        let rate = |before: u64, now: u64| {
            // A server that was restarted counts from the beginning.
            let number = u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
            f64::from(number) / seconds
        };
        let (old, new) = (before.deliveries.clone().unwrap_or_default(), now.deliveries.clone().unwrap_or_default());
        self.rates = TopRates {
            accepted: rate(before.messages.accepted, now.messages.accepted),
            sent: rate(old.sent, new.sent),
            deferred: rate(old.deferred, new.deferred),
            failed: rate(old.failed, new.failed),
        };
        let sent = u128::from(new.sent.saturating_sub(old.sent)) * 1_000 / after.as_millis().max(1);
        self.chart.push_back(u64::try_from(sent).unwrap_or(u64::MAX));
        while self.chart.len() > CHART_MAX {
            self.chart.pop_front();
        }
        let chosen = self.destination();
        self.snapshot = next;
        self.order();
        // The chosen line stays chosen wherever it is now.
        if let Some(at) = chosen.and_then(|chosen| self.names().iter().position(|name| *name == chosen)) {
            self.chosen = at;
        }
        self.chosen = self.chosen.min(self.names().len().saturating_sub(1));
    }

    fn order(&mut self) {
        let connections = |line: &DestinationLine| line.status.connections.unwrap_or(0);
        let lines = &mut self.snapshot.destinations;
        match self.sort {
            TopSort::Recipients => lines.sort_by_key(|line| std::cmp::Reverse(line.recipients)),
            TopSort::Connections => lines.sort_by_key(|line| std::cmp::Reverse((connections(line), line.recipients))),
            TopSort::Name => lines.sort_by(|a, b| a.destination.cmp(&b.destination)),
        }
    }

    /// The names of the lines of the list that is shown, by which a change selects mail.
    fn names(&self) -> Vec<String> {
        match self.list {
            TopList::Destinations => self.snapshot.destinations.iter().map(|line| line.destination.clone()).collect(),
            TopList::Stragglers => {
                self.snapshot.stragglers.iter().map(|line| line.destination.clone().unwrap_or_default()).collect()
            }
        }
    }

    /// The destination of the chosen line.
    fn destination(&self) -> Option<String> {
        self.names().get(self.chosen).cloned().filter(|name| !name.is_empty())
    }

    /// Carries out a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> TopOrder {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return TopOrder::End;
        }
        if let Some((action, destination)) = self.question.take() {
            return match key.code {
                KeyCode::Char('y') => TopOrder::Change { action, destination },
                _ => TopOrder::Nothing,
            };
        }
        self.message = None;
        let last = self.names().len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return TopOrder::End,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(10),
            KeyCode::PageDown => self.chosen = (self.chosen + 10).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Tab => {
                self.list = match self.list {
                    TopList::Destinations => TopList::Stragglers,
                    TopList::Stragglers => TopList::Destinations,
                };
                self.chosen = 0;
            }
            KeyCode::Char('o') => {
                self.sort = match self.sort {
                    TopSort::Recipients => TopSort::Connections,
                    TopSort::Connections => TopSort::Name,
                    TopSort::Name => TopSort::Recipients,
                };
                self.order();
            }
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.ask(Action::Retry),
            KeyCode::Char('h') => self.ask(Action::Hold),
            KeyCode::Char('l') => self.ask(Action::Release),
            _ => {}
        }
        TopOrder::Nothing
    }

    fn ask(&mut self, action: Action) {
        self.question = self.destination().map(|destination| (action, destination));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::answers::DeliveryCounts;

    pub(super) fn snapshot(sent: u64, destinations: &[(&str, u64)]) -> Snapshot {
        let line = |(name, recipients): &(&str, u64)| DestinationLine {
            destination: (*name).to_owned(),
            recipients: *recipients,
            ..DestinationLine::default()
        };
        let deliveries = Some(DeliveryCounts { sent, ..DeliveryCounts::default() });
        let status = StatusAnswer { deliveries, ..StatusAnswer::default() };
        Snapshot { status, destinations: destinations.iter().map(line).collect(), stragglers: Vec::new() }
    }

    fn press(state: &mut TopState, code: KeyCode) -> TopOrder {
        state.press(KeyEvent::from(code))
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let mut state = TopState::new(snapshot(100, &[]));
        state.update(snapshot(300, &[]), Duration::from_secs(2));
        assert!((state.rates.sent - 100.0).abs() < 0.01);
        state.update(snapshot(5, &[]), Duration::from_secs(2));
        assert!(state.rates.sent.abs() < 0.01, "a restart");
        assert_eq!(state.chart, [100, 0]);
        // The next look came late, or after a pause.
        state.update(snapshot(605, &[]), Duration::from_secs(60));
        assert!((state.rates.sent - 10.0).abs() < 0.01 && state.chart == [100, 0, 10]);
    }

    #[test]
    fn the_chosen_line_stays_chosen_and_a_change_is_asked_for_first() {
        let mut state = TopState::new(snapshot(0, &[("a.test", 3), ("b.test", 2), ("c.test", 1)]));
        press(&mut state, KeyCode::Down);
        state.update(snapshot(0, &[("c.test", 9), ("a.test", 8), ("b.test", 7)]), Duration::from_secs(1));
        assert_eq!(state.destination().as_deref(), Some("b.test"));
        assert_eq!(press(&mut state, KeyCode::Char('h')), TopOrder::Nothing);
        assert_eq!(press(&mut state, KeyCode::Char('n')), TopOrder::Nothing, "no");
        assert_eq!(state.question, None);
        press(&mut state, KeyCode::Char('r'));
        let order = TopOrder::Change { action: Action::Retry, destination: "b.test".to_owned() };
        assert_eq!(press(&mut state, KeyCode::Char('y')), order);
        press(&mut state, KeyCode::Char('o'));
        press(&mut state, KeyCode::Char('o'));
        let names: Vec<&str> = state.snapshot.destinations.iter().map(|line| line.destination.as_str()).collect();
        assert_eq!(names, ["a.test", "b.test", "c.test"]);
        assert_eq!(press(&mut state, KeyCode::Char('q')), TopOrder::End);
    }

    #[test]
    fn an_empty_list_has_nothing_to_change() {
        let mut state = TopState::new(snapshot(0, &[]));
        for code in [KeyCode::Down, KeyCode::End, KeyCode::Char('h'), KeyCode::Tab, KeyCode::Char('r')] {
            assert_eq!(press(&mut state, code), TopOrder::Nothing);
        }
        assert_eq!((state.chosen, state.question), (0, None));
    }
}

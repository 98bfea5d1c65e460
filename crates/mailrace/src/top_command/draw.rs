//! Puts the state of `mailrace top` on the screen. Text of other servers is shown without what acts on a terminal.

use super::state::{TopList, TopSort, TopState};
use crate::output::{age, bytes, next_try, thousands};
use crate::terminal_text::plain;
use operator::answers::DestinationStatus;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState};

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState) {
    let heights = [Constraint::Length(4), Constraint::Length(6), Constraint::Min(4), Constraint::Length(1)];
    let [head, chart, list, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(state)), head);
    draw_chart(frame, state, chart);
    match state.list {
        TopList::Destinations => draw_destinations(frame, state, list),
        TopList::Stragglers => draw_stragglers(frame, state, list),
    }
    frame.render_widget(Paragraph::new(foot_line(state)), foot);
}

fn head_lines(state: &TopState) -> Vec<Line<'static>> {
    let (status, rates) = (&state.snapshot.status, &state.rates);
    let deliveries = status.deliveries.clone().unwrap_or_default();
    let paused = if state.is_paused { "  PAUSED" } else { "" };
    let stopping = if status.stopping { "  STOPPING" } else { "" };
    let (host, version) = (plain(&status.hostname), plain(&status.version));
    vec![
        Line::styled(
            format!("{host}  mailrace {version}  up {}{stopping}{paused}", age(status.uptime_seconds)),
            Style::new().add_modifier(Modifier::BOLD),
        ),
        Line::raw(format!(
            "a second: {:.0} messages in, {:.0} recipients sent, {:.0} deferred, {:.0} failed",
            rates.accepted, rates.sent, rates.deferred, rates.failed
        )),
        Line::raw(format!(
            "queue: {} messages, {} waiting, {} held at {} destinations; connections {} in, {} out",
            thousands(status.queue.messages),
            thousands(status.queue.waiting),
            thousands(status.queue.held),
            thousands(status.queue.destinations),
            thousands(status.connections.open),
            thousands(deliveries.connections.open + deliveries.connections.silent)
        )),
        Line::raw(format!(
            "spool: {}, pressure {}; since the start {} messages in, {} recipients sent",
            bytes(status.spool.live_bytes),
            plain(&status.spool.pressure),
            thousands(status.messages.accepted),
            thousands(deliveries.sent)
        )),
    ]
}

fn draw_chart(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let width = usize::from(area.width.saturating_sub(2));
    let skip = state.chart.len().saturating_sub(width);
    let shown: Vec<u64> = state.chart.iter().skip(skip).copied().collect();
    let most = shown.iter().max().copied().unwrap_or(0);
    let title = format!(" recipients sent a second, {} at most ", thousands(most));
    frame.render_widget(Sparkline::default().data(&shown).block(Block::bordered().title(title)), area);
}

fn draw_destinations(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let order = match state.sort {
        TopSort::Recipients => "recipients",
        TopSort::Connections => "connections",
        TopSort::Name => "name",
    };
    let rows: Vec<[String; 4]> = state
        .snapshot
        .destinations
        .iter()
        .map(|line| {
            let open = line.status.connections.unwrap_or(0);
            [thousands(line.recipients), thousands(open), plain(&line.destination), state_of(&line.status)]
        })
        .collect();
    let title = format!(" destinations, by {order} ");
    draw_table(frame, area, &title, ["Recipients", "Conn.", "Destination", "State"], rows, state.chosen);
}

fn draw_stragglers(frame: &mut Frame<'_>, state: &TopState, area: Rect) {
    let rows: Vec<[String; 4]> = state
        .snapshot
        .stragglers
        .iter()
        .map(|line| {
            let name = line.destination.as_deref().or(line.host.as_deref()).unwrap_or("?");
            let why = line.status.down.as_deref().or(line.reason.as_deref()).unwrap_or_default();
            [thousands(line.recipients), age(line.oldest), plain(name), plain(why)]
        })
        .collect();
    draw_table(
        frame,
        area,
        " who waits for an hour or longer ",
        ["Recipients", "Oldest", "Destination", "Last reply"],
        rows,
        state.chosen,
    );
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    columns: [&'static str; 4],
    rows: Vec<[String; 4]>,
    chosen: usize,
) {
    let is_empty = rows.is_empty();
    let widths = [Constraint::Length(11), Constraint::Length(8), Constraint::Percentage(35), Constraint::Fill(1)];
    let table = Table::new(rows.into_iter().map(Row::new), widths)
        .header(Row::new(columns).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(title.to_owned()));
    let mut selection = TableState::default().with_selected((!is_empty).then_some(chosen));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// Says in a few words how a destination is.
fn state_of(status: &DestinationStatus) -> String {
    if let Some(why) = &status.down {
        return format!("down, {}: {}", next_try(status), plain(why));
    }
    if let Some(waits) = crate::output::waits_for(status) {
        return waits;
    }
    match status.in_flight.unwrap_or(0) {
        0 => String::new(),
        messages => format!("{} under way", thousands(messages)),
    }
}

fn foot_line(state: &TopState) -> Line<'static> {
    if let Some((action, destination)) = &state.question {
        let text = format!("{} all mail to {}? y, or any other key", action.name(), plain(destination));
        return Line::styled(text, Style::new().add_modifier(Modifier::REVERSED));
    }
    match &state.message {
        Some(message) => Line::styled(plain(message), Style::new().add_modifier(Modifier::BOLD)),
        None => Line::raw("q end  up/down choose  tab list  o order  r retry  h hold  l release  p pause"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::Snapshot;
    use super::*;
    use operator::answers::{DestinationLine, StatusAnswer, StragglerLine};
    use operator::queue::Action;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const HOSTILE: &str = "a\u{1b}[31mb\u{202e}c.test";

    fn screen(state: &TopState, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let lines = buffer.content().chunks(usize::from(width));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    fn state() -> TopState {
        let mut status = StatusAnswer { hostname: HOSTILE.to_owned(), ..StatusAnswer::default() };
        status.queue.messages = 12_345;
        let mut destination =
            DestinationLine { destination: HOSTILE.to_owned(), recipients: 4_000, ..DestinationLine::default() };
        destination.status.down = Some("451 \u{9b}2J too busy".to_owned());
        let straggler =
            StragglerLine { destination: Some(HOSTILE.to_owned()), oldest: 7_200, ..StragglerLine::default() };
        TopState::new(Snapshot { status, destinations: vec![destination], stragglers: vec![straggler] })
    }

    #[test]
    fn numbers_and_states_are_shown_and_nothing_acts_on_the_terminal() {
        let mut state = state();
        for list in [TopList::Destinations, TopList::Stragglers] {
            state.list = list;
            let shown = screen(&state, 120, 30);
            assert!(!shown.chars().any(|c| mail::is_unprintable(c) && c != '\n'), "{shown:?}");
            assert!(shown.contains("12,345 messages") && shown.contains("a?[31mb?c.test"), "{shown}");
        }
        state.list = TopList::Destinations;
        assert!(screen(&state, 120, 30).contains("451 ?2J too busy"));
        state.question = Some((Action::Hold, "b.test".to_owned()));
        assert!(screen(&state, 120, 30).contains("hold all mail to b.test? y"));
    }

    #[test]
    fn a_small_terminal_is_no_fault() {
        for (width, height) in [(1, 1), (20, 5), (3, 40), (300, 2)] {
            screen(&state(), width, height);
        }
    }
}

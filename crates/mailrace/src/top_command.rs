//! `mailrace top`: the running server in a terminal, second by second.
//!
//! It asks over the control socket, as `mailrace status` and `mailrace queue` do. [`state`] has what is shown and what
//! the keys do, [`draw`] puts it on the screen; neither knows a socket or a terminal.

mod draw;
mod state;

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use clap::Args;
use operator::answers::{QueueLine, QueueTotals, StatusAnswer};
use operator::control::Request;
use operator::queue::{Action, Command, Selection};
use os::clock;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::Value;
use state::{Snapshot, TopOrder, TopState};
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Keys:
  up, down     choose a line
  tab          destinations, or who waits for long
  o            order: by recipients, by connections, by name
  r, h, l      retry, hold, release the mail of the chosen line (asks first)
  p            stop and go on
  q, Esc       end

Exit status:
   0  done
  64  standard output is no terminal
  69  the server does not run, or has ended
  77  no permission";

/// Lines of each list.
const LINES_MAX: u64 = 200;
/// The age from which on mail waits for long.
const LATE: Duration = Duration::from_secs(3_600);

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace top` until a key ends it.
///
/// # Errors
/// No terminal, no server, no permission, or the server has gone.
pub(crate) fn run(arguments: &TopArguments) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let text = "top: standard input and output have to be a terminal; \"mailrace status\" prints the same once";
        return Err(Failure::new(Exit::Usage, text.to_owned()));
    }
    let path = arguments.target.path();
    // A server that does not answer is reported before the screen is taken.
    let first = look(&path)?;
    let mut state = TopState::new(first);
    let mut terminal = ratatui::try_init().map_err(|error| Failure::io("the terminal", &error))?;
    let ended = show(&mut terminal, &mut state, &path, Duration::from_secs(arguments.interval));
    ratatui::restore();
    ended.map(|()| Exit::Ok)
}

/// Shows the state, takes keys, and looks again after each interval.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut TopState,
    path: &Path,
    interval: Duration,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io("the terminal", &error);
    let (mut looked_at, mut is_behind) = (clock::now(), false);
    loop {
        terminal.draw(|frame| draw::draw(frame, state)).map_err(failed)?;
        // A key is shown at once, and neither puts the next look off nor brings it forward.
        let next_at = clock::now() + interval;
        loop {
            let left = next_at.saturating_duration_since(clock::now());
            if left.is_zero() {
                break;
            }
            if event::poll(left).map_err(failed)? {
                match event::read().map_err(failed)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match state.press(key) {
                        TopOrder::Nothing => {}
                        TopOrder::End => return Ok(()),
                        TopOrder::Change { action, destination } => {
                            state.message = Some(change(path, action, &destination));
                        }
                    },
                    _ => {}
                }
                terminal.draw(|frame| draw::draw(frame, state)).map_err(failed)?;
            }
        }
        if state.is_paused {
            continue;
        }
        match look(path) {
            Ok(next) => {
                // On a long queue a look takes a while, and none is made in a pause.
                let now = clock::now();
                state.update(next, now.saturating_duration_since(looked_at));
                looked_at = now;
                if std::mem::take(&mut is_behind) {
                    state.message = None;
                }
            }
            // Others ask about the queue: the next look may find room.
            Err(failure) if failure.exit == Exit::TryLater => {
                (is_behind, state.message) = (true, Some(failure.to_string()));
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Asks the server for everything that is shown.
fn look(path: &Path) -> Result<Snapshot, Failure> {
    let mut control = Control::connect(path)?;
    let status: StatusAnswer = control.ask_for(&Request::Status)?;
    let mut destinations = Vec::new();
    list(&mut control, Action::Destinations, |line| {
        if let QueueLine::Destination(line) = line {
            destinations.push(*line);
        }
    })?;
    let mut stragglers = Vec::new();
    list(&mut control, Action::Stragglers, |line| {
        if let QueueLine::Straggler(line) = line {
            stragglers.push(*line);
        }
    })?;
    Ok(Snapshot { status, destinations, stragglers })
}

fn list(control: &mut Control, action: Action, mut take: impl FnMut(QueueLine)) -> Result<(), Failure> {
    let mut selection = Selection::default();
    if action == Action::Stragglers {
        selection.older = Some(LATE);
    }
    let mut command = Command::new(action, selection);
    command.limit = Some(LINES_MAX);
    let kind = action.line_kind();
    control.ask_for_list(&Request::Queue(Box::new(command)), |line| {
        take(QueueLine::from_line(line, kind)?);
        Ok(true)
    })?;
    Ok(())
}

/// Carries out a change, and says what it did or why not.
fn change(path: &Path, action: Action, destination: &str) -> String {
    let selection = Selection { destination: Some(destination.into()), ..Selection::default() };
    let mut command = Command::new(action, selection);
    if action == Action::Hold {
        command.reason = Some("by mailrace top".into());
    }
    let asked = Control::connect(path).and_then(|mut control| {
        let last = control.ask_for_list(&Request::Queue(Box::new(command)), |_| Ok(true))?;
        control.decode_line::<QueueTotals>(&last.unwrap_or(Value::Null))
    });
    match asked {
        Ok(totals) => {
            let (messages, recipients) = (totals.messages.unwrap_or(0), totals.recipients.unwrap_or(0));
            format!("{} {destination}: {messages} messages, {recipients} recipients", action.name())
        }
        Err(failure) => format!("{} {destination}: {failure}", action.name()),
    }
}

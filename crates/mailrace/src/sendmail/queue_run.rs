//! `-q…` and `-Q…`: the server tries waiting mail now, holds it, or releases it.

use super::arguments::SendmailArguments;
use super::queue_list::{request_list, selection};
use super::site::Site;
use super::{exit, said};
use crate::control_client::Control;
use crate::exit::Failure;
use crate::queue_commands;
use operator::control::Request;
use operator::queue::{Action, Command, RecipientStatus, Selection};

/// Runs the queue; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site) -> u8 {
    let action = match &arguments.quarantine {
        None => Action::Retry,
        Some(reason) if reason.is_empty() => Action::Release,
        Some(_) => Action::Hold,
    };
    let mut selection = match selection(arguments) {
        Ok(selection) => selection,
        Err(text) => {
            eprintln!("sendmail: {text}");
            return exit::USAGE;
        }
    };
    let is_partial = arguments.filters.iter().any(|filter| filter.is_not) || has_partial_id(arguments, &selection);
    let done = (|| -> Result<(), Failure> {
        let mut control = Control::connect(&site.config.control.path)?;
        if is_partial {
            // Conditions that the server does not know are applied to the list.
            selection.ids = ids(&mut control, arguments, &selection)?;
            if selection.ids.is_empty() {
                return Ok(());
            }
        }
        if action == Action::Release {
            selection.state = Some(RecipientStatus::Held);
        }
        for command in queue_commands::split_into_requests(Command::new(action, selection)) {
            control.request(&Request::Queue(Box::new(command)))?;
        }
        Ok(())
    })();
    match done {
        Ok(()) => exit::OK,
        Err(failure) => said("sendmail", &failure),
    }
}

fn has_partial_id(arguments: &SendmailArguments, selection: &Selection) -> bool {
    use super::arguments::FilterKind;
    arguments.filters.iter().filter(|filter| filter.what == FilterKind::Id).count() != selection.ids.len()
}

fn ids(
    control: &mut Control,
    arguments: &SendmailArguments,
    selection: &Selection,
) -> Result<Vec<mail::QueueId>, Failure> {
    let mut command = Command::new(Action::List, Selection { ids: Vec::new(), ..selection.clone() });
    command.limit = Some(0);
    let messages = request_list(control, command)?;
    // A message of which only the id can be read may be of another sender or for others.
    let readable = messages.iter().filter(|message| !message.recipients.is_empty());
    let wanted = readable.filter(|message| super::queue_list::is_wanted(message, arguments));
    Ok(wanted.filter_map(|message| message.id.parse().ok()).collect())
}

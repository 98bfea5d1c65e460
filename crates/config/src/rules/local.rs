//! Rules about mail for this machine.

use super::super::{Mailbox, Template};
use super::Rules;

impl Rules<'_> {
    pub(super) fn local(&mut self) {
        let local = &self.config().local;
        let mut letters = local.delimiter.chars();
        let is_delimiter = |letter: char| letter.is_ascii_punctuation() && !matches!(letter, '/' | '@' | '"' | '\\');
        if !(letters.next().is_none_or(is_delimiter) && letters.next().is_none()) {
            self.error(
                &[("local.delimiter", 0)],
                format!("local.delimiter: \"{}\" is not one character such as + or -", local.delimiter),
                "write \"+\", or \"\" for none",
            );
        }
        for file in &local.files {
            if file != "%h" && !file.starts_with("%h/") && !file.starts_with('/')
                || file.split('/').any(|part| part == "..")
            {
                self.error(
                    &[("local.files", 0)],
                    format!("local.files: \"{file}\" does not begin with \"/\" or \"%h\", or has \"..\" in it"),
                    "write the full name of a directory",
                );
            }
        }
        let template = match &local.mailbox {
            Mailbox::Mbox(template) | Mailbox::Maildir(template) => Some(template),
            Mailbox::LmtpSocket(_) | Mailbox::LmtpHost(_) | Mailbox::None => None,
        };
        if !local.mailbox_user.is_empty() && template.is_some_and(Template::needs_home) {
            self.error(
                &[("local.mailbox_user", 0), ("local.mailbox", 0)],
                format!("local.mailbox_user: {} cannot write into the homes of others", local.mailbox_user),
                "begin local.mailbox with a directory of that user, such as \"maildir:/srv/mail/%d/%u\"",
            );
        }
    }
}

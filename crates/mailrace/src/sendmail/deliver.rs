//! `sendmail RECIPIENT… < MESSAGE`: the way of a message from standard input into the pickup directory.

use super::answer::{self, UndeliverableRecipient, Wait};
use super::arguments::{Delivery, Errors, SendmailArguments};
use super::compose::{Composed, Composer, Manner, commit, terms};
use super::exit;
use super::site::{Site, Trouble};
use super::traffic::Traffic;
use mail::submission::Lines;
use mail::{Recipient, ReversePath};
use server::submit::{Filed, Submission};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;

/// The octets of one read.
const READ_BYTES: usize = 64 << 10;

/// Reads a message and hands it in; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site) -> u8 {
    match deliver(arguments, site) {
        Ok(status) => status,
        Err((status, text)) => {
            complain(arguments, &text);
            status
        }
    }
}

fn complain(arguments: &SendmailArguments, text: &str) {
    if arguments.errors != Errors::Quiet {
        eprintln!("{text}");
    }
}

fn deliver(arguments: &SendmailArguments, site: &Site) -> Result<u8, Trouble> {
    if arguments.words.is_empty() && !arguments.takes_recipients {
        return Err((exit::USAGE, "Recipient names must be specified".to_owned()));
    }
    let mut traffic = Traffic::open(arguments.traffic.as_deref())?;
    let (sender, is_chosen) = site.sender(arguments.sender.as_deref())?;
    let mut status = exit::OK;
    let mut recipients: Vec<Recipient> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for word in &arguments.words {
        match mail::submission::named(word, &site.host) {
            Ok(addresses) => {
                let new = addresses.into_iter().filter(|address| known.insert(address.to_string()));
                let params = || arguments.recipient_params.clone();
                recipients.extend(new.map(|address| Recipient { address, params: params() }));
            }
            Err(error) => {
                complain(arguments, &format!("{word}... {error}"));
                status = exit::USAGE;
            }
        }
    }
    let (params, terms) = (arguments.params.clone(), terms(arguments));
    let submission = Submission { sender, is_chosen, on_behalf_of: None, adopted: None, params, terms, recipients };
    let mut composer = Composer::new(site, Manner::new(submission, arguments));
    let mut input = Heard { from: io::stdin().lock(), traffic: &mut traffic };
    read_message(&mut input, !arguments.ignores_dots, |content| composer.push(content))?;
    let (composed, bad) = composer.finish()?;
    for (text, error) in bad {
        complain(arguments, &format!("{text}... {error}"));
        status = exit::USAGE;
    }
    match composed {
        Composed::Nobody(content) => {
            if status == exit::OK {
                complain(arguments, "No recipient addresses found in header");
            } else {
                save_dead_letter(arguments, site, &mut content.as_slice());
            }
            Ok(status)
        }
        Composed::Filing(filing) => {
            let recipients = filing.recipients();
            let filed = commit(site, *filing)?;
            traffic.log_note(&format!("HANDED IN {}", filed.name()));
            let failed = wait(arguments, site, filed, recipients, &mut traffic)?;
            Ok(if failed == exit::OK { status } else { failed })
        }
    }
}

/// Input that is recorded as it is read.
struct Heard<'a, R> {
    from: R,
    traffic: &'a mut Traffic,
}

impl<R: Read> Read for Heard<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        match count {
            0 => self.traffic.log_end_of_input(),
            _ => self.traffic.log_input(buffer.get(..count).unwrap_or_default()),
        }
        Ok(count)
    }
}

/// Reads a message to its end: the end of the input, or a line with a dot.
pub(super) fn read_message(
    from: &mut impl Read,
    ends_at_dot: bool,
    mut push: impl FnMut(&[u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut lines = Lines::new(ends_at_dot);
    let (mut buffer, mut content) = (vec![0; READ_BYTES], Vec::new());
    loop {
        let count = match from.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err((exit::IO, format!("standard input: {error}; the message was not accepted"))),
        };
        content.clear();
        let is_over = count == 0 || lines.push(buffer.get(..count).unwrap_or_default(), &mut content);
        if is_over {
            lines.finish(&mut content);
        }
        push(&content)?;
        if is_over {
            return Ok(());
        }
    }
}

/// Waits for the server's answer, as far as the caller wants to.
fn wait(
    arguments: &SendmailArguments,
    site: &Site,
    mut filed: Filed,
    recipients: usize,
    traffic: &mut Traffic,
) -> Result<u8, Trouble> {
    let how = match arguments.delivery {
        Delivery::Queue => Wait::No,
        Delivery::Background => Wait::Taken,
        Delivery::Interactive => Wait::Done(recipients),
    };
    let is_heard = arguments.errors != Errors::Mail;
    let told = answer::ask_server(site.directory()?, filed.name(), how, is_heard);
    if let Some(id) = &told.id {
        traffic.log_note(&format!("TAKEN {id}"));
    }
    told.outcomes.iter().for_each(|line| traffic.log_note(line));
    if arguments.is_verbose {
        match &told.id {
            Some(id) => super::say(format_args!("accepted as {id}\n")),
            None if told.failures.is_empty() => {
                super::say(format_args!("accepted; the server takes it when it runs\n"))
            }
            None => {}
        }
        told.outcomes.iter().for_each(|line| super::say(format_args!("{line}\n")));
    }
    let mut status = exit::OK;
    for failure in &told.failures {
        status = status_of(failure);
        traffic.log_note(&format!("{}... {}", failure.to, failure.text));
        if arguments.errors == Errors::Print {
            super::say(format_args!("{}... {}\n", as_sendmail_names(&failure.to, site), words_of(&failure.text)));
        }
    }
    let refused = told.failures.iter().filter(|failure| !failure.is_remote).count();
    if refused == recipients && recipients > 0 {
        match filed.content() {
            Ok(mut content) => save_dead_letter(arguments, site, &mut content),
            Err(error) => complain(arguments, &format!("the message cannot be read again: {error}")),
        }
    }
    Ok(status)
}

fn status_of(failure: &UndeliverableRecipient) -> u8 {
    if failure.is_remote {
        // sendmail goes by the code alone for a next hop's reply.
        return exit::of_code(failure.text.split_ascii_whitespace().next().unwrap_or_default());
    }
    exit::of_reply(&failure.text)
}

/// `joe` for a user of this host.
fn as_sendmail_names<'a>(address: &'a str, site: &Site) -> &'a str {
    match address.rsplit_once('@') {
        Some((user, domain)) if domain.eq_ignore_ascii_case(site.host.as_str()) => user,
        _ => address,
    }
}

/// `User unknown` of `550 5.1.1 <joe@h>... User unknown`.
pub(super) fn words_of(reply: &str) -> &str {
    let mut rest = reply.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    if let Some((status, words)) = rest.split_once(' ')
        && status.split('.').count() == 3
        && status.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        rest = words;
    }
    match rest.split_once(">... ") {
        Some((path, words)) if path.starts_with('<') => words,
        _ => rest,
    }
}

/// Saves a message that reaches no recipient in the home of its writer, as sendmail does where errors are printed.
fn save_dead_letter(arguments: &SendmailArguments, site: &Site, content: &mut dyn Read) {
    let Some(home) = site.home.as_deref().filter(|_| arguments.errors == Errors::Print) else { return };
    let path = home.join("dead.letter");
    let mut save = || -> io::Result<()> {
        if !home.is_dir() {
            DirBuilder::new().create(home)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let sender = site.sender(arguments.sender.as_deref()).map_or(ReversePath::Null, |(sender, _)| sender);
        writeln!(file, "From {}", sender.address().map_or_else(|| "MAILER-DAEMON".to_owned(), ToString::to_string))?;
        let mut text = Vec::new();
        content.read_to_end(&mut text)?;
        text.retain(|byte| *byte != b'\r');
        text.push(b'\n');
        file.write_all(&text)
    };
    match save() {
        Ok(()) => eprintln!("{0}... Saved message in {0}", path.display()),
        Err(error) => eprintln!("{}: {error}; the message is lost, as you were told", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_refusals() {
        assert_eq!(words_of("550 5.1.1 <joe@h.test>... User unknown"), "User unknown");
        assert_eq!(words_of("550 5.7.1 Relaying denied"), "Relaying denied");
        assert_eq!(words_of("550 no"), "no");
        assert_eq!(words_of(""), "");
    }

    #[test]
    fn a_message_is_read_to_its_end() {
        let read_all = |text: &[u8], dot| {
            let mut all = Vec::new();
            read_message(&mut &*text, dot, |content| {
                all.extend_from_slice(content);
                Ok(())
            })
            .unwrap();
            String::from_utf8(all).unwrap()
        };
        assert_eq!(read_all(b"a\n.\nb", true), "a\r\n");
        assert_eq!(read_all(b"a\n.\nb", false), "a\r\n.\r\nb\r\n");
    }
}

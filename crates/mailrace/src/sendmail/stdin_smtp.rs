//! `-bs`: SMTP on standard input and output. Each message goes into the pickup directory, and is accepted when it is
//! durable there.
//!
//! The session is the server's machine; here is its driver. Whether the server runs makes no difference.

use super::answer::{self, Wait};
use super::arguments::SendmailArguments;
use super::compose::{Composed, Composer, Manner, commit, terms};
use super::exit;
use super::site::{Site, Trouble};
use super::traffic::Traffic;
use mail::submission::Lines;
use mail::{Client, Reply, ReplyCode};
use os::clock;
use server::submit::Submission;
use smtp::server::{BareNewline, Dialect, Question, Session, Settings, Step, Verdict};
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

const READ_BYTES: usize = 64 << 10;

/// Holds the session to its end; the exit status.
pub(super) fn run(arguments: &SendmailArguments, site: &Site) -> u8 {
    let traffic = match Traffic::open(arguments.traffic.as_deref()) {
        Ok(traffic) => traffic,
        Err((status, text)) => {
            eprintln!("sendmail: {text}");
            return status;
        }
    };
    let mut settings = Settings::new(site.host.as_str());
    settings.dialect = Dialect::Stdin;
    settings.bare_newline = BareNewline::Normalize;
    settings.forgiving = site.config.smtp.forgiving;
    let limits = arguments.limits;
    settings.limits.message_bytes = site.config.message.size_max.min(limits.message_bytes.unwrap_or(u64::MAX));
    settings.limits.recipients = limits.recipients.unwrap_or(u32::MAX);
    settings.limits.rate_bytes = 0;
    let client = Client::Process { uid: rustix::process::getuid().as_raw() };
    let session = Session::new(Arc::new(settings), client, None);
    let talk = Talk { site, arguments, traffic, session, began: clock::now(), message: None };
    match talk.hold() {
        Ok(()) => exit::OK,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            eprintln!("sendmail: {error}");
            exit::IO
        }
    }
}

struct Talk<'a> {
    site: &'a Site,
    arguments: &'a SendmailArguments,
    traffic: Traffic,
    session: Session,
    began: Instant,
    /// The received message, or its fault.
    message: Option<Result<(Composer<'a>, Lines), Trouble>>,
}

impl<'a> Talk<'a> {
    fn hold(mut self) -> io::Result<()> {
        self.session.greet(Verdict::Accept, self.elapsed());
        let (mut input, mut buffer) = (io::stdin().lock(), vec![0; READ_BYTES]);
        loop {
            self.say()?;
            let count = input.read(&mut buffer)?;
            if count == 0 {
                self.traffic.log_end_of_input();
                return Ok(());
            }
            self.traffic.log_input(buffer.get(..count).unwrap_or_default());
            let mut rest = buffer.get(..count).unwrap_or_default();
            loop {
                let now = self.elapsed();
                let (used, step) = self.session.advance(rest, now);
                rest = rest.get(used..).unwrap_or_default();
                match step {
                    Step::Read => break,
                    Step::Close => return self.say(),
                    Step::Content => self.take_content(),
                    Step::Abandon => self.message = None,
                    Step::StartTls => return Ok(()),
                    Step::Ask(question) => self.answer(question),
                }
            }
        }
    }

    fn say(&mut self) -> io::Result<()> {
        let mut output = io::stdout().lock();
        self.traffic.log_output(self.session.output());
        output.write_all(self.session.output())?;
        output.flush()?;
        let said = self.session.output().len();
        self.session.sent(said);
        Ok(())
    }

    fn answer(&mut self, question: Question) {
        let now = self.elapsed();
        match question {
            Question::Helo | Question::Mail | Question::Recipient | Question::Unknown | Question::Xclient => {
                self.session.answer(Verdict::Accept, now);
            }
            Question::Data => {
                self.message = Some(self.begin());
                self.session.begin_content(b"", now);
            }
            Question::Message => {
                self.take_content();
                let verdict = self.end();
                self.session.finish(&[verdict], now);
            }
            Question::Verify => {
                self.session.answer_with(reply(252, "2.5.2 Cannot VRFY user; try RCPT to attempt delivery"), now);
            }
            Question::Expand => {
                self.session.answer_with(reply(502, "5.7.0 Sorry, we do not allow this operation"), now);
            }
            Question::Auth | Question::AuthResponse => {
                let refusal = reply(454, "4.7.0 Temporary authentication failure");
                self.session.auth_failed(Verdict::Refuse(refusal), now);
            }
        }
    }

    fn begin(&self) -> Result<(Composer<'a>, Lines), Trouble> {
        let transaction = self.session.transaction().ok_or_else(|| (exit::SOFTWARE, "no transaction".to_owned()))?;
        let own = self.site.own_address();
        let is_chosen = transaction.sender.address().is_none_or(|one| own.is_none_or(|own| own.key() != one.key()));
        let submission = Submission {
            sender: transaction.sender.clone(),
            is_chosen,
            on_behalf_of: None,
            adopted: None,
            params: transaction.params.clone(),
            terms: terms(self.arguments),
            recipients: transaction.recipients.clone(),
        };
        // Recipients are those of the dialogue alone.
        let manner = Manner { takes_recipients: false, ..Manner::new(submission, self.arguments) };
        Ok((Composer::new(self.site, manner), Lines::new(false)))
    }

    fn take_content(&mut self) {
        let content = self.session.take_content();
        if let Some(Ok((composer, lines))) = &mut self.message {
            let mut out = Vec::new();
            lines.push(&content, &mut out);
            if let Err(trouble) = composer.push(&out) {
                self.message = Some(Err(trouble));
            }
        }
    }

    fn end(&mut self) -> Verdict {
        let filed = match self.message.take() {
            Some(Ok((composer, _))) => composer.finish().and_then(|(composed, _)| match composed {
                Composed::Filing(filing) => commit(self.site, *filing),
                Composed::Nobody(_) => Err((exit::NO_INPUT, "no recipients".to_owned())),
            }),
            Some(Err(trouble)) => Err(trouble),
            None => Err((exit::SOFTWARE, "a message ended that had not begun".to_owned())),
        };
        match filed {
            Ok(filed) => {
                if let Ok(directory) = self.site.directory() {
                    answer::ask_server(directory, filed.name(), Wait::No, false);
                }
                Verdict::AcceptWith(reply(250, &format!("2.0.0 {} Message accepted for delivery", filed.name())))
            }
            Err((exit::LATER, text)) => Verdict::Refuse(reply(452, &format!("4.3.1 {text}"))),
            Err((exit::UNAVAILABLE, text)) => Verdict::Refuse(reply(552, &format!("5.3.4 {text}"))),
            Err((_, text)) => Verdict::Refuse(reply(451, &format!("4.3.0 {text}"))),
        }
    }

    fn elapsed(&self) -> std::time::Duration {
        clock::now().saturating_duration_since(self.began)
    }
}

fn reply(code: u16, text: &str) -> Reply {
    Reply::new(ReplyCode::of(code), None, text)
}

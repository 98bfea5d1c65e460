//! The effect of each command, up to the content of a message.
//!
//! A command is first held against the state, then its arguments are read, then the driver is asked. Only the answer
//! changes the state, so a refused command leaves it as it was (RFC 5321 §4.1.4).

use std::time::Duration;

use mail::{
    AddressError, Client, Deadline, DomainName, Extension, Extensions, ForwardPath, HeloName, Hold, HoldSeconds,
    HoldTime, MailParams, MtPriority, ParamError, ParamReason, Recipient, RecipientParams, Reply, ReplyClass,
    ReplyCode, ReversePath, Submitter,
};

use super::command::{self, Command};
use super::phase::{Hello, OpenTransaction, PendingQuestion, Phase};
use super::replies::{CloseReason, Refusal, printable};
use super::session::Session;
use super::xclient;
use super::{Dialect, Note, Question, Step, Transaction, Verdict};

/// The largest number that LIMITS can say.
const LIMIT_SHOWN_MAX: u32 = 999_999;
/// The longest hold that FUTURERELEASE can say (RFC 4865 §3: nine digits).
const HOLD_SECONDS_MAX: u64 = 999_999_999;

impl Session {
    /// Carries out a command line.
    pub(super) fn command(&mut self, line: &[u8]) -> Option<Step> {
        let command = command::read(line, self.is_forgiving());
        if command == Command::Foreign {
            self.foreign(line);
            return None;
        }
        if command == Command::BadBdat {
            self.refuse(line, &Refusal::ChunkSyntax);
            self.close(CloseReason::AfterChunk);
            return None;
        }
        if let Some(refusal) = self.barrier(&command) {
            self.refuse_command(line, &command, &refusal);
            return None;
        }
        match command {
            Command::Ehlo(name) => self.hello(line, name, true),
            Command::Lhlo(name) => self.hello(line, name, true),
            Command::Helo(name) => self.hello(line, name, false),
            Command::Mail(rest) => self.mail(line, rest),
            Command::Rcpt(rest) => self.rcpt(line, rest),
            Command::Data => self.data(line),
            Command::Bdat { octets, last } => self.bdat(line, octets, last),
            Command::Auth(mechanism, initial) => {
                self.ending.after = "AUTH";
                self.begin_auth(mechanism, initial)
            }
            Command::StartTls => self.start_tls(line),
            Command::Vrfy(argument) => self.look(argument, Question::Verify),
            Command::Expn(argument) => self.look(argument, Question::Expand),
            Command::Xclient(rest) => self.begin_xclient(line, rest),
            Command::Quit => {
                self.ending.after = "QUIT";
                self.ending.quit = true;
                self.push_text(format_args!("221 2.0.0 {} closing connection\r\n", self.settings.hostname.clone()));
                self.closing();
                None
            }
            Command::Rset | Command::Noop | Command::Help => {
                self.idle(&command);
                None
            }
            Command::NotImplemented => {
                self.ending.issued_command |= line.get(..4).is_some_and(|verb| verb.eq_ignore_ascii_case(b"ETRN"));
                self.refuse(line, &Refusal::NotImplemented);
                None
            }
            Command::NoParameters(verb) => {
                self.refuse(line, &Refusal::NoParameters(verb));
                None
            }
            Command::Syntax(usage) => {
                self.refuse(line, &Refusal::Syntax(usage));
                None
            }
            // A line behind AUTH may be a password, which is for no filter.
            Command::Unknown(_) if self.asks_unknown && self.ending.after != "AUTH" => {
                self.ask(PendingQuestion::Unknown(line.into()), Question::Unknown)
            }
            Command::Unknown(verb) => {
                // The reply is noted too.
                let verb = if self.ending.after == "AUTH" { b"(line behind AUTH)" } else { verb };
                self.refuse(line, &Refusal::Unrecognized(verb));
                None
            }
            Command::Foreign | Command::BadBdat => None,
        }
    }

    /// Checks the rules that come before all commands of a kind.
    fn barrier(&self, command: &Command<'_>) -> Option<Refusal<'static>> {
        // RFC 5321 §3.1: after a 554 greeting everything but QUIT gets 503
        if self.turned_away && *command != Command::Quit {
            return Some(Refusal::TurnedAway);
        }
        // RFC 3207 §4: the commands allowed before TLS when it is demanded
        let before_tls = matches!(
            command,
            Command::Helo(_) | Command::Ehlo(_) | Command::Lhlo(_) | Command::Noop | Command::StartTls | Command::Quit
        );
        if self.settings.tls_required && self.tls.is_none() && !before_tls {
            return Some(Refusal::TlsFirst);
        }
        // RFC 4954 §6, RFC 6409 §4.3: submission demands authentication
        let wants_auth = self.settings.auth.required && self.identity.is_none();
        (wants_auth && matches!(command, Command::Mail(_))).then_some(Refusal::AuthFirst)
    }

    /// Refuses a command; the octets of a chunk that come with it are swallowed first.
    fn refuse_command(&mut self, line: &[u8], command: &Command<'_>, refusal: &Refusal<'_>) {
        match command {
            Command::Bdat { octets, .. } => self.swallow_chunk(line, *octets, 1, refusal),
            _ => self.refuse(line, refusal),
        }
    }

    fn hello(&mut self, line: &[u8], argument: &[u8], extended: bool) -> Option<Step> {
        let is_lhlo = line.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'L'));
        // RFC 2033 §4.1: LHLO replaces HELO and EHLO, which get 500
        if is_lhlo != (self.settings.dialect == Dialect::Lmtp) {
            self.refuse(line, &Refusal::Unrecognized(line.get(..4).unwrap_or(line)));
            return None;
        }
        self.ending.after = if is_lhlo {
            "LHLO"
        } else if extended {
            "EHLO"
        } else {
            "HELO"
        };
        let forgiven = || self.is_forgiving().then(|| HeloName::masked(argument)).flatten();
        let Some(name) = HeloName::new(argument).or_else(forgiven) else {
            self.refuse(line, &Refusal::HeloName);
            return None;
        };
        if self.hello.is_some() && !self.count_idle() {
            return None;
        }
        self.new_hello = Some(Hello { name, extended });
        self.ask(PendingQuestion::Helo, Question::Helo)
    }

    pub(super) fn answer_helo(&mut self, verdict: Verdict) {
        let new = self.new_hello.take();
        let own_text = match verdict {
            Verdict::Accept => None,
            Verdict::AcceptWith(reply) => Some(reply.lines().collect::<Vec<_>>().join(" ")),
            // RFC 5321 §4.1.4: after a refused EHLO the state is as before
            verdict => return self.push_refusal(verdict),
        };
        // RFC 5321 §4.1.4: EHLO clears the transaction as RSET does
        self.reset();
        self.hello = new;
        let Some(hello) = self.hello.clone() else { return };
        let text = own_text.unwrap_or_else(|| match self.client {
            Client::Network(peer) => {
                let ip = peer.ip().to_canonical();
                let tag = if ip.is_ipv6() { "IPv6:" } else { "" };
                format!("{} Hello {} [{tag}{ip}], pleased to meet you", self.settings.hostname, hello.name)
            }
            Client::Process { .. } | Client::Internal => {
                format!("{} Hello {}, pleased to meet you", self.settings.hostname, hello.name)
            }
        });
        if hello.extended {
            self.push_text(format_args!("250-{text}\r\n"));
            self.push_offer();
        } else {
            self.push_text(format_args!("250 {text}\r\n"));
        }
    }

    /// The lines of extensions in the reply to EHLO.
    // RFC 5321 §4.1.1.1; one keyword per line, HELP last
    fn push_offer(&mut self) {
        let settings = self.settings.clone();
        let limits = &settings.limits;
        // RFC 2034 §3, RFC 2920 §3.1, RFC 6152 §2, RFC 3030 §2, §3, RFC 3461 §3, RFC 6531 §3.1
        self.push_octets(b"250-ENHANCEDSTATUSCODES\r\n");
        if settings.pipelining {
            self.push_octets(b"250-PIPELINING\r\n");
        }
        self.push_octets(b"250-8BITMIME\r\n250-SMTPUTF8\r\n");
        // RFC 1870 §4
        self.push_text(format_args!("250-SIZE {}\r\n", limits.message_bytes));
        if settings.dsn {
            self.push_octets(b"250-DSN\r\n");
        }
        self.push_octets(b"250-CHUNKING\r\n250-BINARYMIME\r\n");
        if self.offers_auth() {
            self.push_text(format_args!("250-AUTH {}\r\n", settings.auth.mechanisms.join(" ")));
        }
        // RFC 3207 §4.2: not offered once TLS is active
        if settings.starttls && self.tls.is_none() {
            self.push_octets(b"250-STARTTLS\r\n");
        }
        // RFC 9422 §4.1, §4.2: a value has six digits at most
        self.push_text(format_args!("250-LIMITS RCPTMAX={}", limits.recipients.min(LIMIT_SHOWN_MAX)));
        if limits.transactions > 0 {
            self.push_text(format_args!(" MAILMAX={}", limits.transactions.min(LIMIT_SHOWN_MAX)));
        }
        self.push_octets(b"\r\n");
        if settings.mt_priority {
            // RFC 6710 §3, §9.2: no policy is named, so the default counts, which is MIXER
            self.push_octets(b"250-MT-PRIORITY\r\n");
        }
        if let Some(least) = settings.deliver_by {
            // RFC 2852 §2: the least time for mode R, if there is one
            match least.as_secs() {
                0 => self.push_octets(b"250-DELIVERBY\r\n"),
                least => self.push_text(format_args!("250-DELIVERBY {least}\r\n")),
            }
        }
        if let Some((longest, latest)) = self.holds() {
            // RFC 4865 §3: max-future-release-interval SP max-future-release-date-time
            self.push_text(format_args!("250-FUTURERELEASE {longest} {latest}\r\n"));
        }
        if settings.verify {
            self.push_octets(if settings.expand { b"250-VRFY\r\n250-EXPN\r\n" } else { b"250-VRFY\r\n" });
        }
        if self.xclient_trusted {
            self.push_text(format_args!("250-XCLIENT {}\r\n", xclient::ATTRIBUTES));
        }
        self.push_octets(b"250 HELP\r\n");
    }

    /// The extensions whose parameters may be used.
    fn offered(&self) -> Extensions {
        if !self.is_forgiving() && self.hello.as_ref().is_some_and(|hello| !hello.extended) {
            return Extensions::default();
        }
        let base = [Extension::Size, Extension::EightBitMime, Extension::BinaryMime, Extension::SmtpUtf8];
        let more = [
            (self.settings.dsn, Extension::Dsn),
            (self.offers_auth(), Extension::Auth),
            (self.settings.mt_priority, Extension::MtPriority),
            (self.settings.deliver_by.is_some(), Extension::DeliverBy),
            (self.holds().is_some(), Extension::FutureRelease),
        ];
        more.into_iter().filter(|(is_offered, _)| *is_offered).map(|(_, extension)| extension).chain(base).collect()
    }

    /// For how long, and until when, a message may be held: in this session nothing else counts than its beginning.
    // RFC 4865 §3, §4.2: an extension of submission
    fn holds(&self) -> Option<(HoldSeconds, HoldTime)> {
        let longest = self.settings.future_release.filter(|_| self.settings.dialect == Dialect::Submission)?;
        let longest = longest.as_secs().min(HOLD_SECONDS_MAX);
        let latest = self.began_unix?.as_secs().saturating_add(longest);
        let latest = i64::try_from(latest).ok().and_then(HoldTime::new)?;
        Some((u32::try_from(longest).ok().and_then(HoldSeconds::new)?, latest))
    }

    /// Whether the time a message is to be held until, or delivered by, can be kept.
    fn check_times(&self, params: &MailParams) -> Result<(), Refusal<'static>> {
        let unix = self.began_unix.unwrap_or_default().saturating_add(self.times.now);
        let unix = i64::try_from(unix.as_secs()).unwrap_or(i64::MAX);
        let held = match (params.hold, self.holds()) {
            (Some(hold), Some((longest, latest))) => {
                let fits = match hold {
                    Hold::For(seconds) => seconds <= longest,
                    Hold::Until(time) => time <= latest,
                };
                // RFC 4865 §4.2: 501 for more than was offered, and for a time that is over
                if !fits {
                    return Err(Refusal::HeldTooLong(longest, latest));
                }
                match hold {
                    Hold::For(seconds) => i64::from(seconds.get()),
                    Hold::Until(time) if time.unix_seconds() < unix => return Err(Refusal::HeldUntilPast),
                    Hold::Until(time) => time.unix_seconds() - unix,
                }
            }
            _ => 0,
        };
        let by = match params.by.map(mail::DeliverBy::deadline) {
            None => return Ok(()),
            Some(Deadline::Notify(seconds)) => i64::from(seconds),
            Some(Deadline::Return(seconds)) => {
                let least = self.settings.deliver_by.map_or(0, |least| least.as_secs());
                // RFC 2852 §3: less than was offered gets 55z
                if u64::from(seconds.get()) < least {
                    return Err(Refusal::TooSoon(least));
                }
                i64::from(seconds.get())
            }
        };
        // RFC 4865 §5.2.2: 501 in both modes; RFC 4865 §5.2.1: nor may a client say the same time twice
        if params.hold.is_some() && by <= held {
            return Err(Refusal::Parameter("BY is over before the message is released".into()));
        }
        Ok(())
    }

    fn mail(&mut self, line: &[u8], rest: &[u8]) -> Option<Step> {
        self.ending.after = "MAIL";
        self.ending.issued_command = true;
        if self.hello.is_none() && !self.is_hello_optional() {
            self.refuse(line, &Refusal::HeloFirst);
            return None;
        }
        self.client_refusal = None;
        // RFC 5321 §4.1.4: MAIL within a transaction is 503
        if self.open.is_some() {
            self.refuse(line, &Refusal::NestedMail);
            return None;
        }
        let max = self.settings.limits.transactions;
        if max > 0 && self.counts.transactions >= max {
            self.limit("smtp.transactions_max", CloseReason::TooManyTransactions);
            return None;
        }
        match self.read_mail(rest) {
            Ok(transaction) => {
                self.new_transaction = Some(transaction);
                self.ask(PendingQuestion::Mail, Question::Mail)
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::MessageSize(_)) {
                    self.note(Note::Limit("message.size_max"));
                }
                self.refuse(line, &refusal);
                None
            }
        }
    }

    fn read_mail(&self, rest: &[u8]) -> Result<Transaction, Refusal<'static>> {
        let rest = &*self.path(rest);
        let (sender, rest) = ReversePath::split(rest).map_err(|error| Refusal::SenderSyntax(why(&error)))?;
        separated(rest)?;
        let mut params = MailParams::parse(rest).map_err(|error| parameter(&error))?;
        not_offered(params.extensions().without(self.offered()), rest)?;
        // RFC 6531 §3.4: a non-ASCII address needs SMTPUTF8
        if !params.smtputf8 && sender.address().is_some_and(|address| !address.is_ascii()) {
            return Err(Refusal::NeedsSmtpUtf8);
        }
        // RFC 1870 §6.1
        if params.size.is_some_and(|size| size > self.settings.limits.message_bytes) {
            return Err(Refusal::MessageSize(self.settings.limits.message_bytes));
        }
        // RFC 4954 §5: a client that is not trusted vouches for no submitter
        if params.auth.is_some() && self.identity.is_none() {
            params.auth = Some(Submitter::Unknown);
        }
        self.check_times(&params)?;
        Ok(Transaction { sender, params, recipients: Vec::new() })
    }

    /// Grants priorities above zero to trusted clients; others get the usual one. Returns the requested priority where
    /// it is not granted.
    // RFC 6710 §4.1: no priority above zero for clients that are not trusted
    fn lower_priority(&mut self) -> Option<MtPriority> {
        let is_own = self.is_own();
        let transaction = self.new_transaction.as_mut().filter(|_| !is_own)?;
        let asked = transaction.params.mt_priority.filter(|priority| priority.get() > 0)?;
        transaction.params.mt_priority = Some(MtPriority::default());
        Some(asked)
    }

    pub(super) fn answer_mail(&mut self, verdict: Verdict, now: Duration) {
        let lowered = self.lower_priority();
        let transaction = self.new_transaction.take();
        match (verdict, transaction) {
            (Verdict::Accept, Some(transaction)) => {
                // RFC 6710 §4.1: X.3.6, the new priority, a space, and words
                match lowered {
                    Some(asked) => self.push_text(format_args!(
                        "250 2.3.6 {} is the new priority, {asked} needs a login; {}... Sender ok\r\n",
                        MtPriority::default(),
                        transaction.sender,
                    )),
                    None => self.push_text(format_args!("250 2.1.0 {}... Sender ok\r\n", transaction.sender)),
                }
                self.begin(transaction, now);
            }
            (Verdict::AcceptWith(reply), Some(transaction)) => {
                self.push(&reply);
                self.begin(transaction, now);
            }
            (verdict, _) => {
                self.transaction_over();
                self.push_refusal(verdict);
            }
        }
    }

    fn begin(&mut self, transaction: Transaction, now: Duration) {
        self.counts.transactions = self.counts.transactions.saturating_add(1);
        self.times.transaction_began(now);
        self.open = Some(OpenTransaction { transaction, content: None });
    }

    fn rcpt(&mut self, line: &[u8], rest: &[u8]) -> Option<Step> {
        self.ending.after = "RCPT";
        if self.repeats_refusal(line) {
            return None;
        }
        let refusal = match &self.open {
            None => Some(Refusal::MailFirst("RCPT")),
            Some(open) if open.content.is_some() => Some(Refusal::DuringChunks("RCPT")),
            Some(open) if open.transaction.recipients.len() >= self.settings.limits.recipients as usize => {
                self.note(Note::Limit("message.recipients_max"));
                Some(Refusal::TooManyRecipients)
            }
            Some(_) => None,
        };
        match refusal.map_or_else(|| self.read_rcpt(rest), Err) {
            Ok(recipient) => {
                self.candidate = Some(recipient);
                self.ask(PendingQuestion::Recipient, Question::Recipient)
            }
            Err(refusal) => {
                self.refuse(line, &refusal);
                None
            }
        }
    }

    /// Answers a command behind a MAIL that was refused for the client as that was answered. False: there was none.
    pub(super) fn repeats_refusal(&mut self, line: &[u8]) -> bool {
        let Some(reply) = self.client_refusal.clone().filter(|_| self.open.is_none()) else { return false };
        self.push(&reply);
        self.refused(line, reply);
        true
    }

    fn read_rcpt(&self, rest: &[u8]) -> Result<Recipient, Refusal<'static>> {
        let rest = &*self.path(rest);
        let (path, rest) = ForwardPath::split(rest).map_err(|error| Refusal::RecipientSyntax(why(&error)))?;
        separated(rest)?;
        let params = RecipientParams::parse(rest).map_err(|error| parameter(&error))?;
        not_offered(params.extensions().without(self.offered()), rest)?;
        // RFC 5321 §4.5.1: postmaster without a domain is this host's
        let host = DomainName::new(&self.settings.hostname).or_else(|_| DomainName::new("localhost"));
        let address = host.and_then(|host| path.into_address(&host)).map_err(|_| Refusal::NoSuchHere)?;
        let smtputf8 = self.transaction().is_some_and(|transaction| transaction.params.smtputf8);
        if !smtputf8 && !address.is_ascii() {
            return Err(Refusal::NeedsSmtpUtf8);
        }
        Ok(Recipient { address, params })
    }

    pub(super) fn answer_recipient(&mut self, verdict: Verdict) {
        let candidate = self.candidate.take();
        let (Some(recipient), Some(open)) = (candidate, &mut self.open) else { return };
        match verdict {
            Verdict::Accept => {
                let address = recipient.address.clone();
                open.transaction.recipients.push(recipient);
                self.push_text(format_args!("250 2.1.5 <{address}>... Recipient ok\r\n"));
            }
            Verdict::AcceptWith(reply) => {
                open.transaction.recipients.push(recipient);
                self.push(&reply);
            }
            Verdict::Refuse(reply) => {
                self.push(&reply);
                if reply.code().class() == ReplyClass::Permanent {
                    self.counts.refused_recipients = self.counts.refused_recipients.saturating_add(1);
                    if self.counts.refused_recipients >= self.settings.limits.refused_recipients {
                        self.limit("smtp.refused_recipients_max", CloseReason::TooManyRefused);
                    }
                }
            }
            Verdict::Close(reply) => {
                self.push(&reply);
                self.closing();
            }
        }
    }

    /// Gives the driver's refusal.
    pub(super) fn push_refusal(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Refuse(reply) => {
                self.push(&reply);
                if reply.code().class() == ReplyClass::Permanent {
                    self.count_error();
                }
            }
            Verdict::Close(reply) => {
                self.push(&reply);
                self.closing();
            }
            Verdict::Accept | Verdict::AcceptWith(_) => {}
        }
    }

    fn start_tls(&mut self, line: &[u8]) -> Option<Step> {
        self.ending.after = "STARTTLS";
        let refusal = if self.tls.is_some() {
            Refusal::TlsActive
        } else if !self.settings.starttls {
            Refusal::NotImplemented
        } else if self.open.is_some() {
            Refusal::DuringTransaction("STARTTLS")
        } else {
            // RFC 3207 §4
            self.push_octets(b"220 2.0.0 Ready to start TLS\r\n");
            self.phase = Phase::Handshake;
            return Some(Step::StartTls);
        };
        self.refuse(line, &refusal);
        None
    }

    // RFC 5321 §3.5.1, §3.5.3, §7.3: VRFY may answer 252, EXPN may be refused
    fn look(&mut self, argument: &[u8], question: Question) -> Option<Step> {
        self.ending.issued_command = true;
        let is_verify = question == Question::Verify;
        self.ending.after = if is_verify { "VRFY" } else { "EXPN" };
        if !self.count_idle() {
            return None;
        }
        let argument = str::from_utf8(argument).ok().filter(|text| !text.contains(char::is_control));
        let Some(argument) = argument else {
            self.refuse(b"", &Refusal::ControlCharacter);
            return None;
        };
        if self.settings.verify && (is_verify || self.settings.expand) {
            argument.clone_into(&mut self.argument);
            return self.ask(PendingQuestion::Look, question);
        }
        let argument = printable(argument.as_bytes()).into();
        let reply = match is_verify {
            true => Reply::new(ReplyCode::of(252), None, "2.5.2 Cannot VRFY user; try RCPT to attempt delivery"),
            false => Refusal::NoExpand.reply(&self.settings.limits),
        };
        self.push(&reply);
        self.note(Note::NotVerified { question, argument, reply });
        if !is_verify {
            self.count_error();
        }
        None
    }

    pub(super) fn answer_unknown(&mut self, line: &[u8], verdict: Verdict) {
        match verdict {
            Verdict::Accept | Verdict::AcceptWith(_) => {
                let verb =
                    if let Command::Unknown(verb) = command::read(line, self.is_forgiving()) { verb } else { line };
                self.refuse(line, &Refusal::Unrecognized(verb));
            }
            refusal => {
                let is_counted =
                    matches!(&refusal, Verdict::Refuse(reply) if reply.code().class() == ReplyClass::Permanent);
                self.push_refusal(refusal);
                // A temporary refusal is an error, too: the client says what no server takes.
                if !is_counted {
                    self.count_error();
                }
            }
        }
    }

    fn begin_xclient(&mut self, line: &[u8], rest: &[u8]) -> Option<Step> {
        let refusal = if !self.xclient_trusted {
            Refusal::Unrecognized(b"XCLIENT")
        } else if self.open.is_some() {
            Refusal::DuringTransaction("XCLIENT")
        } else {
            match xclient::read(rest, &self.client) {
                Ok(attributes) => {
                    self.xclient = Some(attributes);
                    return self.ask(PendingQuestion::Xclient, Question::Xclient);
                }
                Err(why) => Refusal::XclientSyntax(why),
            }
        };
        self.refuse(line, &refusal);
        None
    }

    pub(super) fn answer_xclient(&mut self, verdict: Verdict) {
        let Some(attributes) = self.xclient.take() else { return };
        match verdict {
            Verdict::Accept => self.push_greeting(),
            Verdict::AcceptWith(reply) => self.push(&reply),
            verdict => return self.push_refusal(verdict),
        }
        self.client_refusal = None;
        if let Some(address) = attributes.address {
            self.client = Client::Network(address);
        }
        let extended = attributes.esmtp.unwrap_or(true);
        self.hello = attributes.helo.flatten().map(|name| Hello { name, extended });
        self.identity = attributes.login.flatten();
    }

    fn idle(&mut self, command: &Command<'_>) {
        if !self.count_idle() {
            return;
        }
        match command {
            // RFC 5321 §4.1.1.5
            Command::Rset => {
                self.ending.after = "RSET";
                self.reset();
                self.push_octets(b"250 2.0.0 Reset state\r\n");
            }
            // RFC 5321 §4.1.1.9
            Command::Noop => self.push_octets(b"250 2.0.0 OK\r\n"),
            // RFC 5321 §4.1.1.8
            _ => {
                self.push_octets(
                    b"214-2.0.0 This is mailrace\r\n\
                      214-2.0.0 Commands: HELO EHLO LHLO MAIL RCPT DATA BDAT RSET NOOP\r\n",
                );
                self.push_octets(match (self.settings.verify, self.settings.expand) {
                    (false, _) => b"214-2.0.0 HELP AUTH STARTTLS QUIT\r\n".as_slice(),
                    (true, false) => b"214-2.0.0 VRFY HELP AUTH STARTTLS QUIT\r\n",
                    (true, true) => b"214-2.0.0 VRFY EXPN HELP AUTH STARTTLS QUIT\r\n",
                });
                self.push_octets(b"214 2.0.0 End of HELP info\r\n");
            }
        }
    }

    /// Counts a command that does nothing; false if the session has closed for it.
    pub(super) fn count_idle(&mut self) -> bool {
        self.counts.idle = self.counts.idle.saturating_add(1);
        let fits = self.counts.idle <= self.settings.limits.idle_commands;
        if !fits {
            self.limit("smtp.idle_commands_max", CloseReason::TooManyIdle);
        }
        fits
    }

    pub(super) fn is_lmtp(&self) -> bool {
        self.settings.dialect == Dialect::Lmtp
    }
}

fn why(error: &AddressError) -> String {
    error.to_string()
}

/// Parameters follow a space.
// RFC 5321 §4.1.1.2: "MAIL FROM:" Reverse-path [SP Mail-parameters]
fn separated(rest: &[u8]) -> Result<(), Refusal<'static>> {
    match rest.first() {
        None | Some(b' ') => Ok(()),
        Some(_) => Err(Refusal::Parameter("a space is missing behind the address".into())),
    }
}

fn parameter(error: &ParamError) -> Refusal<'static> {
    match error.reason() {
        ParamReason::Unknown => Refusal::UnknownParameter(error.to_string()),
        ParamReason::Syntax | ParamReason::Duplicate | ParamReason::Value => Refusal::Parameter(error.to_string()),
    }
}

// RFC 5321 §4.1.1.11: a parameter of an extension that is not offered is as unknown as any
fn not_offered(extensions: Extensions, given: &[u8]) -> Result<(), Refusal<'static>> {
    let Some(extension) = extensions.iter().next() else { return Ok(()) };
    let mut words = given.split(|byte| *byte == b' ').filter_map(|word| word.split(|byte| *byte == b'=').next());
    let is_its = |word: &&[u8]| extension.parameters().iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    // The reply names the keyword that the client wrote, which need not be the name of the extension.
    let typed = words.find(is_its).map(String::from_utf8_lossy);
    let name = typed.unwrap_or_else(|| extension.keyword().into());
    Err(Refusal::UnknownParameter(format!("{name} parameter is not known here")))
}

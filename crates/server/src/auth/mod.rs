//! AUTH: the driver's side of the exchanges that `smtp` carries.
//!
//! The stop is admit: a session that asks [`smtp::server::Question::Auth`] gets an [`Exchange`], feeds it the
//! client's responses and tells the session the [`Outcome`]. Users come from a password file, or from a program for
//! those who are not in it. Checking a hash costs 10 to 500 ms of CPU: it happens on the runtime's blocking threads,
//! a bounded number at once, so that a flood of AUTH slows down AUTH and nothing else. Not here: the lines and base64
//! of SMTP, and the right to relay.
//!
//! Invariants: success comes only from a hash, a proof or a program that accepts the password; a wrong password and
//! an unknown user take the same time and get the same reply; no secret is in a message, an error or a `Debug` text;
//! memory that held a password is wiped when it is dropped. Beyond the limits of failures (`attempts`) no password is
//! checked.

mod attempts;
mod dialog;
pub mod fuzz;
mod hash;
mod prepare;
mod program;
mod scram;
#[cfg(test)]
mod tests;
mod turns;
mod users;

pub use hash::{HashError, Scheme, hash_password};

use crate::config;
use arc_swap::ArcSwap;
use attempts::{AttemptLimits, Attempts, Limited};
use dialog::{Dialog, DialogStep, MECHANISMS};
use mail::{EnhancedCode, Reply, ReplyCode};
use observe::{Limit, SaslError};
use os::clock;
use os::safe_file::Trust;
use smtp::server::Verdict;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use turns::{Turn, Turns};
use users::{Answer, UserFile, Users};
use zeroize::Zeroizing;

/// More are forgotten, the oldest first, if the caller does not fetch them.
const PROBLEMS_MAX: usize = 100;

/// Bounds that have no key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthLimits {
    /// Failed exchanges in a session; with the last the session is closed with 421 4.7.0. Default 3.
    pub failures_max: u8,
    /// Hashes checked at once. Default half of the cores, so that mail keeps the other half.
    pub checks_max: usize,
    /// Programs running at once. Default 16.
    pub programs_max: usize,
    /// How long a check waits for its turn; then 454 4.7.0. Default 5 s.
    pub wait_max: Duration,
}

impl Default for AuthLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { failures_max: 3, checks_max: cores.div_ceil(2), programs_max: 16, wait_max: Duration::from_secs(5) }
    }
}

/// A problem that the operator should know: a broken line, a file that every user can read, a setting that cannot
/// work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    object: String,
    line: Option<u32>,
    reason: String,
    is_refusal: bool,
}

impl Problem {
    fn new(object: impl fmt::Display, line: Option<u32>, reason: impl Into<String>) -> Self {
        Self { object: object.to_string(), line, reason: reason.into(), is_refusal: false }
    }

    /// Returns whether the password file was not read because others can write it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        self.is_refusal
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} line {line}: {}", self.object, self.reason),
            None => write!(f, "{}: {}", self.object, self.reason),
        }
    }
}

impl std::error::Error for Problem {}

/// Checks logins. The server has one, shared by all sessions; a changed `[auth]` section needs a new one.
pub struct Authenticator {
    mechanisms: Vec<&'static str>,
    without_tls: bool,
    file: Option<Arc<UserFile>>,
    program: Vec<String>,
    program_time_max: Duration,
    limits: AuthLimits,
    /// Key of the made-up SCRAM keys for unknown users.
    secret: [u8; scram::KEY_OCTETS],
    checks: Turns,
    lookups: Arc<Semaphore>,
    programs: Turns,
    /// Failed logins of all sessions.
    attempts: ArcSwap<Counted>,
    problems: Mutex<Vec<Problem>>,
}

/// Counters of failed logins, and the time from which they count.
struct Counted {
    attempts: Attempts,
    began: Instant,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("mechanisms", &self.mechanisms).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Reads the password file. Broken lines of it wait in [`Self::take_problems`]. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read, or a setting cannot work; all that is wrong.
    pub fn open(settings: &config::Auth) -> Result<Arc<Self>, Vec<Problem>> {
        Self::open_with(settings, AuthLimits::default())
    }

    /// Does the same as [`Self::open`] for a server with a user of its own, who may own the password file as root
    /// may.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_for(config: &config::Config) -> Result<Arc<Self>, Vec<Problem>> {
        let trust = Trust::secrets(&config.server.user, &config.server.group);
        Self::build(&config.auth, AuthLimits::default(), trust)
    }

    /// [`Self::open`] with other bounds.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(settings: &config::Auth, limits: AuthLimits) -> Result<Arc<Self>, Vec<Problem>> {
        Self::build(settings, limits, Trust::secrets("", ""))
    }

    fn build(settings: &config::Auth, limits: AuthLimits, trust: Trust) -> Result<Arc<Self>, Vec<Problem>> {
        let mut errors = Vec::new();
        let mut wanted = Vec::new();
        for name in &settings.mechanisms {
            match MECHANISMS.iter().find(|known| name.eq_ignore_ascii_case(known)) {
                Some(known) => wanted.push(*known),
                None => errors.push(Problem::new(
                    "auth.mechanisms",
                    None,
                    format!("{name:?} is not known; choose from {}", MECHANISMS.join(", ")),
                )),
            }
        }
        let (file, problems) = match settings.file.as_deref().map(|path| UserFile::open(path, trust)) {
            Some(Ok((file, problems))) => (Some(Arc::new(file)), problems),
            Some(Err(problem)) => {
                errors.push(problem);
                (None, Vec::new())
            }
            None => (None, Vec::new()),
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Arc::new(Self {
            mechanisms: MECHANISMS.into_iter().filter(|known| wanted.contains(known)).collect(),
            without_tls: settings.without_tls,
            file,
            program: settings.program.clone(),
            program_time_max: settings.program_time_max,
            limits,
            secret: scram::random_octets(),
            checks: Turns::new(limits.checks_max),
            lookups: Arc::new(Semaphore::new(4)),
            programs: Turns::new(limits.programs_max),
            attempts: ArcSwap::from_pointee(Counted {
                attempts: Attempts::new(AttemptLimits::new(settings, &[])),
                began: clock::now(),
            }),
            problems: Mutex::new(problems),
        }))
    }

    /// Exempts these networks from the limit per client, as `accept.exempt` does; keeps the counts of `before`, if
    /// that is some.
    pub(crate) fn count_attempts(&self, settings: &config::Auth, exempt: &[ipnet::IpNet], before: Option<&Self>) {
        if let Some(before) = before {
            self.attempts.store(before.attempts.load_full());
        }
        self.attempts.load().attempts.set_limits(AttemptLimits::new(settings, exempt));
    }

    /// Returns the mechanisms to offer, strongest first: none in clear unless `auth.without_tls`, none without users,
    /// and SCRAM-SHA-256 only if a user has keys for it.
    #[must_use]
    pub fn mechanisms(&self, is_encrypted: bool) -> Vec<&'static str> {
        if !is_encrypted && !self.without_tls {
            return Vec::new();
        }
        let users = self.file.as_ref().map(|file| file.users());
        let has_scram = users.as_ref().is_some_and(|users| users.have_scram());
        let has_passwords = !self.program.is_empty() || users.is_some_and(|users| users.len() > 0);
        let is_possible = |name: &&str| if *name == "SCRAM-SHA-256" { has_scram } else { has_passwords };
        self.mechanisms.iter().copied().filter(is_possible).collect()
    }

    /// Reads the password file again, changed or not; problems wait in [`Self::take_problems`], and the present users
    /// stay if it cannot be read. A changed file is also noticed at the next exchange. Blocks on the disk.
    pub fn reload(&self) {
        let mut problems = Vec::new();
        if let Some(file) = &self.file {
            file.reload(&mut problems);
        }
        self.report(problems);
    }

    /// Returns how many users the password file holds.
    #[must_use]
    pub fn users(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.users().len())
    }

    /// Returns the problems found since the last call, for the log; 100 at most are kept.
    pub fn take_problems(&self) -> Vec<Problem> {
        std::mem::take(&mut *self.problems.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins an exchange for a session.
    #[must_use]
    pub fn exchange(self: &Arc<Self>, context: ExchangeContext) -> Exchange {
        Exchange { authenticator: Arc::clone(self), context, dialog: Dialog::default() }
    }

    /// Returns the counter of failures for a new session.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures { left: self.limits.failures_max.max(1), pause: Duration::from_secs(1) }
    }

    fn report(&self, new: Vec<Problem>) {
        if new.is_empty() {
            return;
        }
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        problems.extend(new);
        let too_many = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.drain(..too_many);
    }

    /// Returns whether a password of this client and user may be checked; whether it goes first.
    fn admit(&self, client: Option<IpAddr>, user: &str) -> Result<bool, AuthFailure> {
        let counted = self.attempts.load();
        let now = clock::now().saturating_duration_since(counted.began);
        counted.attempts.admit(client, user, now).map_err(AuthFailure::limited)
    }

    /// Counts the result of a login. An error that says nothing about the password is not counted.
    fn record(&self, client: Option<IpAddr>, user: &str, result: Result<(), &AuthFailure>) {
        let counted = self.attempts.load();
        let now = clock::now().saturating_duration_since(counted.began);
        match result {
            Ok(()) => counted.attempts.record_success(client, user, now),
            Err(failure) if failure.kind == FailureKind::Credentials => {
                counted.attempts.record_failure(client, user, now)
            }
            Err(_) => {}
        }
    }

    /// Waits for a turn of a client. Asks the limits again after the wait, so that failures of the meantime count and
    /// no password is checked beyond them.
    async fn turn(&self, turns: &Turns, limit: &str, client: Option<IpAddr>, user: &str) -> Result<Turn, AuthFailure> {
        let is_first = self.admit(client, user)?;
        let owner = client.map(crate::client_network::ClientNetwork::new);
        let turn = tokio::time::timeout(self.limits.wait_max, turns.take(owner, is_first));
        let Ok(Some(turn)) = turn.await else { return Err(self.too_busy(limit)) };
        self.admit(client, user)?;
        Ok(turn)
    }

    /// Runs `work` with the users on a thread that may block, and keeps its problems for the log. `turn` ends with
    /// the work.
    async fn with_users<T: Send + 'static>(
        &self,
        file: &Arc<UserFile>,
        turn: impl Send + 'static,
        work: impl FnOnce(&Users) -> T + Send + 'static,
    ) -> Result<T, AuthFailure> {
        let file = Arc::clone(file);
        let job = tokio::task::spawn_blocking(move || {
            let mut problems = Vec::new();
            let users = file.fresh_users(&mut problems);
            let result = work(&users);
            // The turn ends with the work, not with the session that may have gone away.
            drop(turn);
            (result, problems)
        });
        match job.await {
            Ok((result, problems)) => {
                self.report(problems);
                Ok(result)
            }
            Err(error) => Err(AuthFailure::temporary(format!("the check broke off: {error}"))),
        }
    }

    fn too_busy(&self, limit: &str) -> AuthFailure {
        AuthFailure::temporary(format!("{limit} checks are running and none ended within {:?}", self.limits.wait_max))
    }

    async fn check(
        &self,
        client: Option<IpAddr>,
        user: String,
        password: Zeroizing<String>,
    ) -> Result<String, AuthFailure> {
        let has_program = !self.program.is_empty();
        let mut answer = Answer::Unknown;
        if let Some(file) = &self.file {
            let turn = self.turn(&self.checks, "auth.checks_max", client, &user).await?;
            let (user, password) = (user.clone(), password.clone());
            let work = move |users: &Users| users.check(&user, &password, has_program);
            answer = self.with_users(file, turn, work).await?;
        }
        if answer == Answer::Unknown && has_program {
            let _turn = self.turn(&self.programs, "auth.programs_max", client, &user).await?;
            answer = program::check(&self.program, self.program_time_max, &user, &password).await;
        }
        let result = match answer {
            Answer::Right => Ok(()),
            Answer::Wrong | Answer::Unknown => {
                Err(AuthFailure { kind: FailureKind::Credentials, why: "wrong password or unknown user".into() })
            }
            Answer::Failed(reason) => Err(AuthFailure::temporary(reason)),
        };
        self.record(client, &user, result.as_ref().copied());
        result.map(|()| user)
    }

    async fn scram_keys(&self, client: Option<IpAddr>, user: &str) -> Result<scram::Keys, AuthFailure> {
        let none =
            || AuthFailure { kind: FailureKind::Mechanism, why: "SCRAM-SHA-256 without a user who has keys".into() };
        let file = self.file.as_ref().ok_or_else(none)?;
        self.admit(client, user)?;
        let turn = tokio::time::timeout(self.limits.wait_max, Arc::clone(&self.lookups).acquire_owned());
        let Ok(Ok(turn)) = turn.await else { return Err(self.too_busy("auth.checks_max")) };
        let (user, secret) = (user.to_owned(), self.secret);
        self.with_users(file, turn, move |users| users.scram(&user, &secret)).await?.ok_or_else(none)
    }
}

/// Facts of the session that an exchange needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeContext {
    /// The connection is encrypted.
    pub is_encrypted: bool,
    /// The address of the client, by which failures are counted; `None`: it has none.
    pub client: Option<IpAddr>,
}

/// One AUTH command, up to its end.
#[derive(Debug)]
pub struct Exchange {
    authenticator: Arc<Authenticator>,
    context: ExchangeContext,
    dialog: Dialog,
}

/// Result of a step of the exchange, for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// [`smtp::server::Session::auth_challenge`], then [`Exchange::respond`].
    Challenge(Vec<u8>),
    /// [`smtp::server::Session::auth_succeeded`].
    Success {
        /// The user, after SASLprep.
        identity: Box<str>,
    },
    /// [`Failures::verdict`], then [`smtp::server::Session::auth_failed`].
    Failed(AuthFailure),
}

impl Exchange {
    /// Returns the user name that the client claims, for the log; `None`: it has not sent one. The name holds no
    /// password.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.dialog.user()
    }

    /// Starts an exchange with the parameters of AUTH: the mechanism, and the decoded initial response, if there was
    /// one.
    ///
    /// # Cancel safety
    /// A dropped future ends the exchange without an outcome. A hash whose check has begun is checked to its end, so
    /// that clients that hang up cannot have more checked than the limit.
    pub async fn start(&mut self, mechanism: &str, initial: Option<&[u8]>) -> Outcome {
        let offered = self.authenticator.mechanisms(self.context.is_encrypted);
        if !offered.iter().any(|name| mechanism.eq_ignore_ascii_case(name)) {
            // RFC 4954 §6: 538 when the mechanism would be offered under encryption
            let encrypted = self.authenticator.mechanisms(true);
            let kind = match encrypted.iter().any(|name| mechanism.eq_ignore_ascii_case(name)) {
                true => FailureKind::Encryption,
                false => FailureKind::Mechanism,
            };
            return Outcome::Failed(AuthFailure { kind, why: "a mechanism that was not offered".into() });
        }
        let next = self.dialog.start(mechanism, initial);
        self.follow(next).await
    }

    /// Goes on with a response of the client, decoded. A client that gives up (`*`) drops the exchange.
    ///
    /// # Cancel safety
    /// As for [`Self::start`].
    pub async fn respond(&mut self, response: &[u8]) -> Outcome {
        let next = self.dialog.respond(response);
        self.follow(next).await
    }

    async fn follow(&mut self, mut next: DialogStep) -> Outcome {
        let client = self.context.client;
        loop {
            return match next {
                DialogStep::Challenge(challenge) => Outcome::Challenge(challenge),
                DialogStep::Check { user, password } => match self.authenticator.check(client, user, password).await {
                    Ok(user) => Outcome::Success { identity: user.into() },
                    Err(failure) => Outcome::Failed(failure),
                },
                DialogStep::Keys(first) => match self.authenticator.scram_keys(client, &first.user).await {
                    Ok(keys) => {
                        next = self.dialog.keys(first, keys, &scram::nonce());
                        continue;
                    }
                    Err(failure) => Outcome::Failed(failure),
                },
                DialogStep::Success(user) => {
                    self.authenticator.record(client, &user, Ok(()));
                    Outcome::Success { identity: user.into() }
                }
                DialogStep::Failed(failure) => {
                    if let Some(user) = self.dialog.user() {
                        self.authenticator.record(client, user, Err(&failure));
                    }
                    Outcome::Failed(failure)
                }
            };
        }
    }
}

/// Why an exchange failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFailure {
    /// Class of the failure, which determines the reply.
    pub kind: FailureKind,
    /// For the log; no secrets.
    pub why: Box<str>,
}

/// Class of a failure, each with its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// 535 5.7.8: password, user or authorization identity.
    Credentials,
    /// 501 5.5.2: no message of the mechanism.
    Malformed,
    /// 504 5.5.4: the mechanism is not offered.
    Mechanism,
    /// 538 5.7.11: the mechanism is offered only under TLS.
    Encryption,
    /// 454 4.7.0: too busy, or a program or hash that cannot be asked.
    Temporary,
    /// 454 4.7.0: too many failures before; nothing was checked.
    Limited {
        /// Which limit was reached.
        limit: Limit,
        /// Its value.
        max: u32,
    },
}

impl AuthFailure {
    fn temporary(why: String) -> Self {
        Self { kind: FailureKind::Temporary, why: why.into() }
    }

    fn limited(Limited { limit, max }: Limited) -> Self {
        let why = format!("not checked: {} = {max} reached", limit.name());
        Self { kind: FailureKind::Limited { limit, max }, why: why.into() }
    }

    /// Returns the limit of failures that was reached before, if that is why.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self.kind {
            FailureKind::Limited { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Returns what a library of SASL would say. A check that a limit forbids counts as a wrong password.
    #[must_use]
    pub fn sasl_error(&self) -> SaslError {
        match self.kind {
            FailureKind::Credentials | FailureKind::Limited { .. } => SaslError::Credentials,
            FailureKind::Malformed => SaslError::Protocol,
            FailureKind::Mechanism | FailureKind::Encryption => SaslError::Mechanism,
            FailureKind::Temporary => SaslError::Generic,
        }
    }

    /// Returns whether it may work later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.kind == FailureKind::Temporary
    }

    // RFC 4954 §6
    fn reply(&self) -> Reply {
        match self.kind {
            FailureKind::Credentials => reply(535, permanent(7, 8), "Authentication credentials invalid"),
            FailureKind::Malformed => reply(501, permanent(5, 2), "Cannot decode the response"),
            FailureKind::Mechanism => reply(504, permanent(5, 4), "Mechanism not offered"),
            FailureKind::Encryption => reply(538, permanent(7, 11), "Encryption required for this mechanism"),
            FailureKind::Limited { .. } => {
                reply(454, transient(7, 0), "Too many failed authentications, try again later")
            }
            FailureKind::Temporary => reply(454, transient(7, 0), "Temporary authentication failure"),
        }
    }
}

fn reply(code: u16, enhanced: EnhancedCode, text: &str) -> Reply {
    Reply::new(ReplyCode::of(code), Some(enhanced), text)
}

const fn permanent(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(mail::Outcome::Permanent, subject, detail)
}

const fn transient(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(mail::Outcome::Transient, subject, detail)
}

/// The failures of one session: slower each time, and then closed.
#[derive(Clone, Debug)]
pub struct Failures {
    left: u8,
    pause: Duration,
}

impl Failures {
    /// Returns the answer to a failed exchange, for [`smtp::server::Session::auth_failed`], and how long to wait
    /// before it is sent: 1 s, 2 s, 4 s and so on up to 16 s. Temporary failures neither count nor wait.
    pub fn verdict(&mut self, failure: &AuthFailure) -> (Verdict, Duration) {
        if failure.is_temporary() {
            return (Verdict::Refuse(failure.reply()), Duration::ZERO);
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(Duration::from_secs(16));
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return (Verdict::Close(reply(421, transient(7, 0), "Too many failed authentications")), pause);
        }
        (Verdict::Refuse(failure.reply()), pause)
    }
}

/// Asks as a client with PLAIN would, for an operator who tries a password. Blocks; not to be called from async code.
///
/// # Errors
/// `Err(None)`: the password is wrong or the user unknown. `Err(Some(reason))`: it could not be found out.
pub fn test_password(authenticator: &Arc<Authenticator>, user: &str, password: &str) -> Result<(), Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Some(format!("cannot start a runtime: {error}")))?;
    let user = prepare::user(user).ok_or_else(|| Some(prepare::BAD_USER.to_owned()))?;
    let password = prepare::password(password).ok_or_else(|| Some(prepare::BAD_PASSWORD.to_owned()))?;
    match runtime.block_on(authenticator.check(None, user, password)) {
        Ok(_) => Ok(()),
        Err(failure) if failure.is_temporary() => Err(Some(failure.why.into())),
        Err(_) => Err(None),
    }
}

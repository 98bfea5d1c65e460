//! `mailrace sink`: a server that speaks the same protocol and keeps nothing.
//!
//! For load tests, and for trying how a sender bears a slow or refusing host. The code of the sessions is the server's
//! own.

use crate::exit::{Exit, Failure};
use crate::serve::{die_with_parent, say_ready, start_failure};
use clap::Args;
use server::config;
use server::sink::{Behaviour, Point, SinkRefusal};
use server::start::Prepared;
use std::time::Duration;

/// The end of `--help`.
pub(crate) const HELP: &str = "\
Points of a transaction: helo, mail, rcpt, data, dot. A refusal is POINT:CODE[:PERCENT]; \"rcpt:450:10\" answers every tenth
RCPT with 450.

Exit status:
   0  ended by a signal
  64  wrong arguments
  69  the address cannot be had
  78  certificate or key cannot be used";

/// Takes mail and forgets it.
#[derive(Debug, Args)]
pub(crate) struct SinkArguments {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2626")]
    listen: String,
    /// Wait before the greeting
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0")]
    greeting_delay: Duration,
    /// Wait before replies
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0")]
    delay: Duration,
    /// Wait only at these points
    #[arg(long, value_name = "POINT", value_delimiter = ',')]
    delay_at: Vec<Point>,
    /// Refuse at a point
    #[arg(long, value_name = "POINT:CODE[:PERCENT]", value_delimiter = ',')]
    refuse: Vec<SinkRefusal>,
    /// Never answer at this point
    #[arg(long, value_name = "POINT")]
    hang: Option<Point>,
    /// Speak LMTP
    #[arg(long)]
    lmtp: bool,
    /// Certificate for STARTTLS
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<String>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<String>,
    /// Die when the process that started this one does
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Runs it to its end.
///
/// # Errors
/// It could not be started.
pub(crate) fn run(arguments: SinkArguments) -> Result<Exit, Failure> {
    if arguments.with_parent {
        die_with_parent()?;
    }
    let mut listen = format!("listen=[{{address={:?}", arguments.listen);
    if arguments.lmtp {
        listen.push_str(", protocol=\"lmtp\"");
    }
    // The sink prints its counts at the end and no line for each message.
    let mut overrides = ["relay.from=[\"0.0.0.0/0\", \"::/0\"]", "message.size_max=\"1GiB\"", "log.level=0"]
        .map(str::to_owned)
        .to_vec();
    if let (Some(certificate), Some(key)) = (&arguments.certificate, &arguments.key) {
        listen.push_str(", tls=\"starttls\"");
        overrides.push(format!("tls.certificate={certificate:?}"));
        overrides.push(format!("tls.key={key:?}"));
    }
    overrides.push(format!("{listen}}}]"));
    let loaded = config::load("", None, &overrides, &config::this_machine())
        .map_err(|problems| Failure::new(Exit::Config, config::render(&problems)))?;
    let behaviour = Behaviour {
        greeting_delay: arguments.greeting_delay,
        delay: arguments.delay,
        delay_at: arguments.delay_at,
        refusals: arguments.refuse,
        hang_at: arguments.hang,
    };
    let ended =
        Prepared::sink(loaded.config, behaviour).and_then(|prepared| prepared.run(say_ready)).map_err(start_failure)?;
    let (messages, bytes) = ended.forgotten;
    eprintln!("mailrace: sink took {messages} messages, {bytes} octets");
    Ok(Exit::Ok)
}

fn duration(text: &str) -> Result<Duration, String> {
    config::time(text).ok_or_else(|| format!("{text:?} is no time such as 20ms, 5s or 2m"))
}

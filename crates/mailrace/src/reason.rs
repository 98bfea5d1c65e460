//! `mailrace reason`: tries the rules by which replies of next hops get their reason.
//!
//! The rules are those of `observe::reason`; here arguments are read and the answer is shown.

use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::terminal_text::plain;
use clap::Args;
use mail::{EnhancedCode, Reply};
use observe::reason::{Case, Rule, Rules, Stage, words_of};
use serde_json::json;
use server::config::{read_reasons, render};
use std::io::{self, BufRead as _, Read as _};
use std::path::PathBuf;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace reason '450 4.7.1 Greylisted, come back in 5 minutes'
  mailrace reason --stage rcpt '550 mailbox unavailable'
  mailrace reason --rules my.rules - < replies.txt
  mailrace reason --print > /etc/mailrace/classes
    (a copy to change; then set delivery.classes to it)

Exit status:
   0  done
  64  wrong arguments
  74  reading or writing failed
  78  the rules or the configuration have an error";

/// Octets of a line of replies; the rules look at less.
const LINE_OCTETS_MAX: u64 = 64 << 10;
/// Octets of a reply.
const REPLY_OCTETS_MAX: usize = 64 << 10;

#[derive(Debug, Args)]
pub(crate) struct ReasonArguments {
    #[command(flatten)]
    source: Source,
    /// File of rules [default: that of delivery.classes]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// When it was said: connect, hello, tls, mail, rcpt, data, end
    #[arg(long, value_name = "STAGE", value_parser = stage)]
    stage: Option<Stage>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the rules that come with mailrace, and nothing else
    #[arg(long, conflicts_with = "text")]
    print: bool,
    /// Reply of the other server with its codes, or what the log says if there was none; - reads one from each line of
    /// standard input
    #[arg(required_unless_present = "print")]
    text: Option<String>,
}

fn stage(word: &str) -> Result<Stage, String> {
    Stage::from_name(word).ok_or_else(|| format!("stages are {}", Stage::ALL.map(Stage::name).join(", ")))
}

/// Runs `mailrace reason`.
pub(crate) fn run(arguments: &ReasonArguments) -> Result<Exit, Failure> {
    let mut output = Output::new();
    if arguments.print {
        Rules::usual_text().lines().for_each(|line| output.print_line(line));
        output.finish()?;
        return Ok(Exit::Ok);
    }
    let path = match &arguments.rules {
        Some(path) => Some(path.clone()),
        None => match arguments.source.open()? {
            Ok(loaded) => loaded.config.delivery.classes,
            Err(problems) => {
                eprint!("{}", render(&problems));
                return Err(Failure::new(Exit::Config, "the configuration has errors; --rules FILE does without it"));
            }
        },
    };
    let rules = read_reasons(path.as_deref()).map_err(|faults| Failure::new(Exit::Config, faults.join("\n")))?;
    let name = path.map_or_else(|| "built-in rules".to_owned(), |path| path.display().to_string());
    let text = arguments.text.as_deref().unwrap_or_default();
    if text == "-" {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = input.by_ref().take(LINE_OCTETS_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| Failure::io("standard input", &error))? == 0 {
                break;
            }
            let line = String::from_utf8_lossy(&line);
            show(&mut output, arguments, &rules, &name, line.trim_end(), true);
        }
    } else {
        show(&mut output, arguments, &rules, &name, text, false);
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Shows what the rules say of one text.
fn show(output: &mut Output, arguments: &ReasonArguments, rules: &Rules, name: &str, text: &str, is_one_of_many: bool) {
    let reply = Reply::parse(format!("{text}\r\n").as_bytes(), REPLY_OCTETS_MAX).ok();
    let words = reply.as_ref().map_or_else(|| text.to_owned(), words_of);
    let status: Option<EnhancedCode> = reply.as_ref().and_then(Reply::status);
    let case = Case { stage: arguments.stage, code: reply.as_ref().map(|one| one.code().get()), status, text: &words };
    let found = rules.find(&case);
    let text = &*plain(text);
    let rule = found
        .rule
        .map_or_else(|| "none fits".to_owned(), |rule| format!("{name} line {}: {}", rule.line, rule.source()));
    if arguments.json {
        let shown = json!({
            "text": text, "reason": found.reason.name(), "slow": found.is_slow,
            "rule": found.rule.map(Rule::source), "line": found.rule.map(|rule| rule.line), "file": name,
        });
        output.print_json(&shown);
    } else if is_one_of_many {
        let line = found.rule.map_or(0, |rule| rule.line);
        output.print_line(format!("{:<10} line {line:<4} {text}", found.reason.name()));
    } else {
        output.print_line(format!("reason  {}: {}", found.reason, found.reason.meaning()));
        output.print_line(format!("rule    {rule}"));
        let pace = if found.is_slow { "the destination gets less" } else { "as the code says" };
        output.print_line(format!("pace    {pace}"));
    }
}

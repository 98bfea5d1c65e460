//! `mailrace mime`: decodes and encodes header text and bodies, and shows the parts of a message.

use crate::exit::{Exit, Failure};
use crate::message_files;
use crate::output::{Output, bytes};
use crate::terminal_text::plain;
use clap::{Args, Subcommand};
use filter::mime::{Damage, DamageSet, sniff, walk};
use filter::{Limits, header_text};
use mail::header::LineEnd;
use mail::{Charset, base64, encoded_word};
use serde_json::json;
use std::path::PathBuf;

/// The text of `--help` behind the options.
pub(crate) const HELP: &str = "\
Examples:
  mailrace mime decode '=?gb2312?B?xOO6ww==?='
  mailrace mime decode 6K+35p+l5pS277yB
  mailrace mime encode 'Grüße aus Köln'
  mailrace mime tree message.eml

Exit status:
   0  done
  64  wrong arguments
  65  the text is neither encoded words nor base64
  74  reading or writing failed
  77  no permission";

/// Octets of a part that show its kind.
const SNIFFED_OCTETS: usize = 35_000;

#[derive(Debug, Subcommand)]
pub(crate) enum MimeCommand {
    /// Decode encoded words such as =?utf-8?B?…?=, or plain base64
    Decode(DecodeArguments),
    /// Encode text for a header field, or as base64
    Encode(EncodeArguments),
    /// Show the parts of messages: type, encoding, names, kind by content, damage
    Tree(TreeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DecodeArguments {
    /// Charset of base64 without encoded words
    #[arg(long, value_name = "LABEL", default_value = "utf-8", value_parser = charset)]
    charset: Charset,
    /// Texts; - or none is standard input
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EncodeArguments {
    /// Write plain base64
    #[arg(long)]
    base64: bool,
    /// Texts; - or none is standard input
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArguments {
    /// Print JSON, one line for each message
    #[arg(long)]
    json: bool,
    /// Files of messages; - or none is standard input
    #[arg(value_name = "MESSAGE")]
    messages: Vec<PathBuf>,
}

fn charset(label: &str) -> Result<Charset, String> {
    Charset::for_label(label).ok_or_else(|| "no charset has this label".to_owned())
}

/// Runs `mailrace mime`.
pub(crate) fn run(command: &MimeCommand) -> Result<Exit, Failure> {
    let mut output = Output::new();
    match command {
        MimeCommand::Decode(arguments) => {
            for text in texts(&arguments.texts)? {
                let line = decode(&text, arguments.charset).ok_or_else(|| {
                    let text: String = text.chars().take(60).collect();
                    Failure::new(Exit::Damaged, format!("{text:?} has no encoded word and is no base64"))
                })?;
                output.print_line(line);
            }
        }
        MimeCommand::Encode(arguments) => {
            for text in texts(&arguments.texts)? {
                if arguments.base64 {
                    output.print_line(base64::encode(text.as_bytes()).map(char::from).collect::<String>());
                } else {
                    output.print_line(encoded_word::encode(&text, 0).replace("\r\n", "\n"));
                }
            }
        }
        MimeCommand::Tree(arguments) => {
            let paths = message_files::or_stdin(&arguments.messages);
            for path in &paths {
                let file = message_files::read(path)?;
                show_tree(&mut output, &file, arguments.json, paths.len() > 1);
            }
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Returns the texts of the arguments, or the whole of standard input.
fn texts(arguments: &[String]) -> Result<Vec<String>, Failure> {
    if !arguments.is_empty() && arguments != ["-"] {
        return Ok(arguments.to_vec());
    }
    let file = message_files::read(&PathBuf::from("-"))?;
    Ok(vec![String::from_utf8_lossy(file.content.trim_ascii_end()).into_owned()])
}

fn decode(text: &str, charset: Charset) -> Option<String> {
    if encoded_word::labels(text.as_bytes()).next().is_some() {
        return Some(header_text::decode(text.as_bytes()).text);
    }
    let mut octets = Vec::new();
    let is_whole = base64::decode_forgiving(text.as_bytes(), &mut octets);
    is_whole.then(|| charset.decode(&octets).0.into_owned())
}

fn show_tree(output: &mut Output, file: &message_files::MessageFile, is_json: bool, has_name: bool) {
    let tree = walk(&file.content, LineEnd::CrlfOrLf, &Limits::default());
    let mut parts = Vec::new();
    if has_name && !is_json {
        output.print_line(plain(&file.name));
    }
    for part in &tree.parts {
        let content = &part.content;
        let decoded = part.decode(&file.content, SNIFFED_OCTETS);
        let kind = if part.is_leaf() { sniff(&decoded.octets) } else { None };
        let mut damage: DamageSet = part.damage;
        damage.extend(decoded.damage);
        let damage: Vec<&str> = damage.iter().map(Damage::name).collect();
        let number = if part.number.is_empty() { "0" } else { part.number.as_str() };
        let octets = part.body.len() as u64;
        if is_json {
            parts.push(json!({
                "part": number, "type": format!("{}/{}", content.kind, content.subtype), "charset": content.charset,
                "encoding": content.encoding.name(), "names": content.names, "kind": kind, "octets": octets,
                "attachment": part.is_leaf() && content.is_attachment(), "damage": damage,
            }));
            continue;
        }
        let mut line = format!("{}{number} {}/{}", "  ".repeat(part.depth), content.kind, content.subtype);
        let mut add = |word: &str, text: &str| line.push_str(&format!("  {word} {text}"));
        if let Some(charset) = &content.charset {
            add("charset", charset);
        }
        if part.is_leaf() {
            add(content.encoding.name(), &bytes(octets));
        }
        content.names.iter().for_each(|name| add("name", &format!("{name:?}")));
        kind.into_iter().for_each(|kind| add("is", kind));
        if !damage.is_empty() {
            add("damage:", &damage.join(", "));
        }
        output.print_line(plain(&line));
    }
    if is_json {
        output.print_json(&json!({ "message": file.name, "parts": parts, "limits_reached": tree.limits_reached }));
    } else if !tree.limits_reached.is_empty() {
        output.print_line(format!("not all parts are listed: limit of {}", tree.limits_reached.join(", ")));
    }
}

//! The lines of a control file. Appendix B of sendmail's `doc/op` has the meaning of each letter.

use super::field::QueuedField;
use super::recipient::{QueuedRecipient, QueuedTarget, address, notify, orcpt};
use super::{ControlFileError, LineNote, QueuedMessage, plain};
use mail::{Address, Body, DomainName, MailParams, Ret, ReversePath};

/// How much of a control file is read.
#[derive(Clone, Copy, Debug)]
pub struct ControlFileLimits {
    /// Octets of the file.
    pub octets_max: usize,
    /// Recipients.
    pub recipients_max: usize,
}

impl Default for ControlFileLimits {
    fn default() -> Self {
        Self { octets_max: 64 << 20, recipients_max: 1_000_000 }
    }
}

/// Bits of the first character of a `!` line (RFC 2852).
const BY_NOTIFY: u8 = 0x01;
const BY_RETURN: u8 = 0x02;
const BY_TRACE: u8 = 0x10;

fn unreadable(line: usize, text: impl Into<String>) -> ControlFileError {
    ControlFileError(LineNote { line, text: text.into() })
}

/// A logical line: its number, its letter, its value with the lines that go on with it.
struct ControlLine<'a> {
    number: usize,
    code: u8,
    value: &'a [u8],
}

impl ControlLine<'_> {
    fn text(&self) -> Result<&str, ControlFileError> {
        str::from_utf8(self.value).map(str::trim_end).map_err(|_| unreadable(self.number, "it is no text"))
    }

    fn number<T: std::str::FromStr>(&self, what: &str) -> Result<T, ControlFileError> {
        let text = self.text()?;
        text.trim()
            .parse()
            .map_err(|_| unreadable(self.number, format!("{what} \"{}\" is no number", plain(self.value))))
    }
}

/// Logical lines up to the dot.
struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    fn physical(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.rest).map_or(self.rest.len(), |at| at + 1);
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.number += 1;
        Some(line)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = ControlLine<'a>;

    fn next(&mut self) -> Option<ControlLine<'a>> {
        let before = self.rest;
        let first = self.physical()?;
        let number = self.number;
        let mut octets = first.len();
        while matches!(self.rest.first(), Some(b' ' | b'\t')) {
            octets += self.physical().map_or(0, <[u8]>::len);
        }
        let whole = before.get(..octets).unwrap_or_default();
        let whole = whole.strip_suffix(b"\n").unwrap_or(whole);
        let code = whole.first().copied().unwrap_or(b'\n');
        Some(ControlLine { number, code, value: whole.get(1..).unwrap_or_default() })
    }
}

/// The values read so far.
#[derive(Default)]
struct ControlFileReader {
    version: Option<u32>,
    arrived: Option<u64>,
    last_try: u64,
    tries: u32,
    priority: i64,
    sender: Option<ReversePath>,
    params: MailParams,
    flags: String,
    by: Option<(usize, String)>,
    quarantine: Option<String>,
    status: Option<String>,
    data_directory: Option<String>,
    macros: Vec<(String, String)>,
    recipients: Vec<QueuedRecipient>,
    header: Vec<QueuedField>,
    notes: Vec<LineNote>,
    /// For the next recipient.
    original: Option<mail::OriginalRecipient>,
    named: Option<Address>,
    message: Option<String>,
    /// For all recipients until it changes.
    controller: Option<String>,
}

pub(super) fn read(
    octets: &[u8],
    host: &DomainName,
    limits: &ControlFileLimits,
) -> Result<QueuedMessage, ControlFileError> {
    if octets.len() > limits.octets_max {
        return Err(unreadable(1, format!("the file has {} octets, of {} allowed", octets.len(), limits.octets_max)));
    }
    if octets.is_empty() {
        return Err(unreadable(1, "the file is empty"));
    }
    let mut reading = ControlFileReader::default();
    let mut lines = Lines { rest: octets, number: 0 };
    while let Some(line) = lines.next() {
        if line.code == b'.' {
            if !line.value.trim_ascii().is_empty() {
                return Err(unreadable(line.number, format!("\".{}\" is no end", plain(line.value))));
            }
            if !lines.rest.is_empty() {
                return Err(unreadable(
                    lines.number + 1,
                    "something follows the line with the dot, which ends the file",
                ));
            }
            return reading.finish(line.number);
        }
        if memchr::memchr(0, line.value).is_some() {
            return Err(unreadable(line.number, "it has an octet 0 in it"));
        }
        reading.take(&line, host, limits)?;
    }
    Err(unreadable(lines.number, "the file ends without the line with the dot: it is not whole"))
}

impl ControlFileReader {
    fn note(&mut self, line: usize, text: String) {
        self.notes.push(LineNote { line, text });
    }

    fn take(
        &mut self,
        line: &ControlLine<'_>,
        host: &DomainName,
        limits: &ControlFileLimits,
    ) -> Result<(), ControlFileError> {
        if self.version.is_none() && line.code != b'V' {
            return Err(unreadable(
                line.number,
                "the file does not begin with its version: it is no control file of sendmail 8",
            ));
        }
        match line.code {
            b'V' => self.take_version(line)?,
            b'T' => self.arrived = Some(line.number("time of arrival")?),
            b'K' => self.last_try = line.number("time of the last try")?,
            b'N' => self.tries = line.number("number of tries")?,
            b'P' => self.priority = line.number("priority")?,
            b'S' => self.sender = Some(sender(line, host)?),
            b'F' => self.flags.push_str(line.text()?),
            b'B' => self.take_body(line)?,
            b'Z' => self.take_envid(line)?,
            b'A' => self.take_auth(line)?,
            b'!' => self.by = Some((line.number, line.text()?.to_owned())),
            b'q' => self.quarantine = Some(plain(line.text()?.as_bytes())),
            b'd' => self.data_directory = Some(line.text()?.to_owned()),
            b'$' => self.take_macro(line),
            b'M' => self.message = Some(plain(line.value.trim_ascii_end())),
            b'C' => self.controller = Some(line.text()?.to_owned()).filter(|user| !user.is_empty()),
            b'Q' => self.take_original(line)?,
            b'r' => self.named = final_recipient(line.text()?, host),
            b'R' => self.take_recipient(line, host, limits)?,
            b'H' => {
                let field = QueuedField::read(line.value).map_err(|why| unreadable(line.number, why))?;
                self.header.push(field);
            }
            // The inode of the text, its old name, the recipient of errors in old files, the queue group, a character
            // set, the length of the content: nothing here depends on them.
            b'I' | b'D' | b'E' | b'G' | b'X' | b'L' | b'Y' => {}
            b'\n' => {}
            b' ' | b'\t' => return Err(unreadable(line.number, "it goes on with a line that is not there")),
            code => {
                let text = format!("the letter \"{}\" is unknown", plain(&[code]));
                return Err(unreadable(line.number, text));
            }
        }
        // A line before the first recipient is about the whole message.
        if line.code != b'M' && self.recipients.is_empty() && !matches!(line.code, b'C' | b'Q' | b'r' | b'R') {
            self.status = self.message.take().or_else(|| self.status.take());
        }
        Ok(())
    }

    fn take_version(&mut self, line: &ControlLine<'_>) -> Result<(), ControlFileError> {
        let version = line.number("version")?;
        let newest = QueuedMessage::VERSION_MAX;
        if !(1..=newest).contains(&version) {
            let text = format!("the format has version {version}, and 1 to {newest} are known");
            return Err(unreadable(line.number, text));
        }
        self.version = Some(version);
        Ok(())
    }

    fn take_body(&mut self, line: &ControlLine<'_>) -> Result<(), ControlFileError> {
        let text = line.text()?;
        match MailParams::parse(format!("BODY={text}").as_bytes()) {
            Ok(params) => self.params.body = params.body,
            Err(_) => {
                return Err(unreadable(line.number, format!("the body type \"{}\" is unknown", plain(line.value))));
            }
        }
        Ok(())
    }

    fn take_envid(&mut self, line: &ControlLine<'_>) -> Result<(), ControlFileError> {
        match MailParams::parse(format!("ENVID={}", line.text()?).as_bytes()) {
            Ok(params) if params.envid.is_some() => self.params.envid = params.envid,
            _ => self.note(line.number, format!("ENVID \"{}\" is none; reports go without it", plain(line.value))),
        }
        Ok(())
    }

    fn take_auth(&mut self, line: &ControlLine<'_>) -> Result<(), ControlFileError> {
        match MailParams::parse(format!("AUTH={}", line.text()?).as_bytes()) {
            Ok(params) if params.auth.is_some() => self.params.auth = params.auth,
            _ => self.note(line.number, format!("AUTH \"{}\" is none; it goes without it", plain(line.value))),
        }
        Ok(())
    }

    fn take_macro(&mut self, line: &ControlLine<'_>) {
        let value = line.value.trim_ascii_end();
        let (name, value) = match value.strip_prefix(b"{") {
            Some(rest) => {
                let end = rest.iter().position(|byte| *byte == b'}').unwrap_or(rest.len());
                let (name, value) = rest.split_at(end);
                (name, value.get(1..).unwrap_or_default())
            }
            None => value.split_at_checked(1).unwrap_or_default(),
        };
        self.macros.push((plain(name), plain(value)));
    }

    fn take_original(&mut self, line: &ControlLine<'_>) -> Result<(), ControlFileError> {
        self.original = orcpt(line.text()?);
        if self.original.is_none() {
            self.note(
                line.number,
                format!("ORCPT \"{}\" is none; reports go without it", plain(line.value.trim_ascii_end())),
            );
        }
        Ok(())
    }

    fn take_recipient(
        &mut self,
        line: &ControlLine<'_>,
        host: &DomainName,
        limits: &ControlFileLimits,
    ) -> Result<(), ControlFileError> {
        if self.recipients.len() >= limits.recipients_max {
            return Err(unreadable(line.number, format!("it has more than {} recipients", limits.recipients_max)));
        }
        let text = line.text()?;
        let (flags, text) = text
            .split_once(':')
            .ok_or_else(|| unreadable(line.number, "the flags of the recipient do not end with a colon"))?;
        let target = QueuedTarget::read(text, host).map_err(|why| unreadable(line.number, why))?;
        self.recipients.push(QueuedRecipient {
            line: line.number,
            target,
            params: mail::RecipientParams { notify: notify(flags), orcpt: self.original.take() },
            named: self.named.take(),
            controller: self.controller.clone(),
            status: self.message.take(),
        });
        Ok(())
    }

    fn finish(mut self, last: usize) -> Result<QueuedMessage, ControlFileError> {
        let missing = |what: &str| unreadable(last, format!("the file has no line for {what}"));
        let version = self.version.ok_or_else(|| missing("its version (V)"))?;
        let arrived = self.arrived.ok_or_else(|| missing("the time of arrival (T)"))?;
        let mut sender = self.sender.take().ok_or_else(|| missing("the sender (S)"))?;
        if self.recipients.is_empty() {
            return Err(missing("a recipient (R): nobody is left to get it"));
        }
        let has = |flag| self.flags.contains(flag);
        // A report: the queue names the daemon as its sender, and it is sent with the null sender.
        if has('r') {
            sender = ReversePath::Null;
        }
        if has('d') {
            self.params.ret = Some(if has('n') { Ret::Headers } else { Ret::Full });
        }
        if has('8') && self.params.body.is_none() {
            self.params.body = Some(Body::EightBitMime);
        }
        self.params.smtputf8 = has('e');
        let (is_warned, hides_bcc) = (has('w'), has('b'));
        if let Some((line, text)) = self.by.take() {
            match by(&text) {
                Some(params) => self.params.by = params.by,
                None => self.note(line, format!("BY \"{}\" is none; it goes without it", plain(text.as_bytes()))),
            }
        }
        Ok(QueuedMessage {
            version,
            arrived,
            last_try: self.last_try,
            tries: self.tries,
            priority: self.priority,
            sender,
            params: self.params,
            is_warned,
            hides_bcc,
            quarantine: self.quarantine,
            status: self.status,
            data_directory: self.data_directory,
            macros: self.macros,
            recipients: self.recipients,
            header: self.header,
            notes: self.notes,
        })
    }
}

fn sender(line: &ControlLine<'_>, host: &DomainName) -> Result<ReversePath, ControlFileError> {
    match line.text()?.trim() {
        "" | "<>" => Ok(ReversePath::Null),
        text => address(text, host).map(ReversePath::Address).map_err(|why| unreadable(line.number, why)),
    }
}

/// Type and address, as in `Final-Recipient`. It only helps to understand what an alias led to.
fn final_recipient(text: &str, host: &DomainName) -> Option<Address> {
    let (_, text) = text.split_once(';')?;
    address(text.trim(), host).ok()
}

/// A character of bits, a space, and seconds since the message came.
fn by(text: &str) -> Option<MailParams> {
    let (&bits, rest) = text.as_bytes().split_first()?;
    let seconds = str::from_utf8(rest).ok()?.trim();
    let mode = match bits & (BY_NOTIFY | BY_RETURN) {
        BY_RETURN => "R",
        BY_NOTIFY => "N",
        _ => return None,
    };
    let trace = if bits & BY_TRACE == 0 { "" } else { "T" };
    MailParams::parse(format!("BY={seconds};{mode}{trace}").as_bytes()).ok().filter(|params| params.by.is_some())
}

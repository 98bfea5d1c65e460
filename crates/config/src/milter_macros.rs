//! Macros of milters as `filter.macros` and `filter.macro_values` write them.

use std::str::FromStr;

/// A step of a milter that has a list of macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MilterStage {
    /// The client connected.
    Connect,
    /// HELO or EHLO.
    Helo,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// The end of the header section.
    EndOfHeader,
    /// The end of the message.
    EndOfMessage,
}

/// The macros that a milter gets at one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MilterMacros {
    /// The step.
    pub stage: MilterStage,
    /// Their names: one letter, or more within braces.
    pub names: Vec<String>,
}

/// The value that a macro has for one milter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroValue {
    /// The name, as in [`MilterMacros`].
    pub name: String,
    /// The value; empty: the milter does not get the macro.
    pub value: String,
}

/// The text is no list of macros of a step, and no value of a macro.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMacrosError;

impl FromStr for MilterStage {
    type Err = NoMacrosError;

    /// Reads the name of a step: that of the log, or that of sendmail's options `Milter.macros`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "connect" => Self::Connect,
            "helo" => Self::Helo,
            "mail" | "envfrom" => Self::Mail,
            "rcpt" | "envrcpt" => Self::Rcpt,
            "data" => Self::Data,
            "eoh" => Self::EndOfHeader,
            "eom" => Self::EndOfMessage,
            _ => return Err(NoMacrosError),
        })
    }
}

impl FromStr for MilterMacros {
    type Err = NoMacrosError;

    /// Reads `connect: j {daemon_name}`. Commas may stand between names, as in sendmail's options.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (stage, names) = text.split_once(':').ok_or(NoMacrosError)?;
        let names = names.split([' ', ',']).filter(|name| !name.is_empty()).map(macro_name);
        Ok(Self { stage: stage.trim().parse()?, names: names.collect::<Result<_, _>>()? })
    }
}

impl FromStr for MacroValue {
    type Err = NoMacrosError;

    /// Reads `{daemon_name}=ORIGINATING`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or(NoMacrosError)?;
        if value.chars().any(char::is_control) {
            return Err(NoMacrosError);
        }
        Ok(Self { name: macro_name(name.trim())?, value: value.trim().to_owned() })
    }
}

/// Returns a name as the protocol writes it. `$j`, `name` and `{name}` are known.
fn macro_name(text: &str) -> Result<String, NoMacrosError> {
    let text = text.strip_prefix('$').unwrap_or(text);
    let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    if bare.is_empty() || !bare.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) {
        return Err(NoMacrosError);
    }
    Ok(if bare.len() == 1 { bare.to_owned() } else { format!("{{{bare}}}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_macros() {
        let read = |text: &str| text.parse::<MilterMacros>();
        let of = |stage, names: &[&str]| {
            Ok(MilterMacros { stage, names: names.iter().map(|name| (*name).to_owned()).collect() })
        };
        assert_eq!(read("connect: j _ {daemon_name}"), of(MilterStage::Connect, &["j", "_", "{daemon_name}"]));
        assert_eq!(read("envfrom:i, $r, auth_type"), of(MilterStage::Mail, &["i", "r", "{auth_type}"]));
        assert_eq!(read("eom:"), of(MilterStage::EndOfMessage, &[]), "none at all");
        for text in ["", "j", "begin: j", "mail: {}", "mail: {a b}", "mail: {a"] {
            assert_eq!(read(text), Err(NoMacrosError), "{text}");
        }
    }

    #[test]
    fn values_of_macros() {
        let read = |text: &str| text.parse::<MacroValue>().map(|one| (one.name, one.value));
        let of = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(read("{daemon_name}=ORIGINATING"), of("{daemon_name}", "ORIGINATING"));
        assert_eq!(read("v = Postfix 3.7=x"), of("v", "Postfix 3.7=x"));
        assert_eq!(read("{auth_type}="), of("{auth_type}", ""));
        for text in ["", "v", "=x", "v=a\nb"] {
            assert_eq!(read(text), Err(NoMacrosError), "{text}");
        }
    }
}

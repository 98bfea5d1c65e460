//! The conditions of a rule file: `FIELD OPERATOR VALUES` on one line.

use super::pattern::{literals, pattern};
use super::statement::{Statement, values, word};
use super::tokens::Token;
use crate::condition::{Comparison, Field, Network, Order, Quantity, Question, Test};
use crate::domains::literals_of_domains;
use crate::literals::folded;
use crate::mime::{Damage, is_kind, kinds};
use crate::script;
use crate::texts::Kinds;

/// Share of a script without `over`, in percent.
const SCRIPT_PERCENT: usize = 25;
/// Fields that `script` looks at without a field of its own: those a person reads first. `To` names the recipient.
const SCRIPT_FIELDS: [&str; 5] = ["Subject", "From", "Sender", "Reply-To", "Comments"];

/// Reads a condition.
pub(super) fn parse(statement: Statement<'_>) -> Result<Test, String> {
    let (subject, rest) = Subject::read(statement.tokens)?;
    let source = statement.source.to_owned();
    let mut test = Test {
        question: Question::NotFullyScanned,
        is_negated: false,
        literals: Vec::new(),
        line: statement.line,
        source,
    };
    test.question = match subject {
        Subject::NotFullyScanned if rest.is_empty() => Question::NotFullyScanned,
        Subject::NotFullyScanned => return Err("\"not fully scanned\" stands alone".to_owned()),
        Subject::Damage => damage(rest, &mut test.is_negated)?,
        Subject::Number(quantity) => number(quantity, rest, &mut test.is_negated)?,
        Subject::ClientAddress => {
            let parse =
                |text: &String| Network::parse(text).ok_or_else(|| format!("\"{text}\" is no address or network"));
            Question::Client(equal(rest, &mut test.is_negated)?.iter().map(parse).collect::<Result<_, _>>()?)
        }
        Subject::Authentication(method) => {
            Question::Authentication { method, results: equal(rest, &mut test.is_negated)? }
        }
        Subject::Script(field) => script(field, rest, &mut test.is_negated)?,
        Subject::Text(field) => text(field, rest, &mut test)?,
    };
    Ok(test)
}

/// The thing that a condition asks about.
enum Subject {
    Text(Field),
    Script(Field),
    Number(Quantity),
    ClientAddress,
    Authentication(String),
    Damage,
    NotFullyScanned,
}

impl Subject {
    /// Reads the words before the operator.
    fn read(tokens: &[Token]) -> Result<(Self, &[Token]), String> {
        let words: Vec<&str> = tokens.iter().map_while(word).take(3).collect();
        let number = |quantity, words| Ok((Self::Number(quantity), skip(tokens, words)));
        match words.as_slice() {
            ["not", "fully", "scanned"] => Ok((Self::NotFullyScanned, skip(tokens, 3))),
            ["header", "size", ..] => number(Quantity::HeaderSize, 2),
            ["size", ..] => number(Quantity::Size, 1),
            ["recipients", ..] => number(Quantity::Recipients, 1),
            ["parts", ..] => number(Quantity::Parts, 1),
            ["attachments", ..] => number(Quantity::Attachments, 1),
            ["damage", ..] => Ok((Self::Damage, skip(tokens, 1))),
            ["client", "address", ..] => Ok((Self::ClientAddress, skip(tokens, 2))),
            ["auth", method, ..] => Ok((Self::Authentication((*method).to_owned()), skip(tokens, 2))),
            ["script", ..] => {
                let kinds = Kinds::DECODED_HEADER | Kinds::BODY | Kinds::ATTACHMENT_NAME;
                let names = SCRIPT_FIELDS.iter().map(|name| (*name).to_owned()).collect();
                Ok((Self::Script(Field { kinds, names }), skip(tokens, 1)))
            }
            _ => {
                let (field, rest) = field(tokens)?;
                if matches!(rest.first(), Some(Token::Word(word)) if word == "script") {
                    return Ok((Self::Script(field), skip(rest, 1)));
                }
                Ok((Self::Text(field), rest))
            }
        }
    }
}

fn skip(tokens: &[Token], count: usize) -> &[Token] {
    tokens.get(count..).unwrap_or_default()
}

/// Words that follow a field; a field name of this kind needs quotes.
const OPERATORS: [&str; 5] = ["contains", "present", "missing", "script", "over"];

/// Reads a field of text.
fn field(tokens: &[Token]) -> Result<(Field, &[Token]), String> {
    let words: Vec<&str> = tokens.iter().map_while(word).take(2).collect();
    let header = Kinds::RAW_HEADER | Kinds::DECODED_HEADER;
    let (kinds, count) = match words.as_slice() {
        ["subject", ..] => {
            return Ok((Field { kinds: header, names: vec!["Subject".to_owned()] }, skip(tokens, 1)));
        }
        ["header", ..] => (header, 1),
        ["raw", "header"] => (Kinds::RAW_HEADER, 2),
        ["decoded", "header"] => (Kinds::DECODED_HEADER, 2),
        ["part", "header"] => (Kinds::PART_HEADER, 2),
        ["text", ..] => (Kinds::BODY, 1),
        ["sender", ..] => (Kinds::SENDER, 1),
        ["recipient", ..] => (Kinds::RECIPIENT, 1),
        ["client", "name"] => (Kinds::CLIENT_NAME, 2),
        ["helo", ..] => (Kinds::HELO, 1),
        ["attachment", "name"] => (Kinds::ATTACHMENT_NAME, 2),
        ["attachment", "type"] => (Kinds::ATTACHMENT_TYPE, 2),
        ["part", "type"] => (Kinds::PART_TYPE, 2),
        ["charset", ..] => (Kinds::CHARSET, 1),
        _ => {
            let first = tokens.first().map_or_else(String::new, ToString::to_string);
            return Err(format!(
                "{first} is no condition; conditions are on header, raw header, decoded header, part header, subject, \
                 text, charset, script, sender, recipient, recipients, client address, client name, helo, auth, size, \
                 header size, parts, part type, attachments, attachment name, attachment type, damage, not fully scanned"
            ));
        }
    };
    let rest = skip(tokens, count);
    let mut field = Field { kinds, names: Vec::new() };
    if kinds.overlaps(Kinds::HEADER) {
        let name = match rest.first() {
            Some(Token::Word(name)) if !OPERATORS.contains(&name.as_str()) => Some(name),
            Some(Token::Text(name)) => Some(name),
            _ => None,
        };
        if let Some(name) = name {
            if name.is_empty() || name.contains(':') || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("{name:?} is no name of a header field"));
            }
            field.names.push(name.clone());
            return Ok((field, skip(rest, 1)));
        }
    }
    Ok((field, rest))
}

/// Reads `= VALUES` or `!= VALUES`.
fn equal(tokens: &[Token], is_negated: &mut bool) -> Result<Vec<String>, String> {
    match tokens {
        [Token::Sign("="), rest @ ..] => values(rest),
        [Token::Sign("!="), rest @ ..] => {
            *is_negated = true;
            values(rest)
        }
        _ => Err("\"=\" or \"!=\" and values are missing".to_owned()),
    }
}

fn text(field: Field, tokens: &[Token], test: &mut Test) -> Result<Question, String> {
    let comparison = match tokens {
        [Token::Sign(sign @ ("~" | "!~")), Token::Pattern(text)] => {
            test.is_negated = *sign == "!~";
            test.literals = literals(text);
            Comparison::Matches(pattern(text)?)
        }
        [Token::Sign("~" | "!~"), ..] => {
            return Err("\"~\" is followed by a pattern between slashes: ~ /pattern/".to_owned());
        }
        [Token::Sign("=" | "!="), ..] => {
            let wanted = equal(tokens, &mut test.is_negated)?;
            check_values(&field, &wanted)?;
            let wanted: Vec<String> = wanted.iter().map(|one| folded(one.trim())).collect();
            if field.kinds.overlaps(Kinds::ADDRESSES) {
                test.literals = literals_of_domains(&wanted);
                Comparison::BelongsTo(wanted)
            } else {
                test.literals.clone_from(&wanted);
                Comparison::Equals(wanted)
            }
        }
        [Token::Word(word), rest @ ..] if word == "contains" => {
            let wanted: Vec<String> = values(rest)?.iter().map(|one| folded(one)).collect();
            test.literals.clone_from(&wanted);
            Comparison::Contains(wanted)
        }
        [Token::Word(word)] if word == "present" => Comparison::Present,
        [Token::Word(word)] if word == "missing" => {
            test.is_negated = true;
            Comparison::Present
        }
        _ => {
            return Err(
                "a field is followed by ~ /pattern/, !~ /pattern/, = VALUE, != VALUE, contains TEXT, present, \
                        missing or script = NAME"
                    .to_owned(),
            );
        }
    };
    // An empty text is in every text.
    if test.literals.iter().any(String::is_empty) {
        test.literals.clear();
    }
    Ok(Question::Text(field, comparison))
}

/// Refuses words that no text of the field can be.
fn check_values(field: &Field, wanted: &[String]) -> Result<(), String> {
    if field.kinds != Kinds::ATTACHMENT_TYPE {
        return Ok(());
    }
    match wanted.iter().find(|one| !is_kind(one)) {
        None => Ok(()),
        Some(wrong) => {
            let mut all: Vec<&str> = kinds().collect();
            all.sort_unstable();
            all.dedup();
            Err(format!("\"{wrong}\" is no type of a file; types are {}", all.join(", ")))
        }
    }
}

fn script(field: Field, tokens: &[Token], is_negated: &mut bool) -> Result<Question, String> {
    let (tokens, percent) = match tokens {
        [start @ .., Token::Word(over), Token::Word(percent), Token::Sign("%")] if over == "over" => {
            let number = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
            (start, number.ok_or_else(|| format!("\"{percent}\" is no share; write 1 to 100 %"))?)
        }
        all => (all, SCRIPT_PERCENT),
    };
    let wanted = equal(tokens, is_negated)?;
    let [name] = wanted.as_slice() else { return Err("a script is one name; put several into \"any {\"".to_owned()) };
    let found = script::by_name(name).ok_or_else(|| {
        format!("\"{name}\" is no script of Unicode, such as Han, Cyrillic, Arabic, Hiragana, Hangul")
    })?;
    Ok(Question::Script { field, script: found, percent })
}

fn number(quantity: Quantity, tokens: &[Token], is_negated: &mut bool) -> Result<Question, String> {
    let [Token::Sign(sign), Token::Word(number)] = tokens else {
        return Err("a number is compared by <, <=, =, !=, >= or >, such as > 10M".to_owned());
    };
    let order = match *sign {
        "<" => Order::Less,
        "<=" => Order::AtMost,
        "=" => Order::Equal,
        "!=" => {
            *is_negated = true;
            Order::Equal
        }
        ">=" => Order::AtLeast,
        ">" => Order::More,
        _ => return Err(format!("a number is not compared by \"{sign}\"")),
    };
    let digits = number.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    let factor = match number.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" => Some(1),
        "k" => Some(1 << 10),
        "m" => Some(1 << 20),
        "g" => Some(1_u64 << 30),
        _ => None,
    };
    let value = digits.parse::<u64>().ok().zip(factor).and_then(|(digits, factor)| digits.checked_mul(factor));
    let value = value.ok_or_else(|| format!("\"{number}\" is no number, such as 500, 64K or 10M"))?;
    Ok(Question::Number(quantity, order, value))
}

fn damage(tokens: &[Token], is_negated: &mut bool) -> Result<Question, String> {
    if tokens.is_empty() {
        return Ok(Question::Damage(Vec::new()));
    }
    let parse = |name: &String| {
        Damage::from_name(name).ok_or_else(|| {
            let all: Vec<&str> = Damage::ALL.into_iter().map(Damage::name).collect();
            format!("\"{name}\" is no damage; those are {}", all.join(", "))
        })
    };
    Ok(Question::Damage(equal(tokens, is_negated)?.iter().map(parse).collect::<Result<_, _>>()?))
}

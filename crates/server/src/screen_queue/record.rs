//! The record of a message that waits for its filters: facts about its session that the envelope does not have, the
//! filters that are to be asked, and what follows when they let it pass.
//!
//! It is stored with the message, as a JSON object in the head of its envelope (`docs/spool.md` section 8). A field
//! that is absent has its default, and an unknown field is ignored; a record that is not JSON is an error, and the
//! message stays held.

use crate::screen::filters::OwnFields;
use mail::QueueId;
use serde_json::{Map, Value, json};
use spool::{Hold, HoldKind};
use std::net::SocketAddr;

/// The record of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScreeningRecord {
    /// The names of the filters, in the order in which they are asked.
    pub(crate) filters: Vec<String>,
    /// The name of the listener.
    pub(crate) listener: String,
    /// The address at which the client was accepted.
    pub(crate) server: Option<SocketAddr>,
    /// The verified name of the client.
    pub(crate) client_name: Option<String>,
    /// TLS: version, cipher, bits.
    pub(crate) tls: Option<(String, String, u16)>,
    /// The subject of a verified certificate.
    pub(crate) certificate_subject: String,
    /// The issuer of a verified certificate.
    pub(crate) certificate_issuer: String,
    /// The authenticated user.
    pub(crate) user: Option<String>,
    /// The mechanism of the authentication.
    pub(crate) auth_mechanism: String,
    /// The fields that this server has put on top of the content.
    pub(crate) own_fields: OwnFields,
    /// Why the message is held when filters let it pass; none: it is delivered.
    pub(crate) then: Option<Hold>,
    /// The message whose place it takes: filters have changed that one, and nothing but its end is left to do.
    pub(crate) replaces: Option<QueueId>,
}

impl ScreeningRecord {
    /// Begins a record about a message that brings nothing with it.
    pub(crate) const fn new(filters: Vec<String>) -> Self {
        Self {
            filters,
            listener: String::new(),
            server: None,
            client_name: None,
            tls: None,
            certificate_subject: String::new(),
            certificate_issuer: String::new(),
            user: None,
            auth_mechanism: String::new(),
            own_fields: OwnFields::with_results(0),
            then: None,
            replaces: None,
        }
    }

    /// Returns the text that is stored.
    pub(crate) fn to_text(&self) -> String {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| fields.extend(value.map(|value| (name.to_owned(), value)));
        let text = |text: &String| (!text.is_empty()).then(|| json!(text));
        put("filters", Some(json!(self.filters)));
        put("listener", text(&self.listener));
        put("server", self.server.map(|address| json!(address.to_string())));
        put("client_name", self.client_name.as_ref().map(|name| json!(name)));
        put("tls", self.tls.as_ref().map(|(version, cipher, bits)| json!([version, cipher, bits])));
        put("certificate_subject", text(&self.certificate_subject));
        put("certificate_issuer", text(&self.certificate_issuer));
        put("user", self.user.as_ref().map(|user| json!(user)));
        put("auth_mechanism", text(&self.auth_mechanism));
        let OwnFields { results, hidden } = self.own_fields;
        put("own_fields", Some(json!([results, hidden])));
        put("then", self.then.as_ref().map(hold_to_json));
        put("replaces", self.replaces.map(|id| json!(id.to_string())));
        Value::Object(fields).to_string()
    }

    /// Reads the text back.
    ///
    /// # Errors
    /// The field that makes no sense.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("record of screen: {error}"))?;
        let Value::Object(fields) = value else { return Err("record of screen: no JSON object".to_owned()) };
        let fault = |name: &str| format!("record of screen: \"{name}\" makes no sense");
        let text = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(fault(name)),
        };
        let filters = match fields.get("filters") {
            None => Vec::new(),
            Some(list) => names(list).ok_or_else(|| fault("filters"))?,
        };
        let server = text("server")?.map(|text| text.parse().map_err(|_| fault("server"))).transpose()?;
        let replaces = text("replaces")?.map(|text| text.parse().map_err(|_| fault("replaces"))).transpose()?;
        let tls = fields.get("tls").map(|tls| tls_of(tls).ok_or_else(|| fault("tls"))).transpose()?;
        let own_fields = match fields.get("own_fields") {
            None => OwnFields::with_results(0),
            Some(numbers) => own_fields_of(numbers).ok_or_else(|| fault("own_fields"))?,
        };
        let then = fields.get("then").map(|hold| hold_of(hold).ok_or_else(|| fault("then"))).transpose()?;
        Ok(Self {
            filters,
            listener: text("listener")?.unwrap_or_default(),
            server,
            client_name: text("client_name")?,
            tls,
            certificate_subject: text("certificate_subject")?.unwrap_or_default(),
            certificate_issuer: text("certificate_issuer")?.unwrap_or_default(),
            user: text("user")?,
            auth_mechanism: text("auth_mechanism")?.unwrap_or_default(),
            own_fields,
            then,
            replaces,
        })
    }
}

fn names(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

fn tls_of(value: &Value) -> Option<(String, String, u16)> {
    let [version, cipher, bits] = value.as_array()?.as_slice() else { return None };
    Some((version.as_str()?.to_owned(), cipher.as_str()?.to_owned(), u16::try_from(bits.as_u64()?).ok()?))
}

fn own_fields_of(value: &Value) -> Option<OwnFields> {
    let [results, hidden] = value.as_array()?.as_slice() else { return None };
    let number = |value: &Value| u16::try_from(value.as_u64()?).ok().map(usize::from);
    Some(OwnFields { results: number(results)?, hidden: number(hidden)? })
}

fn hold_to_json(hold: &Hold) -> Value {
    json!({ "kind": hold.kind().name(), "by": hold.by(), "text": hold.text(), "until": hold.ends_at().unwrap_or(0) })
}

fn hold_of(value: &Value) -> Option<Hold> {
    let text = |name: &str| value.get(name)?.as_str();
    let kind = text("kind")?;
    let kind = HoldKind::ALL.into_iter().find(|known| known.name() == kind)?;
    let until = u32::try_from(value.get("until")?.as_u64()?).ok()?;
    Some(Hold::new(kind, text("by")?, text("text")?).until(until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_and_absent_fields_have_defaults() {
        let full = ScreeningRecord {
            filters: vec!["clamav".to_owned(), "spam \"x\"".to_owned()],
            listener: "mx".to_owned(),
            server: Some("[2001:db8::1]:25".parse().unwrap()),
            client_name: Some("mail.example".to_owned()),
            tls: Some(("TLSv1.3".to_owned(), "AES".to_owned(), 256)),
            certificate_subject: "CN=é\n".to_owned(),
            certificate_issuer: "CN=ca".to_owned(),
            user: Some("ann".to_owned()),
            auth_mechanism: "PLAIN".to_owned(),
            own_fields: OwnFields { results: 2, hidden: 3 },
            then: Some(Hold::new(HoldKind::Quarantine, "rule", "for the recipient").until(77)),
            replaces: Some(QueueId::MIN),
        };
        for record in [full.clone(), ScreeningRecord::new(Vec::new())] {
            assert_eq!(ScreeningRecord::parse(&record.to_text()), Ok(record));
        }
        assert_eq!(ScreeningRecord::parse("{\"later\":1}"), Ok(ScreeningRecord::new(Vec::new())));
        // A record without an end of its text, or with a hold that is not known, never becomes one that lets mail pass.
        let text = full.to_text();
        for end in 0..text.len() {
            let Some(part) = text.get(..end) else { continue };
            assert!(ScreeningRecord::parse(part).is_err(), "{part}");
        }
        for wrong in
            ["[]", "{\"filters\":[1]}", "{\"then\":{}}", "{\"replaces\":\"x\"}", "{\"user\":1}", "{\"own_fields\":[1]}"]
        {
            assert!(ScreeningRecord::parse(wrong).is_err(), "{wrong}");
        }
    }
}

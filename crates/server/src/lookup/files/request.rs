//! Requests of the server to a reading process, and its replies: values, and their form on a socket.
//!
//! Each is a length of four octets, little endian, and so many of JSON; the text of a file follows its reply in the
//! same form. The answering process may belong to a user who lies: all sizes are bounded, and control characters are
//! replaced.

use super::path::Stamp;
use local::stream::{receive, send};
use serde_json::{Value, json};
use std::io::{self, Read, Write};

/// The longest request, and the longest answer without its text.
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// Characters of a reason, at most.
const WHY_MAX: usize = 600;

/// A file that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The user that opens it; empty: `local.default_user`.
    pub(super) user: String,
    pub(super) what: What,
    /// The version that is known already, with its name.
    pub(super) known: Option<(String, Stamp)>,
}

/// Which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// `.forward+detail` in the home of the user, or `.forward`.
    Forward { detail: Option<String> },
    /// The one of this name; `is_public`: if every user can read it.
    Include { path: String, is_public: bool },
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Absent,
    /// It is the version that is known.
    Unchanged,
    Text {
        path: String,
        text: String,
        stamp: Stamp,
        is_exclusive: bool,
    },
    /// The user may not read it.
    Denied {
        path: String,
    },
    /// It counts for nothing, for this reason.
    Refused {
        path: String,
        why: String,
        stamp: Option<Stamp>,
    },
    /// The file cannot be judged now.
    Trouble(String),
    /// This process is another user, or the account has changed.
    OtherUser,
}

fn of_stamp(stamp: &Stamp) -> Value {
    let Stamp { device, inode, size, written, changed, mode, uid } = stamp;
    json!([device, inode, size, written, changed, mode, uid])
}

fn to_stamp(value: &Value) -> Option<Stamp> {
    let [device, inode, size, written, changed, mode, uid] = value.as_array()?.as_slice() else { return None };
    let time = |value: &Value| match value.as_array()?.as_slice() {
        [seconds, nanoseconds] => Some([seconds.as_i64()?, nanoseconds.as_i64()?]),
        _ => None,
    };
    Some(Stamp {
        device: device.as_u64()?,
        inode: inode.as_u64()?,
        size: size.as_u64()?,
        written: time(written)?,
        changed: time(changed)?,
        mode: mode.as_u64()?.try_into().ok()?,
        uid: uid.as_u64()?.try_into().ok()?,
    })
}

fn text_of(value: &Value, key: &str) -> Option<String> {
    Some(value.get(key)?.as_str()?.to_owned())
}

/// Makes a short line without control characters.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(WHY_MAX).collect()
}

impl Request {
    fn to_json(&self) -> Value {
        let known = self.known.as_ref().map(|(path, stamp)| json!({"path": path, "stamp": of_stamp(stamp)}));
        match &self.what {
            What::Forward { detail } => json!({"user": self.user, "detail": detail, "known": known}),
            What::Include { path, is_public } => {
                json!({"user": self.user, "path": path, "public": is_public, "known": known})
            }
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let what = match value.get("path") {
            Some(path) => What::Include { path: path.as_str()?.to_owned(), is_public: value.get("public")?.as_bool()? },
            None => What::Forward { detail: text_of(value, "detail") },
        };
        let known = match value.get("known")? {
            Value::Null => None,
            known => Some((text_of(known, "path")?, to_stamp(known.get("stamp")?)?)),
        };
        Some(Self { user: text_of(value, "user")?, what, known })
    }

    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        send(to, self.to_json().to_string().as_bytes())?;
        to.flush()
    }

    /// Waits for one; `None`: nothing follows.
    pub(super) fn receive(from: &mut impl Read) -> io::Result<Option<Self>> {
        let bytes = match receive(from, HEAD_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        };
        let value = serde_json::from_slice(&bytes).ok();
        value.as_ref().and_then(Self::from_json).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Reply {
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let head = match self {
            Self::Absent => json!({"kind": "absent"}),
            Self::Unchanged => json!({"kind": "unchanged"}),
            Self::Text { path, stamp, is_exclusive, .. } => {
                json!({"kind": "text", "path": path, "stamp": of_stamp(stamp), "exclusive": is_exclusive})
            }
            Self::Denied { path } => json!({"kind": "denied", "path": path}),
            Self::Refused { path, why, stamp } => {
                json!({"kind": "refused", "path": path, "why": why, "stamp": stamp.as_ref().map(of_stamp)})
            }
            Self::Trouble(why) => json!({"kind": "trouble", "why": why}),
            Self::OtherUser => json!({"kind": "other user"}),
        };
        send(to, head.to_string().as_bytes())?;
        if let Self::Text { text, .. } = self {
            send(to, text.as_bytes())?;
        }
        to.flush()
    }

    /// Waits for one, whose text has no more octets than a file of `bytes_max` can have once it is UTF-8.
    pub(super) fn receive(from: &mut impl Read, bytes_max: u64) -> io::Result<Self> {
        let no_reply = || io::Error::from(io::ErrorKind::InvalidData);
        let head: Value = serde_json::from_slice(&receive(from, HEAD_BYTES_MAX)?).map_err(|_| no_reply())?;
        let why = || text_of(&head, "why").map(|why| plain(&why));
        let path = || text_of(&head, "path").map(|path| plain(&path));
        let stamp = || head.get("stamp").and_then(to_stamp);
        let reply = match head.get("kind").and_then(Value::as_str) {
            Some("absent") => Some(Self::Absent),
            Some("unchanged") => Some(Self::Unchanged),
            Some("denied") => path().map(|path| Self::Denied { path }),
            Some("refused") => path().zip(why()).map(|(path, why)| Self::Refused { path, why, stamp: stamp() }),
            Some("trouble") => why().map(Self::Trouble),
            Some("other user") => Some(Self::OtherUser),
            Some("text") => {
                let text_max = u32::try_from(bytes_max.saturating_mul(3)).unwrap_or(u32::MAX);
                let text = String::from_utf8(receive(from, text_max)?).map_err(|_| no_reply())?;
                let is_exclusive = head.get("exclusive").and_then(Value::as_bool).unwrap_or(false);
                path().zip(stamp()).map(|(path, stamp)| Self::Text { path, text, stamp, is_exclusive })
            }
            _ => None,
        };
        reply.ok_or_else(no_reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { device: 1, inode: u64::MAX, size: 3, written: [-4, 5], changed: [6, 7], mode: 0o100_644, uid: 1000 }
    }

    #[test]
    fn values_cross_the_border_between_processes_unchanged() {
        let known = Some(("/h/joe/.forward".to_owned(), stamp()));
        for what in [
            What::Forward { detail: None },
            What::Forward { detail: Some("a b".to_owned()) },
            What::Include { path: "/x\n".to_owned(), is_public: true },
        ] {
            for known in [None, known.clone()] {
                let request = Request { user: "joe".to_owned(), what: what.clone(), known };
                let mut wire = Vec::new();
                request.send(&mut wire).unwrap();
                assert_eq!(Request::receive(&mut wire.as_slice()).unwrap(), Some(request));
            }
        }
        let path = || "/h/joe/.forward".to_owned();
        for reply in [
            Reply::Absent,
            Reply::Unchanged,
            Reply::Text { path: path(), text: "é\n".repeat(50_000), stamp: stamp(), is_exclusive: true },
            Reply::Text { path: path(), text: String::new(), stamp: stamp(), is_exclusive: false },
            Reply::Denied { path: path() },
            Reply::Refused { path: path(), why: "x".to_owned(), stamp: None },
            Reply::Refused { path: path(), why: "x".to_owned(), stamp: Some(stamp()) },
            Reply::Trouble("later".to_owned()),
            Reply::OtherUser,
        ] {
            let mut wire = Vec::new();
            reply.send(&mut wire).unwrap();
            assert_eq!(Reply::receive(&mut wire.as_slice(), 100_000).unwrap(), reply);
            for end in 0..wire.len().min(300) {
                assert!(Reply::receive(&mut &wire[..end], 100_000).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn a_process_that_lies_is_bounded() {
        let text = Reply::Text { path: "/x".into(), text: "x".repeat(31), stamp: stamp(), is_exclusive: true };
        let mut wire = Vec::new();
        text.send(&mut wire).unwrap();
        assert!(Reply::receive(&mut wire.as_slice(), 10).is_err(), "longer than a file of ten octets can be");
        let huge = [0xff_u8, 0xff, 0xff, 0xff, b'{'];
        assert!(Reply::receive(&mut huge.as_slice(), 10).is_err());
        let mut wire = Vec::new();
        Reply::Trouble(format!("a\nforged: line{}", "x".repeat(2_000))).send(&mut wire).unwrap();
        let Reply::Trouble(why) = Reply::receive(&mut wire.as_slice(), 10).unwrap() else { panic!() };
        assert!(why.starts_with("a?forged") && why.len() == WHY_MAX, "{why}");
    }
}

//! The files of a queue directory by their names: two letters and the queue id.

/// A file of a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueFile {
    /// The kind of content.
    pub kind: FileKind,
    /// sendmail's queue id: letters and digits.
    pub id: String,
}

/// The kind of content of a file of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `qf`: envelope and header.
    Control,
    /// `hf`: the same, of a message in quarantine.
    Quarantined,
    /// `Qf`: a control file that sendmail could not read.
    Lost,
    /// `df`: the text.
    Data,
    /// `tf`: a control file that is being written.
    Temporary,
    /// `xf`: the transcript of present attempts.
    Transcript,
}

impl FileKind {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Control, "qf"),
        (Self::Quarantined, "hf"),
        (Self::Lost, "Qf"),
        (Self::Data, "df"),
        (Self::Temporary, "tf"),
        (Self::Transcript, "xf"),
    ];

    /// The two letters.
    #[must_use]
    pub fn letters(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("qf", |(_, letters)| letters)
    }
}

impl QueueFile {
    /// Longest queue id: sendmail's have 14 to 22 characters.
    pub const ID_OCTETS_MAX: usize = 64;

    /// Reads the name of a file; `None` for other names.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        let (letters, id) = name.split_at_checked(2)?;
        let (kind, _) = FileKind::ALL.iter().find(|(_, known)| *known == letters)?;
        let is_id =
            (1..=Self::ID_OCTETS_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_id.then(|| Self { kind: *kind, id: id.to_owned() })
    }

    /// The name of the file.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", self.kind.letters(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in ["qf6AMEJT6u000101", "hfa", "QfABC", "df1", "tf1", "xf1"] {
            assert_eq!(QueueFile::read(name).unwrap().name(), name);
        }
        for name in
            ["qf", "q", "", "qfa/b", "qfa.b", "sm-client.pid", "qd1", "nf1", "äf1", &format!("qf{}", "a".repeat(65))]
        {
            assert_eq!(QueueFile::read(name), None, "{name}");
        }
    }
}

//! Files that aliases name: `:include:` lists and `.forward`.
//!
//! A file is read again when its time, size or number has changed. A text that many messages need is in memory once.

use super::accounts::Users;
use route::question::Answer;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The largest file of a list.
const BYTES_MAX: u64 = 256 << 20;
/// The largest `.forward`.
const FORWARD_BYTES_MAX: u64 = 64 << 10;
/// Files that are kept; beyond it all are forgotten.
const KEPT_MAX: usize = 256;

/// Texts of files, with what told of their state.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<HashMap<Box<str>, (Stamp, Kept)>>);

/// A file as it was read.
#[derive(Clone, Debug)]
struct Kept {
    text: Arc<str>,
    /// Whose programs and files it may name.
    owner: Option<Arc<str>>,
}

/// What differs when a file was written, or given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
    mode: u32,
    uid: u32,
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            seconds: found.mtime(),
            nanoseconds: found.mtime_nsec(),
            mode: found.mode(),
            uid: found.uid(),
        }
    }
}

impl Files {
    /// The text of an `:include:` file. One that is not there is a mistake that somebody will mend: mail waits for that.
    pub(super) fn include(&self, users: &Users, path: &str) -> Answer {
        match self.read(users, path, BYTES_MAX) {
            Ok(Kept { text, owner }) => Answer::Text { text, file: path.into(), owner },
            Err((_, why)) => Answer::Trouble(format!(":include: {path}: {why}").into()),
        }
    }

    /// The text of the `.forward` in a user's home; nothing if there is none that may be read.
    pub(super) fn forward(&self, users: &Users, home: &str, detail: Option<&str>) -> Answer {
        let detailed = detail.filter(|detail| !detail.contains('/')).map(|detail| format!("{home}/.forward+{detail}"));
        for path in detailed.into_iter().chain([format!("{home}/.forward")]) {
            match self.read(users, &path, FORWARD_BYTES_MAX) {
                Ok(Kept { text, owner }) => return Answer::Text { text, file: path.into(), owner },
                Err((ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory, _)) => {}
                Err((_, why)) => return Answer::Trouble(format!("{path}: {why}").into()),
            }
        }
        Answer::Nothing
    }

    fn read(&self, users: &Users, path: &str, bytes_max: u64) -> Result<Kept, (ErrorKind, String)> {
        let told = |error: std::io::Error| (error.kind(), error.to_string());
        let found = std::fs::metadata(path).map_err(told)?;
        if !found.is_file() {
            return Err((ErrorKind::Other, "it is no plain file".to_owned()));
        }
        let stamp = Stamp::of(&found);
        if let Some((known, kept)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path)
            && *known == stamp
        {
            return Ok(kept.clone());
        }
        if found.mode() & 0o002 != 0 {
            return Err((ErrorKind::Other, format!("every user of this host can write it; chmod o-w {path}")));
        }
        if found.len() > bytes_max {
            return Err((ErrorKind::Other, format!("it has {} octets, more than {bytes_max}", found.len())));
        }
        let text = text_of(Path::new(path), bytes_max).map_err(told)?;
        // What others of its group can write is not its owner's word alone.
        let owner = match found.mode() & 0o022 {
            0 => users.with_shell(found.uid()).map_err(|why| (ErrorKind::Other, why))?,
            _ => None,
        };
        let read = Kept { text, owner };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(path.into(), (stamp, read.clone()));
        Ok(read)
    }
}

fn text_of(path: &Path, bytes_max: u64) -> std::io::Result<Arc<str>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        // A line that is none is no address; the others are.
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users { passwd: "/etc/passwd".into(), library: None }
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list").to_str().unwrap().to_owned();
        let files = Files::default();
        assert!(matches!(files.include(&users(), &path), Answer::Trouble(why) if why.contains("No such file")));
        std::fs::write(&path, "a@x.test\n").unwrap();
        let Answer::Text { text, .. } = files.include(&users(), &path) else { panic!() };
        assert_eq!(&*text, "a@x.test\n");
        std::fs::write(&path, "a@x.test\nb@x.test\n").unwrap();
        let Answer::Text { text, .. } = files.include(&users(), &path) else { panic!() };
        assert_eq!(text.lines().count(), 2);
        let Answer::Text { text: again, .. } = files.include(&users(), &path) else { panic!() };
        assert!(Arc::ptr_eq(&text, &again), "it is kept");
        use std::os::unix::fs::PermissionsExt as _;
        let open = std::fs::Permissions::from_mode(0o666);
        std::fs::write(&path, "evil@x.test\n").unwrap();
        std::fs::set_permissions(&path, open).unwrap();
        assert!(matches!(files.include(&users(), &path), Answer::Trouble(why) if why.contains("chmod o-w")));
    }
}

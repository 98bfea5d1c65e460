//! The files a configuration names: are they there, and can they be read?
//!
//! `mailrace check` asks this, and the server before it starts. Their readers check the content.

use super::instance::instance;
use super::loaded::Loaded;
use super::parameters::find;
use super::problem::{Problem, Severity, SourceLocation};
use super::{Config, DkimKey, Local, LogPath, Tls};
use std::path::{Path, PathBuf};

/// The kind of file at a path, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileStatus {
    /// A file that can be read; `open_to_others`: by every user of this host.
    File {
        /// Others than its owner and group may read it.
        open_to_others: bool,
    },
    /// A directory.
    Directory,
    /// Nothing.
    Missing,
    /// Something that cannot be read, and why.
    Unreadable(String),
}

/// Looks at files.
pub trait Files {
    /// Returns the kind of file at a path.
    fn look(&self, path: &Path) -> FileStatus;

    /// Lists the faults in a file of rules by which replies get their reason.
    fn reason_faults(&self, _: &Path) -> Vec<String> {
        Vec::new()
    }

    /// Why a file cannot be trusted that this server keeps a secret or its configuration in: another user can write it.
    fn unsafe_secret(&self, _: &Config, _: &Path) -> Option<String> {
        None
    }

    /// The user that the server becomes, if it cannot read this file, which root can.
    fn user_without_rights(&self, _: &Config, _: &Path) -> Option<String> {
        None
    }

    /// Why a file cannot be trusted that decides about mail and holds no secret.
    fn unsafe_map(&self, _: &Config, _: &Path) -> Option<String> {
        None
    }

    /// Why programs of aliases could read mail: what their user has in common with mailboxes.
    fn mailboxes_of_default_user(&self, _: &Local) -> Option<String> {
        None
    }

    /// Returns the fault of a key for signatures, as the server reads it.
    fn dkim_key_fault(&self, _: &DkimKey) -> Option<String> {
        None
    }

    /// Returns the faults of certificates and keys, as the server reads them: each with its file and the reason.
    fn certificates(&self, _: &Tls) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Whether another user can write the file of the configuration. Such a user could run programs as the user that it
/// names, as root.
#[must_use]
pub fn check_own_file(loaded: &Loaded, files: &dyn Files) -> Option<Problem> {
    // Also the shared one: other nodes may have read what its owner here has changed.
    let mut paths = loaded.path.iter().chain(&loaded.shared);
    let why = paths.find_map(|path| files.unsafe_secret(&loaded.config, path))?;
    Some(SourceLocation::problem(None, Severity::Error, "", format!("the configuration does not count: {why}")))
}

/// Problems with the files that a configuration names, and with its own.
#[must_use]
pub fn check_files(loaded: &Loaded, files: &dyn Files) -> Vec<Problem> {
    let config = &loaded.config;
    let mut check = Check { loaded, files, problems: Vec::new() };
    for path in &config.tls.certificate {
        check.readable("tls.certificate", path, false);
    }
    for path in &config.tls.ca_files {
        check.readable("tls.ca_files", path, false);
    }
    for path in &config.tls.client_ca {
        check.readable("tls.client_ca", path, false);
    }
    for path in &config.tls.key {
        check.readable("tls.key", path, true);
    }
    check.rights(config);
    if check.problems.iter().all(|problem| problem.severity != Severity::Error) && !config.tls.certificate.is_empty() {
        check.certificates(&config.tls);
    }
    if let Some(path) = &config.auth.file {
        check.readable("auth.file", path, true);
        if let Some(why) = files.unsafe_secret(config, path) {
            check.add(Severity::Error, "auth.file", format!("auth.file: {why}"), "");
        }
    }
    check.problems.extend(check_own_file(loaded, files));
    if let Some(program) = config.auth.program.first() {
        check.readable("auth.program", Path::new(program), false);
    }
    check.owners(config);
    check.dkim_keys(config);
    for (key, list) in [("http.certificate", &config.http.certificate), ("http.client_ca", &config.http.client_ca)] {
        for path in list {
            check.readable(key, path, false);
        }
    }
    for path in &config.http.key {
        check.readable("http.key", path, true);
    }
    check.http_tokens(config);
    check.webhooks(config);
    check.cluster(config);
    check.cluster_system(config);
    if let Some(path) = &config.delivery.classes {
        check.readable("delivery.classes", path, false);
        for fault in files.reason_faults(path) {
            check.add(Severity::Error, "delivery.classes", format!("delivery.classes: {fault}"), "");
        }
    }
    if !config.maps.aliases.is_empty()
        && let Some(why) = files.mailboxes_of_default_user(&config.local)
    {
        let shown = &config.local.default_user;
        check.add(
            Severity::Warning,
            "local.default_user",
            format!(
                "local.default_user = \"{shown}\": this user {why}, so programs of aliases can read mail of others"
            ),
            "make a user that owns nothing and is in no such group (useradd --system mailnull), and name it",
        );
    }
    check.places(config);
    check.problems.sort_by(|a, b| a.order().cmp(&b.order()));
    check.problems
}

/// Says that the server cannot read a file after it has given up root.
#[must_use]
pub fn unreadable_by_server(key: &str, path: &Path, user: &str) -> String {
    let shown = path.display();
    format!(
        "{key}: the user \"{user}\" cannot read {shown}: a reload keeps what the start has read as root; let its group \
         read file and directories (chgrp, chmod g+r), or restart after each change"
    )
}

struct Check<'a> {
    loaded: &'a Loaded,
    files: &'a dyn Files,
    problems: Vec<Problem>,
}

impl Check<'_> {
    /// Asks whether others could have written files that decide about mail.
    fn owners(&mut self, config: &Config) {
        let files = self.files;
        for (index, table) in config.ldap.iter().enumerate() {
            let why = table.password_file.as_ref().and_then(|path| files.unsafe_secret(config, path));
            self.refuse("ldap.password_file", index, why);
        }
        for (index, table) in config.sqlite.iter().enumerate() {
            self.refuse("sqlite.path", index, files.unsafe_map(config, &table.path));
        }
        let classes = config.delivery.classes.as_ref();
        self.refuse("delivery.classes", 0, classes.and_then(|path| files.unsafe_map(config, path)));
    }

    /// Warns of files of TLS that only root can read.
    fn rights(&mut self, config: &Config) {
        let files = self.files;
        let tls = &config.tls;
        let lists = [("tls.certificate", &tls.certificate), ("tls.key", &tls.key), ("tls.client_ca", &tls.client_ca)];
        for (key, path) in lists.into_iter().flat_map(|(key, list)| list.iter().map(move |path| (key, path))) {
            if let Some(user) = files.user_without_rights(config, path) {
                self.add(Severity::Warning, key, unreadable_by_server(key, path, &user), "");
            }
        }
    }

    fn refuse(&mut self, key: &'static str, index: usize, why: Option<String>) {
        if let Some(why) = why {
            self.add_at(Severity::Error, (key, index), format!("{key}: {why}"), "");
        }
    }

    fn add(&mut self, severity: Severity, key: &'static str, text: String, suggestion: &str) {
        self.add_at(severity, (key, 0), text, suggestion);
    }

    /// Adds a problem of the table with this index, where a key comes in several.
    fn add_at(&mut self, severity: Severity, (key, index): (&'static str, usize), text: String, suggestion: &str) {
        let name = find(key).map_or_else(String::new, |parameter| instance(parameter, index));
        let mut problem = SourceLocation::problem(self.loaded.places.of(key, index), severity, name, text);
        problem.suggestion = (!suggestion.is_empty()).then(|| suggestion.to_owned());
        self.problems.push(problem);
    }

    fn readable(&mut self, key: &'static str, path: &Path, is_secret: bool) {
        self.readable_at((key, 0), path, is_secret);
    }

    /// Asks whether a file can be read. Returns whether it can.
    fn readable_at(&mut self, at: (&'static str, usize), path: &Path, is_secret: bool) -> bool {
        let (shown, key) = (path.display(), at.0);
        match self.files.look(path) {
            FileStatus::File { open_to_others: true } if is_secret => {
                let text = format!("{key}: every user of this host can read {shown}");
                self.add_at(Severity::Warning, at, text, &format!("chmod o-r {shown}"));
                return true;
            }
            FileStatus::File { .. } => return true,
            FileStatus::Missing => {
                let hint = "relative paths begin at the directory of the configuration file";
                self.add_at(Severity::Error, at, format!("{key}: there is no file {shown}"), hint);
            }
            FileStatus::Directory => {
                self.add_at(Severity::Error, at, format!("{key}: {shown} is a directory"), "name the file in it");
            }
            FileStatus::Unreadable(why) => {
                self.add_at(Severity::Error, at, format!("{key}: {shown} cannot be read: {why}"), "");
            }
        }
        false
    }

    /// Checks the files of keys for signatures: rights, owners, content.
    fn dkim_keys(&mut self, config: &Config) {
        let files = self.files;
        for (index, key) in config.dkim.keys.iter().enumerate() {
            let at = ("dkim.key.file", index);
            if !self.readable_at(at, &key.file, true) {
                continue;
            }
            self.refuse(at.0, index, files.unsafe_secret(config, &key.file));
            self.refuse(at.0, index, files.dkim_key_fault(key));
            if let Some(user) = files.user_without_rights(config, &key.file) {
                self.add_at(Severity::Warning, at, unreadable_by_server(at.0, &key.file, &user), "");
            }
        }
    }

    /// Checks the files of tokens of HTTP: rights and owners. The server checks the content when it reads them.
    fn http_tokens(&mut self, config: &Config) {
        let files = self.files;
        for (index, token) in config.http.tokens.iter().enumerate() {
            let at = ("http.token.file", index);
            if !self.readable_at(at, &token.file, true) {
                continue;
            }
            self.refuse(at.0, index, files.unsafe_secret(config, &token.file));
            if let Some(user) = files.user_without_rights(config, &token.file) {
                self.add_at(Severity::Warning, at, unreadable_by_server(at.0, &token.file, &user), "");
            }
        }
    }

    /// Checks the files of secrets of webhooks: rights and owners.
    fn webhooks(&mut self, config: &Config) {
        let files = self.files;
        for (index, webhook) in config.webhooks.iter().enumerate() {
            let at = ("webhook.secret_file", index);
            let is_signed = !webhook.secret_file.as_os_str().is_empty();
            if is_signed && self.readable_at(at, &webhook.secret_file, true) {
                self.refuse(at.0, index, files.unsafe_secret(config, &webhook.secret_file));
            }
        }
    }

    /// Checks the files of the login at engines, which the server reads again at each connection.
    fn cluster(&mut self, config: &Config) {
        let cluster = &config.cluster;
        if !cluster.is_used() {
            return;
        }
        for (key, path, is_secret) in [
            ("cluster.password_file", &cluster.password_file, true),
            ("cluster.nkey_file", &cluster.nkey_file, true),
            ("cluster.credentials_file", &cluster.credentials_file, true),
            ("cluster.ca_file", &cluster.ca_file, false),
        ] {
            let Some(path) = path.as_ref().filter(|path| self.readable_at((key, 0), path, is_secret)) else { continue };
            self.refuse(key, 0, if is_secret { self.files.unsafe_secret(config, path) } else { None });
            if let Some(user) = self.files.user_without_rights(config, path) {
                let shown = path.display();
                let text = format!("{key}: the user \"{user}\" cannot read {shown}, and connects to the engines");
                self.add(Severity::Error, key, text, &format!("chgrp {user} {shown}; chmod 0640 {shown}"));
            }
        }
    }

    /// Checks the file of the login at the system account. Commands read it as another user than the server's, so a
    /// fault of it is no reason against a start.
    fn cluster_system(&mut self, config: &Config) {
        let key = "cluster.system_password_file";
        let Some(path) = config.cluster.system_password_file.as_ref().filter(|_| config.cluster.is_used()) else {
            return;
        };
        let shown = path.display();
        match self.files.look(path) {
            FileStatus::File { open_to_others: true } => {
                let text = format!("{key}: every user of this host can read {shown}");
                self.add(Severity::Warning, key, text, &format!("chmod o-r {shown}"));
            }
            FileStatus::Missing | FileStatus::Directory => {
                let text = format!("{key}: there is no file {shown}, which mailrace cluster leave --node reads");
                let hint = "copy it from another node of the cluster, or remove cluster.system_user";
                self.add(Severity::Warning, key, text, hint);
            }
            FileStatus::File { .. } | FileStatus::Unreadable(_) => {}
        }
    }

    /// Checks the content of the files of TLS.
    fn certificates(&mut self, settings: &Tls) {
        for (object, text) in self.files.certificates(settings) {
            let named = |list: &[PathBuf]| list.iter().any(|path| path.display().to_string() == object);
            let lists = [
                ("tls.certificate", &settings.certificate),
                ("tls.key", &settings.key),
                ("tls.client_ca", &settings.client_ca),
            ];
            let key = lists.into_iter().find(|(_, list)| named(list)).map(|(key, _)| key);
            let text = key.map_or_else(|| text.clone(), |key| format!("{key}: {text}"));
            self.add(Severity::Error, key.unwrap_or("tls.certificate"), text, "");
        }
    }

    /// Directories in which files will be made.
    fn places(&mut self, config: &Config) {
        match self.files.look(&config.spool.path) {
            FileStatus::Directory | FileStatus::Missing => {}
            FileStatus::File { .. } => {
                let text = format!("spool.path: {} is a file", config.spool.path.display());
                self.add(Severity::Error, "spool.path", text, "name a directory, or one that can be made");
            }
            FileStatus::Unreadable(why) => {
                let text = format!("spool.path: {} cannot be read: {why}", config.spool.path.display());
                self.add(Severity::Error, "spool.path", text, "");
            }
        }
        if let Some(path) = &config.maps.directory
            && self.files.look(path) == FileStatus::Missing
        {
            // Maps may come later; until then there are none.
            let text = format!("maps.directory: there is no directory {}, so no map is read from it", path.display());
            self.add(Severity::Warning, "maps.directory", text, &format!("mkdir -p {}", path.display()));
        }
        if let LogPath::File(path) = &config.log.path {
            self.written_file("log.path", path);
        }
        if let Some(path) = &config.history.path {
            self.written_file("history.path", path);
        }
        // A start by root makes the directory, and systemd does with RuntimeDirectory=.
        let directory = config.control.path.parent();
        let is_made = self.loaded.machine.is_root
            && directory.is_some_and(|directory| matches!(self.files.look(directory), FileStatus::Missing));
        if self.loaded.places.of("control.path", 0).is_some() && !is_made {
            self.directory_of("control.path", &config.control.path);
        }
    }

    /// Checks the place of a file that the server makes.
    fn written_file(&mut self, key: &'static str, path: &Path) {
        if self.files.look(path) == FileStatus::Directory {
            self.add(Severity::Error, key, format!("{key}: {} is a directory", path.display()), "name a file in it");
        }
        self.directory_of(key, path);
    }

    fn directory_of(&mut self, key: &'static str, path: &Path) {
        let directory = match path.parent() {
            Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
            Some(directory) => directory,
            None => return,
        };
        match self.files.look(directory) {
            FileStatus::Directory => {}
            FileStatus::Missing => {
                let text = format!("{key}: there is no directory {}", directory.display());
                self.add(Severity::Error, key, text, &format!("mkdir -p {}", directory.display()));
            }
            FileStatus::File { .. } => {
                self.add(Severity::Error, key, format!("{key}: {} is no directory", directory.display()), "");
            }
            FileStatus::Unreadable(why) => {
                self.add(Severity::Error, key, format!("{key}: {} cannot be read: {why}", directory.display()), "");
            }
        }
    }
}

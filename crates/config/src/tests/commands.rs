//! Texts of the commands, overrides, and the files that are named.

use super::super::commands::{Form, check, defaults, explain, show, values};
use super::super::{FileStatus, Files, Loaded, Machine, Problem, Severity, check_files, load, render};
use serde_json::Value;
use std::path::Path;

fn loaded(text: &str, overrides: &[&str]) -> Result<Loaded, Vec<Problem>> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    load(text, Some(Path::new("/etc/m.toml")), &overrides, &Machine::default())
}

#[test]
fn show_says_where_values_come_from() {
    let loaded = loaded("\nlog.level = 12\nspool.path = 'here'", &["relay.to=example.com"]).expect("fine");
    let shown = show(&loaded, &["log.level".to_owned(), "relay".to_owned(), "spool.path".to_owned()], Form::Text)
        .expect("keys");
    assert_eq!(
        shown,
        "spool.path = \"/etc/here\"                         # /etc/m.toml:3; default \"/var/lib/mailrace/spool\"\n\
         relay.from = [\"127.0.0.0/8\", \"::1/128\"]          # default\n\
         relay.to = [\"example.com\"]                       # --set; default []\n\
         relay.to_files = []                              # default\n\
         log.level = 12                                   # /etc/m.toml:2; default 9\n"
    );
    let all = show(&loaded, &[], Form::Text).expect("all");
    assert!(
        all.starts_with("# file: /etc/m.toml\n") && all.contains("[[listen]]\naddress = \"127.0.0.1:2525\""),
        "{all}"
    );
    let json: Value =
        serde_json::from_str(&show(&loaded, &["listen".to_owned()], Form::Json).expect("keys")).expect("JSON");
    assert_eq!(json[0]["key"], "listen[1].address");
    assert_eq!((&json[0]["value"], &json[0]["set"]), (&"127.0.0.1:2525".into(), &"default".into()));
    let json: Value =
        serde_json::from_str(&show(&loaded, &["spool".to_owned()], Form::Json).expect("keys")).expect("JSON");
    assert_eq!((&json[0]["set"], &json[1]["value"]), (&"/etc/m.toml:3".into(), &(8_u64 << 30).into()));
    assert_eq!(
        show(&loaded, &["relay.form".to_owned()], Form::Text),
        Err("unknown key \"relay.form\"; did you mean \"relay.from\"?".to_owned())
    );
    let none = load("", None, &[], &Machine::default()).expect("defaults");
    assert!(show(&none, &[], Form::Text).expect("all").starts_with("# no file: "));
}

#[test]
fn explain_a_key_or_a_table() {
    let text = explain("spool.size_max", Form::Text).expect("a key");
    for part in [
        "spool.size_max: most space",
        "default   \"8GiB\"",
        "example   size_max = \"32GiB\"",
        "1MiB to 512TiB",
        "452 4.3.1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("cluster   in the own file of each node\n"), "{text}");
    let text = explain("relay.from", Form::Text).expect("a key");
    assert!(text.contains("or in the shared one (mailrace cluster push)"), "{text}");
    let text = explain("relay", Form::Text).expect("a table");
    assert!(text.contains("relay.from") && text.contains("relay.to") && text.lines().count() == 6, "{text}");
    assert!(explain("[[listen]]", Form::Text).expect("a table").contains("listen.address"));
    assert!(explain("log.format", Form::Json).is_ok_and(|text| serde_json::from_str::<Value>(&text).is_ok()));
    assert_eq!(explain("hostnam", Form::Text), Err("unknown key \"hostnam\"; did you mean \"hostname\"?".to_owned()));
    assert!(explain("", Form::Text).is_err() && explain("nothing like it", Form::Text).is_err());
    assert!(defaults().contains("#path = \"/var/spool/mailrace\""));
}

#[test]
fn check_counts() {
    let path = Path::new("/etc/m.toml");
    let fine = check(Some(path), &loaded("log.level = 1\nrelay.from = ['0.0.0.0/0']", &[]), &[], Form::Text);
    assert!(fine.is_ok && fine.text.ends_with("\n/etc/m.toml: ok, 2 keys set, 1 warning\n"), "{}", fine.text);
    let bad =
        check(Some(path), &loaded("log.level = 100\nhostnme = 1\nrelay.from = ['0.0.0.0/0']", &[]), &[], Form::Text);
    assert!(!bad.is_ok && bad.text.ends_with("\n/etc/m.toml: 2 errors, 1 warning\n"), "{}", bad.text);
    let json: Value = serde_json::from_str(&check(None, &loaded("x = 1", &[]), &[], Form::Json).text).expect("JSON");
    assert_eq!((&json["ok"], &json["problems"][0]["line"]), (&false.into(), &1.into()));
}

#[test]
fn overrides_replace_the_file() {
    let text = "hostname = 'a.example'\n[[listen]]\naddress = ':25'\n[relay]\nfrom = ['10.0.0.0/8']";
    let config = loaded(
        text,
        &["hostname=b.example", "listen=[{address='127.0.0.1:1'}]", "relay.from=192.0.2.1", "tls.version_min = 1.3"],
    )
    .expect("fine")
    .config;
    assert_eq!(
        (config.hostname.as_str(), config.listen.len(), config.tls.version_min.as_str()),
        ("b.example", 1, "1.3")
    );
    assert_eq!(config.relay.from, ["192.0.2.1/32".parse().expect("a network")]);
    assert!(loaded("auth.program = ['/x']", &["auth.program="]).expect("fine").config.auth.program.is_empty());
    // A value of the file that does not fit is an error although it will not be used.
    assert!(loaded("hostname = 1", &["hostname=b.example"]).is_err());
}

#[test]
fn overrides_have_places() {
    let problems = loaded("", &["log.level=50", "listen.address=:25", "nothing", "relay.from=[\"10.0.0.0/8\", \"x\"]"])
        .expect_err("wrong");
    assert_eq!(
        render(&problems),
        "\
error: unknown key \"listen.address\"
 --> --set:1:1
  |
1 | listen.address=:25
  | ^^^^^^^^^^^^^^
  = help: listen is a list of tables; set it as a whole: listen=[{…}]

error: there is no \"=\"
 --> --set:1:1
  |
1 | nothing
  | ^^^^^^^
  = expected: KEY=VALUE, such as log.level=10

error: log.level: 50 is out of range
 --> --set:1:11
  |
1 | log.level=50
  |           ^^
  = expected: a whole number from 0 to 20

error: relay.from: \"x\" is no network
 --> --set:1:27
  |
1 | relay.from=[\"10.0.0.0/8\", \"x\"]
  |                           ^^^
  = expected: a network such as \"10.0.0.0/8\" or an address such as \"192.0.2.1\"
"
    );
}

/// Files by the letters in their names.
struct Named;

impl Files for Named {
    fn look(&self, path: &Path) -> FileStatus {
        match path.to_str().expect("UTF-8") {
            text if text.contains("missing") => FileStatus::Missing,
            text if text.contains("secret") => FileStatus::File { open_to_others: false },
            text if text.contains("shut") => FileStatus::Unreadable("permission denied".to_owned()),
            text if text.contains('.') => FileStatus::File { open_to_others: true },
            _ => FileStatus::Directory,
        }
    }
}

#[test]
fn files_are_looked_at() {
    let said = |text: &str| -> Vec<(Severity, String)> {
        let loaded = loaded(text, &[]).unwrap_or_else(|problems| panic!("{}", render(&problems)));
        check_files(&loaded, &Named).into_iter().map(|problem| (problem.severity, problem.text)).collect()
    };
    assert_eq!(said(""), []);
    assert_eq!(said("[tls]\ncertificate = 'a.pem'\nkey = 'secret.pem'"), []);
    assert_eq!(
        said("[tls]\ncertificate = ['missing.pem', 'shut.pem']\nkey = ['key.pem', 'directory']"),
        [
            (Severity::Error, "tls.certificate: there is no file /etc/missing.pem".to_owned()),
            (Severity::Error, "tls.certificate: /etc/shut.pem cannot be read: permission denied".to_owned()),
            (Severity::Warning, "tls.key: every user of this host can read /etc/key.pem".to_owned()),
            (Severity::Error, "tls.key: /etc/directory is a directory".to_owned()),
        ]
    );
    assert_eq!(
        said("log.path = '/missing/log'\nspool.path = '/a.file'\ncontrol.path = '/a.file/control'"),
        [
            (Severity::Error, "log.path: there is no directory /missing".to_owned()),
            (Severity::Error, "spool.path: /a.file is a file".to_owned()),
            (Severity::Error, "control.path: /a.file is no directory".to_owned()),
        ]
    );
    assert_eq!(
        said("log.path = '/var/directory'\nhistory.path = '/missing/directory'"),
        [
            (Severity::Error, "log.path: /var/directory is a directory".to_owned()),
            (Severity::Error, "history.path: there is no directory /missing".to_owned()),
        ]
    );
    assert_eq!(
        said("history.path = '/var/directory'"),
        [(Severity::Error, "history.path: /var/directory is a directory".to_owned())]
    );
}

#[test]
fn the_file_of_the_system_account_is_no_reason_against_a_start() {
    let said = |file: &str| -> Vec<(Severity, String)> {
        let text = format!(
            "[cluster]\nid = '00112233445566778899aabbccddeeff'\nnode = 1\nengines = 'localhost'\ncopies = 1\n\
             system_user = 'system'\nsystem_password_file = '{file}'\n"
        );
        let loaded = loaded(&text, &[]).unwrap_or_else(|problems| panic!("{}", render(&problems)));
        check_files(&loaded, &Named).into_iter().map(|problem| (problem.severity, problem.text)).collect()
    };
    assert_eq!(said("secret"), []);
    assert_eq!(said("shut"), [], "the user of the server need not read it");
    let key = "cluster.system_password_file";
    let open = format!("{key}: every user of this host can read /etc/a.file");
    assert_eq!(said("a.file"), [(Severity::Warning, open)]);
    let missing = format!("{key}: there is no file /etc/missing, which mailrace cluster leave --node reads");
    assert_eq!(said("missing"), [(Severity::Warning, missing)]);
}

#[test]
fn root_needs_neither_a_named_user_nor_a_directory_of_the_control_socket() {
    let text = "control.path = '/missing/control'";
    let said = |machine: &Machine| -> Vec<String> {
        let loaded = load(text, Some(Path::new("/etc/m.toml")), &[], machine).expect("no error");
        let files = check_files(&loaded, &Named);
        let own = loaded.warnings.iter().map(|problem| problem.text.clone());
        own.chain(files.into_iter().map(|problem| problem.text))
            .filter(|text| text.contains("stay root") || text.contains("control"))
            .collect()
    };
    let root = Machine::new("mx.example.com", None);
    assert_eq!(said(&Machine { has_own_user: true, ..root.clone() }), Vec::<String>::new());
    assert_eq!(said(&root), ["the server would stay root after it has bound its ports"]);
    assert_eq!(said(&Machine::default()), ["control.path: there is no directory /missing"]);
}

#[test]
fn the_values_for_programs_lack_the_query_of_a_webhook() {
    let text = "hostname = 'a.test'\n[[webhook]]\nname = 'ops'\nurl = 'https://ops.test/hook?key=secret'\n\
                secret_file = '/ops.secret'\n";
    let loaded = load(text, None, &[], &Machine::default()).unwrap();
    let all = serde_json::to_string(&values(&loaded)).unwrap();
    assert!(all.contains("\"https://ops.test/hook\"") && !all.contains("key=secret"), "{all}");
}

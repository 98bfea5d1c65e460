//! Files that a user has written into the pickup directory by hand, and users who take all that one user can take.

use super::desk::{CONFIG, Desk, Done, finish, taken, wait_until_empty};
use mail::{MailParams, Recipient, ReversePath};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Uid;
use server::submit::{Filing, Submission, Terms};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use testkit::harness::{Letter, Server, Setup, copy_program, needs, poll};

/// A user of every machine, and one without a name.
const NOBODY: u32 = 65_534;
const OTHER: u32 = 4_711;

fn submission(sender: &str, is_chosen: bool) -> Submission {
    let sender = match sender {
        "" => ReversePath::Null,
        text => ReversePath::Address(text.parse().expect("an address")),
    };
    Submission {
        sender,
        is_chosen,
        on_behalf_of: None,
        adopted: None,
        params: MailParams::default(),
        terms: Terms::default(),
        recipients: vec![Recipient::new("joe@a.test".parse().expect("an address"))],
    }
}

/// A file in the directory as the user would have written it.
fn written(pickup: &Path, uid: u32, submission: &Submission, content: &str) -> PathBuf {
    let mut filing = Filing::begin(pickup, submission).expect("begun");
    filing.write(content.as_bytes()).expect("written");
    let path = pickup.join(filing.commit().expect("durable").name());
    chown(&path, Some(uid), None).expect("root can");
    path
}

/// Does something as another user: a thread has a user of its own, and files and connections it makes have that user.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root can");
            work()
        });
        thread.join().expect("it works")
    })
}

fn sendmail_as(desk: &Desk, uid: u32, arguments: &[&str]) -> Done {
    let copy = desk.path("copy");
    if !copy.exists() {
        copy_program(env!("CARGO_BIN_EXE_mailrace").as_ref(), &copy);
    }
    let mut command = std::process::Command::new(&copy);
    command.arg0("sendmail").args(arguments).env("MAILRACE_CONFIG", desk.path(CONFIG)).env("HOME", "/nonexistent");
    command.uid(uid).gid(uid).current_dir("/");
    finish(command, "Subject: x\n\nhello\n")
}

fn of<'a>(letters: &'a [Letter], subject: &str) -> &'a Letter {
    let field = format!("Subject: {subject}\r\n");
    let is_it = |letter: &&Letter| String::from_utf8_lossy(&letter.content).contains(&field);
    letters.iter().find(is_it).unwrap_or_else(|| panic!("{subject}: {letters:?}"))
}

#[test]
fn a_file_does_not_decide_whether_its_sender_is_remarked_on() {
    if !needs::root() {
        return;
    }
    let (desk, setup) = Desk::opened(Setup::new().set("submit.trusted", "[\"daemon\"]"));
    let pickup = desk.pickup();
    let cases = [
        ("hidden", NOBODY, "boss@e.test", false, true),
        ("hidden null", NOBODY, "", false, true),
        ("as root", NOBODY, "root@mx.test", false, true),
        ("nameless", OTHER, "joe@mx.test", false, true),
        ("other host", NOBODY, "nobody@e.test", false, true),
        ("own", NOBODY, "nobody@mx.test", false, false),
        ("own nameless", OTHER, "4711@mx.test", false, false),
        ("says chosen", NOBODY, "nobody@MX.test", true, false),
        ("trusted", 1, "boss@e.test", true, false),
        ("root", 0, "boss@e.test", true, false),
    ];
    for (subject, uid, sender, is_chosen, _) in cases {
        let content = format!("Subject: {subject}\r\n\r\nx\r\n");
        written(&pickup, uid, &submission(sender, is_chosen), &content);
    }
    let letters = taken(setup);
    assert_eq!(letters.len(), cases.len());
    for (subject, uid, _, _, is_warned) in cases {
        let letter = of(&letters, subject);
        let text = String::from_utf8_lossy(&letter.content);
        assert_eq!(text.contains("X-Authentication-Warning: mx.test: "), is_warned, "{subject}: {text}");
        assert_eq!(letter.envelope.received.client, mail::Client::Process { uid }, "{subject}");
    }
}

#[test]
fn odd_files_are_told_of_once_and_others_go_on() {
    if !needs::root() {
        return;
    }
    let setup = Setup::new();
    let desk = Desk::of(&setup);
    let pickup = desk.pickup();
    let mut server = setup.start();
    let name = |digit: char| pickup.join(format!("mail.{}", digit.to_string().repeat(32)));
    let foreign = desk.path("foreign");
    std::fs::write(&foreign, "of somebody").expect("written");
    chown(&foreign, Some(OTHER), Some(OTHER)).expect("root can");
    // A message in all but its place, that another user owns, moved here from a directory which both may write.
    let made =
        written(desk.path("").as_path(), OTHER, &submission("4711@mx.test", false), "Subject: forged\r\n\r\n.\r\n");
    chown(&made, Some(OTHER), Some(OTHER)).expect("root can");
    rustix::fs::rename(&made, name('0')).expect("moved");
    std::fs::hard_link(&foreign, name('1')).expect("linked");
    as_user(NOBODY, || {
        symlink("/etc/shadow", name('2')).expect("made");
        mknodat(CWD, name('3'), FileType::Fifo, Mode::RWXU, 0).expect("made");
        std::fs::create_dir_all(name('4').join("inner")).expect("made");
        std::fs::File::create(name('5')).and_then(|file| file.set_len(10 << 30)).expect("made");
        std::fs::write(name('6'), "no message".repeat(10)).expect("made");
        let filled = pickup.join(format!("bad.{}", "6".repeat(32)));
        std::fs::create_dir_all(filled.join("inner")).expect("made");
    });
    let in_the_name = Submission { on_behalf_of: Some(0), ..submission("root@mx.test", false) };
    written(&pickup, NOBODY, &in_the_name, "Subject: forged\r\n\r\n");
    let told = |server: &Server, why: &str| {
        server.log.iter().filter(|line| line.contains("is no message: ") && line.contains(why)).count()
    };
    for (why, times) in [
        ("its group is 4711", 1),
        ("it has 2 names", 1),
        ("a symbolic link", 1),
        ("it is no file", 2),
        ("octets, of ", 1),
        ("it does not begin as a message", 1),
        ("in the name of another user", 1),
    ] {
        poll(why, || {
            server.pass_over();
            (told(&server, why) >= times).then_some(())
        });
    }
    assert!(server.log.iter().any(|line| line.contains("by user 65534") && line.contains("removed after 7 days")));
    assert_eq!(std::fs::read_to_string(&foreign).expect("there"), "of somebody");
    let done = sendmail_as(&desk, OTHER, &["-v", "joe@a.test"]);
    assert!(done.exit == Some(0) && done.out.contains("accepted as "), "{done:?}");
    server.pass_over();
    assert_eq!(told(&server, ""), 8, "each once: {:#?}", server.log);
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), 1, "{letters:?}");
}

#[test]
fn files_of_one_user_take_no_room_of_others() {
    if !needs::root() {
        return;
    }
    let setup = Setup::new();
    let (aliases, list) = (setup.path("aliases"), setup.path("list"));
    std::fs::write(&aliases, format!("stuck: :include:{}\nowner-stuck: joe@x.test\n", list.display()))
        .expect("written");
    let setup = setup.set("maps.aliases", format!("[{aliases:?}]"));
    let setup = setup.set("submit.files_max", "40").set("submit.user_files_max", "10");
    let (desk, setup) = Desk::opened(setup);
    let stuck = vec![Recipient::new("stuck@mx.test".parse().expect("an address"))];
    let stuck = Submission { recipients: stuck, ..submission("nobody@mx.test", false) };
    for _ in 0..100 {
        written(&desk.pickup(), NOBODY, &stuck, "Subject: flood\r\n\r\n");
    }
    as_user(NOBODY, || {
        (0..100).for_each(|number| std::fs::write(desk.pickup().join(format!("odd.{number}")), "").expect("made"))
    });
    let mut server = setup.start();
    let full = desk.pickup().join("full");
    poll("full", || std::fs::read_to_string(&full).ok().filter(|text| text == "65534 200\n"));
    let done = sendmail_as(&desk, OTHER, &["-v", "ann@a.test"]);
    assert!(done.exit == Some(0) && done.out.contains("accepted as "), "{done:?}");
    let own = sendmail_as(&desk, NOBODY, &["ann@a.test"]);
    assert!(own.exit == Some(75) && own.err.contains("(submit.user_files_max)"), "{own:?}");
    server.wait_log("200 messages of user 65534 wait: as many as submit.user_files_max allows");
    assert_eq!(server.log.iter().filter(|line| line.contains("submit.files_max allows")).count(), 0);
}

#[test]
fn one_user_does_not_take_all_that_answer_commands() {
    if !needs::root() {
        return;
    }
    let setup = Setup::new();
    let desk = Desk::of(&setup);
    let socket = desk.pickup().join("socket");
    let mut server = desk.start(setup);
    // More than all had before, and more than one user has now. None says a word.
    let mut held: Vec<UnixStream> =
        as_user(NOBODY, || (0..300).map(|_| UnixStream::connect(&socket).expect("it listens")).collect());
    let done = sendmail_as(&desk, OTHER, &["-v", "joe@a.test"]);
    assert!(done.exit == Some(0) && done.out.contains("accepted as "), "{done:?}");
    // A user with too many commands reads a refusal, and his mail goes all the same.
    let last = held.last_mut().expect("many");
    last.set_read_timeout(Some(testkit::harness::SOON)).expect("set");
    let mut line = String::new();
    last.read_to_string(&mut line).expect("it is closed");
    assert!(line.contains("64 commands of user 65534 wait for an answer (submit.user_commands_max)"), "{line}");
    assert_eq!(sendmail_as(&desk, NOBODY, &["-odq", "joe@a.test"]).exit, Some(0));
    server.wait_log("submit.user_commands_max");
    wait_until_empty(&server, &desk.pickup());
    drop(held);
    poll("room again", || {
        let done = sendmail_as(&desk, NOBODY, &["-v", "joe@a.test"]);
        done.out.contains("accepted as ").then_some(())
    });
}

#[test]
fn a_socket_of_somebody_else_is_not_asked() {
    if !needs::root() {
        return;
    }
    let (desk, setup) = Desk::opened(Setup::new());
    let socket = desk.pickup().join("socket");
    // The server is down, and its socket may be gone: then any user can make one.
    drop(std::fs::remove_file(&socket));
    let listener = as_user(NOBODY, || std::os::unix::net::UnixListener::bind(&socket).expect("made"));
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).expect("root can");
    let liar = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody asks");
        stream.set_read_timeout(Some(testkit::harness::SOON)).expect("set");
        drop(stream.write_all(b"{\"refused\":[{\"to\":\"joe@a.test\",\"text\":\"550 5.1.1 no\"}]}\n"));
        let mut heard = String::new();
        drop(stream.read_to_string(&mut heard));
        heard
    });
    let done = desk.sendmail(&["joe@a.test"], "Subject: x\n\nx\n");
    assert_eq!((done.exit, done.out.as_str()), (Some(0), ""), "{done:?}");
    assert_eq!(liar.join().expect("it ends"), "", "the name of the file is no secret any more");
    let letters = taken(setup);
    assert_eq!(letters.len(), 1, "the server replaces the socket and takes the message");
}

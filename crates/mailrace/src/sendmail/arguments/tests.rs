//! Command lines as programs write them, and some that no program writes.

use super::*;
use proptest::prelude::*;

fn read(line: &str) -> Result<SendmailArguments, Wrong> {
    parse(line.split(' ').filter(|word| !word.is_empty()).map(|word| OsString::from(word.replace('~', " "))))
}

#[test]
fn every_flag_is_taken() {
    for flag in [
        "-Ac",
        "-Am",
        "-A c",
        "-B7BIT",
        "-B 8bitmime",
        "-bm",
        "-ba",
        "-C/etc/x",
        "-c",
        "-D /dev/null",
        "-d",
        "-d0.1",
        "-ep",
        "-em",
        "-e q",
        "-FName",
        "-F Name",
        "-fa@b",
        "-f a@b",
        "-r a@b",
        "-G",
        "-h3",
        "-h 3",
        "-I",
        "-i",
        "-L tag",
        "-M x",
        "-m",
        "-N never",
        "-N success,failure,delay",
        "-n",
        "-O DeliveryMode=b",
        "-OErrorMode=m",
        "-o i",
        "-oi",
        "-odb",
        "-oem",
        "-oo",
        "-om",
        "-oT5d",
        "-p SMTP:host",
        "-Q",
        "-Qreason",
        "-q",
        "-q15m",
        "-q1h30m",
        "-qp10m",
        "-qf",
        "-qGx",
        "-qIa",
        "-q!Ra",
        "-qSa",
        "-qQ",
        "-qQx",
        "-qL",
        "-Rhdrs",
        "-R full",
        "-s",
        "-T",
        "-t",
        "-U",
        "-V env",
        "-v",
        "-X /dev/null",
        "-x",
        "-z",
        "-ti",
        "-vti",
        "--",
    ] {
        let arguments = read(&format!("{flag} joe")).unwrap_or_else(|wrong| panic!("{flag}: {wrong:?}"));
        // Those that may stand alone take no word of others.
        assert_eq!(arguments.words, if flag == "-o i" { vec!["i", "joe"] } else { vec!["joe"] }, "{flag}");
    }
}

#[test]
fn what_callers_really_say() {
    let cron = read("-i -FCronDaemon -odi -oem root").unwrap();
    assert_eq!(
        (cron.full_name.as_deref(), cron.ignores_dots, cron.words.as_slice()),
        (Some("CronDaemon"), true, &["root".to_owned()][..])
    );
    assert_eq!((cron.delivery, cron.errors), (Delivery::Interactive, Errors::Mail));
    let php = read("-t -i -fweb@x.test").unwrap();
    assert!(php.takes_recipients && php.ignores_dots && php.sender.as_deref() == Some("web@x.test"));
    let mutt = read("-oem -oi -f me@x.test -- a@b.test c@d.test").unwrap();
    assert_eq!(mutt.words.len(), 2);
    let null = read("-f").unwrap_err();
    assert_eq!((null.status, null.text.as_str()), (64, "sendmail: option requires an argument -- f"));
    assert_eq!(parse(["-f", ""].map(OsString::from)).unwrap().sender.as_deref(), Some(""));
    assert_eq!(read("joe -v").unwrap().words, ["joe", "-v"], "options end at the first word");
    assert_eq!(read("-bd -q15m").map(|found| (found.mode, found.has_interval)), Ok((Mode::Daemon, true)));
    assert_eq!(read("-q0").map(|found| found.has_interval), Ok(false));
    let filters = read("-qIabc -q!Rx@y -Qbad").unwrap();
    assert_eq!(
        (filters.filters.len(), filters.filters[1].is_not, filters.quarantine.as_deref()),
        (2, true, Some("bad"))
    );
}

#[test]
fn what_is_wrong_has_sendmails_words_and_statuses() {
    for (line, status, text) in [
        ("-Z joe", 64, "sendmail: illegal option -- Z"),
        ("-bfoo", 64, "Invalid operation mode f"),
        ("-N foo", 64, "Invalid -N argument"),
        ("-R foo", 64, "Invalid -R value"),
        ("-B foo", 64, "Illegal body type foo"),
        ("-h x", 64, "Bad hop count (x)"),
        ("-V a~b", 64, "Invalid syntax in -V flag"),
        ("-O Foo=bar", 70, "readcf: unknown option name Foo"),
        ("-f a -f b", 64, "More than one \"from\" person"),
        ("-qZ", 64, "Invalid time unit `Z'"),
        ("-:", 64, "illegal option"),
    ] {
        let wrong = read(line).unwrap_err();
        assert!(wrong.status == status && wrong.text.contains(text), "{line}: {wrong:?}");
    }
}

proptest! {
    #[test]
    fn no_command_line_panics(words in prop::collection::vec("-?[A-Za-z:!0-9=@. ]{0,6}|.{0,4}", 0..6)) {
        match parse(words.iter().map(OsString::from)) {
            Ok(arguments) => prop_assert!(arguments.words.len() <= words.len()),
            Err(wrong) => prop_assert!([64, 70].contains(&wrong.status)),
        }
    }
}

//! Entries of the access map about servers and routing: TLS that is demanded or not tried, logins, extensions that are
//! left alone, copies, queue groups. Next hops must not see secret mail in clear.

use crate::hop::{Act, At, Hop, Manners};
use crate::wire::{signed, tls_config};
use crate::world::{any_line, by_literal, ends_empty, send, wait_line, waiting};
use server::auth::{Scheme, hash_password};
use std::os::unix::fs::PermissionsExt as _;
use testkit::harness::{Server, Setup, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";
const TLS: [&str; 3] = ["PIPELINING", "STARTTLS", "ENHANCEDSTATUSCODES"];

/// A server with this access map; hops have one port.
fn with_access(hops: &[Hop], access: &str) -> Setup {
    let setup = by_literal(hops).set("local.mailbox", "\"none\"").set("maps.interval", "\"1s\"");
    let path = setup.path("access");
    std::fs::write(&path, access).expect("written");
    setup.set("maps.access", format!("{:?}", path.display().to_string()))
}

/// Writes another access map for a running server, which reads it.
fn change(server: &Server, access: &str) {
    std::fs::write(server.setup.path("access"), access).expect("written");
    let output = server.control(&["reload"], b"");
    assert!(output.status.success(), "{}", text(&output));
}

fn verbs(hop: &Hop) -> Vec<String> {
    hop.talks().concat().iter().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_certificate_that_is_demanded_is_verified() {
    let (good, root) = signed("hop.test");
    let manners = |tls| Manners { tls: Some(tls), ..Manners::offering(&TLS) };
    let hops = Hop::neighbours(vec![manners(good), manners(tls_config())]);
    let [known, stranger] = hops.as_slice() else { panic!() };
    let access = format!(
        "TLS_Srv:{} VERIFY:128+CN:hop.test.\nTLS_Srv:{} TEMP+VERIFY\n",
        known.address.ip(),
        stranger.address.ip()
    );
    let setup = with_access(&hops, &access);
    let authorities = setup.path("ca.pem");
    std::fs::write(&authorities, root).expect("written");
    let mut server = setup.set("tls.ca_files", format!("{:?}", authorities.display().to_string())).start();
    send(&server, "a@client.test", &[&known.mailbox("b"), &stranger.mailbox("b")], CONTENT);
    assert!(known.wait(1)[0].is_encrypted);
    let line = any_line(&mut server, &["STARTTLS=client", &known.ip()]);
    assert!(line.contains("verify=OK"), "{line}");
    let line = any_line(&mut server, &[&format!("to=<{}>", stranger.mailbox("b")), "stat=Deferred"]);
    assert!(line.contains("403 4.7.0 authentication failed") && line.contains("line 2"), "{line}");
    // The sender and recipient were shown to no host, neither in clear nor to a stranger under TLS.
    assert!(stranger.count() == 0 && !verbs(stranger).contains(&"MAIL".to_owned()), "{:?}", stranger.talks());
    change(&server, "");
    assert!(stranger.wait(1)[0].is_encrypted, "any certificate does where none is demanded");
    ends_empty(server);
}

#[test]
fn a_name_that_does_not_match_and_a_host_without_tls_are_found_out() {
    let (good, root) = signed("hop.test");
    let under_tls = Manners { tls: Some(good), ..Manners::offering(&TLS) };
    let hops = Hop::neighbours(vec![under_tls, Manners::default(), Manners::default()]);
    let [named, clear, sender] = hops.as_slice() else { panic!() };
    let access =
        format!("TLS_Srv:{} VERIFY+CN:other.test\nTLS_Srv:{} PERM+ENCR:112\n", named.address.ip(), clear.address.ip());
    let setup = with_access(&hops, &access);
    let authorities = setup.path("ca.pem");
    std::fs::write(&authorities, root).expect("written");
    let mut server = setup.set("tls.ca_files", format!("{:?}", authorities.display().to_string())).start();
    send(&server, &sender.mailbox("a"), &[&named.mailbox("b")], CONTENT);
    any_line(&mut server, &["stat=Deferred", "454 4.7.0 CN ", " does not match other.test"]);
    // For good: the sender hears of it.
    send(&server, &sender.mailbox("a"), &[&clear.mailbox("b")], CONTENT);
    let report = sender.wait(1)[0].text();
    assert!(report.contains("5.7.0") && report.contains("503 5.7.0 encryption too weak 0 less than 112"), "{report}");
    assert!(!verbs(clear).contains(&"MAIL".to_owned()), "{:?}", clear.talks());
    change(&server, "");
    named.wait(1);
    ends_empty(server);
}

#[test]
fn one_recipient_needs_tls_and_the_others_do_not_wait() {
    let hops = Hop::neighbours(vec![Manners::default()]);
    let hop = &hops[0];
    let access = format!("TLS_Rcpt:bank@[{}] TEMP+ENCR:128\n", hop.address.ip());
    let mut server = with_access(&hops, &access).start();
    let mails = ["one", "bank", "two"].map(|who| hop.mailbox(who));
    send(&server, "a@client.test", &mails.each_ref().map(String::as_str), CONTENT);
    assert_eq!(hop.wait(1)[0].all_to(), [hop.mailbox("one"), hop.mailbox("two")]);
    let line = wait_line(&mut server, &[&format!("to=<{}>", hop.mailbox("bank")), "stat=Deferred"]);
    assert!(line.contains("403 4.7.0 encryption too weak 0 less than 128") && line.contains("line 1"), "{line}");
    poll("it alone waits", || (waiting(&server) == 1).then_some(()));
    assert!(hop.talks().concat().iter().all(|line| !line.contains("<bank@")), "{:?}", hop.talks());
    hop.behave(Manners { tls: Some(tls_config()), ..Manners::offering(&TLS) });
    hop.hang_up();
    let mails = hop.wait(2);
    assert!(mails[1].to_is(&hop.mailbox("bank")) && mails[1].is_encrypted, "{:?}", mails[1]);
    ends_empty(server);
}

#[test]
fn tls_is_not_tried_where_the_map_says_so_unless_it_is_demanded() {
    // It offers STARTTLS, and breaks.
    let hops = Hop::neighbours(vec![Manners::offering(&TLS), Manners::offering(&TLS)]);
    let [quiet, tried] = hops.as_slice() else { panic!() };
    let access = format!("Try_TLS:{} NO\n", quiet.address.ip());
    let mut server = with_access(&hops, &access).start();
    send(&server, "a@client.test", &[&quiet.mailbox("b"), &tried.mailbox("b")], CONTENT);
    quiet.wait(1);
    tried.wait(1);
    let says = |hop: &Hop| verbs(hop).iter().filter(|verb| *verb == "STARTTLS").count();
    assert_eq!((says(quiet), says(tried)), (0, 1));
    change(&server, &format!("{access}TLS_Srv:{} ENCR:128\n", quiet.address.ip()));
    send(&server, "a@client.test", &[&quiet.mailbox("c")], CONTENT);
    wait_line(&mut server, &["stat=Deferred", "TLS handshake with "]);
    assert_eq!((says(quiet) > 0, quiet.count()), (true, 1));
    change(&server, &access);
    quiet.wait(2);
    ends_empty(server);
}

const LOGIN: [&str; 3] = ["PIPELINING", "STARTTLS", "AUTH LOGIN PLAIN"];
/// tim, tanstaaftanstaaf
const PLAIN: &str = "AUTH PLAIN AHRpbQB0YW5zdGFhZnRhbnN0YWFm";

#[test]
fn a_login_goes_under_tls_and_one_that_is_refused_waits() {
    let manners = Manners { tls: Some(tls_config()), ..Manners::offering(&LOGIN) };
    let manners = manners.script(|moment| match moment.at {
        At::Auth if moment.line != PLAIN => Act::Say("535 5.7.8 who are you?"),
        At::Mail if moment.connection == 0 => Act::Say("530 5.7.0 Authentication required"),
        _ => Act::Well,
    });
    let hops = Hop::neighbours(vec![manners, Manners::offering(&["AUTH PLAIN"]), Manners::default()]);
    let [hop, clear, none] = hops.as_slice() else { panic!() };
    let entry =
        |hop: &Hop, password: &str| format!("AuthInfo:{} \"U:tim\" \"P:{password}\" \"M:PLAIN\"\n", hop.address.ip());
    let others = entry(clear, "tanstaaftanstaaf") + &entry(none, "tanstaaftanstaaf");
    let mut server =
        with_access(&hops, &(entry(hop, "wrongwrongwrong") + &others)).set("route.login_unverified", "true").start();
    send(&server, "a@client.test", &[&hop.mailbox("b")], CONTENT);
    let line = any_line(&mut server, &["stat=Deferred", "as tim failed: 535 5.7.8 who are you?"]);
    assert!(line.contains("dsn=4.7.8") && line.contains("access line 1"), "{line}");
    // Without TLS no password leaves, and without AUTH no mail.
    send(&server, "a@client.test", &[&clear.mailbox("b")], CONTENT);
    any_line(&mut server, &["stat=Deferred", "without TLS no password is sent", "access line 2"]);
    send(&server, "a@client.test", &[&none.mailbox("b")], CONTENT);
    any_line(&mut server, &["stat=Deferred", "AUTH is not offered", "access line 3"]);
    assert!([clear, none].iter().all(|hop| !verbs(hop).contains(&"AUTH".to_owned()) && hop.count() == 0));
    // The map is corrected.
    change(&server, &entry(hop, "tanstaaftanstaaf"));
    assert!(hop.wait(1)[0].is_encrypted);
    clear.wait(1);
    none.wait(1);
    for talk in hop.talks() {
        let at = |verb: &str| talk.iter().position(|line| line.starts_with(verb));
        assert!(at("STARTTLS") < at("AUTH") && (at("MAIL").is_none() || at("AUTH") < at("MAIL")), "{talk:?}");
    }
    let ended = ends_empty(server);
    for secret in ["wrongwrong", "tanstaaf", "AHRpbQ"] {
        assert!(ended.log.iter().all(|line| !line.contains(secret)), "a password in the log: {:#?}", ended.log);
    }
}

#[test]
fn our_own_server_takes_the_login() {
    let next = Setup::new().set("relay.from", "[]").set("auth.without_tls", "true").set("delivery.mode", "\"queue\"");
    let users = next.path("users");
    let tim = hash_password("tanstaaftanstaaf", Scheme::Argon2id).expect("a hash");
    std::fs::write(&users, format!("tim:{tim}\n")).expect("written");
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).expect("set");
    let mut next = next.set("auth.file", format!("{users:?}")).listen("protocol = \"submission\"").start();
    let address = next.address();
    let map = |mechanism: &str| {
        format!("AuthInfo:{} \"U:tim\" \"P=dGFuc3RhYWZ0YW5zdGFhZg==\" \"M:{mechanism}\"\n", address.ip())
    };
    let hop = Hop::good();
    let setup = with_access(std::slice::from_ref(&hop), &map("LOGIN")).set("route.login_in_clear", "true");
    let server = setup.set("route.smart_host", format!("[\"{address}\"]")).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    any_line(&mut next, &["AUTH=server", "authid=tim", "mech=LOGIN"]);
    poll("it has it", || (waiting(&next) == 1).then_some(()));
    change(&server, &map("PLAIN"));
    send(&server, "a@client.test", &["c@d.test"], CONTENT);
    any_line(&mut next, &["AUTH=server", "authid=tim", "mech=PLAIN"]);
    poll("it has both", || (waiting(&next) == 2).then_some(()));
    ends_empty(server);
}

#[test]
fn extensions_are_left_alone_by_letters() {
    let hops = Hop::neighbours(vec![Manners::offering(&["PIPELINING", "CHUNKING"]); 2]);
    let server = with_access(&hops, &format!("Clt_Features:{} P C\n", hops[0].address.ip())).start();
    send(&server, "a@client.test", &[&hops[0].mailbox("b"), &hops[1].mailbox("b")], CONTENT);
    hops[0].wait(1);
    hops[1].wait(1);
    assert!(verbs(&hops[0]).contains(&"DATA".to_owned()), "{:?}", hops[0].talks());
    assert!(verbs(&hops[1]).contains(&"BDAT".to_owned()), "{:?}", hops[1].talks());
    ends_empty(server);
}

#[test]
fn a_copy_by_domain_goes_once_for_a_message() {
    let hops = Hop::neighbours(vec![Manners::default(); 2]);
    let [main, archive] = hops.as_slice() else { panic!() };
    let access = format!(
        "bcc:[{}] {}\nbcc:[{}] {}\n",
        main.address.ip(),
        archive.mailbox("archive"),
        archive.address.ip(),
        main.mailbox("loop")
    );
    let server = with_access(&hops, &access).start();
    send(&server, "a@client.test", &[&main.mailbox("b"), &main.mailbox("c")], CONTENT);
    assert_eq!(archive.wait(1)[0].to(), archive.mailbox("archive"));
    main.wait_until("both", |mails| mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>() == 2);
    ends_empty(server);
    assert_eq!(archive.count(), 1);
    assert!(main.mails().iter().all(|mail| mail.rcpts.iter().all(|rcpt| !rcpt.contains("loop"))), "{:?}", main.mails());
}

#[test]
fn a_queue_group_has_limits_of_its_own() {
    let hops = Hop::neighbours(vec![Manners::default()]);
    let hop = &hops[0];
    let ip = hop.address.ip();
    let access = format!("QGRP:slow1@[{ip}] slow\nQGRP:slow2@[{ip}] slow\nQGRP:x@[{ip}] unknown\n");
    let rule = "[{ match = [\"group:slow\"], recipients_per_transaction = 1 }]";
    let server = with_access(&hops, &access).set("destination", rule).start();
    let mails = ["slow1", "fast1", "slow2", "fast2"].map(|who| hop.mailbox(who));
    send(&server, "a@client.test", &mails.each_ref().map(String::as_str), CONTENT);
    let mails = hop.wait(3);
    let mut counts: Vec<usize> = mails.iter().map(|mail| mail.rcpts.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2]);
    assert!(mails.iter().filter(|mail| mail.rcpts.len() == 1).all(|mail| mail.to().starts_with("slow")));
    let path = server.setup.write();
    let checked = testkit::harness::program().args(["check", "--config"]).arg(path).output().expect("it runs");
    let said = text(&checked);
    assert!(said.contains("unknown") && said.contains("group:unknown") && !said.contains("group:slow"), "{said}");
    ends_empty(server);
}

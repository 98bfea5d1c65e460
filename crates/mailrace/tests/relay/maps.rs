//! sendmail's maps in the running server: hosts by domain and by sender, lists with owners, copies, held, dropped and
//! refused mail; files that change while it runs.

use crate::hop::{Act, At, Hop, Manners, address};
use crate::world::{any_line, by_literal, ends_empty, send, wait_line, waiting};
use testkit::client::greeted;
use testkit::harness::{Server, Setup, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// A server at whose directory of maps these files lie; hops have one port, which is that of all hosts of maps.
fn with_maps(hops: &[Hop], files: &[(&str, &str)]) -> Setup {
    let setup = by_literal(hops).set("local.mailbox", "\"none\"").set("maps.interval", "\"1s\"");
    let directory = setup.path("mail");
    std::fs::create_dir_all(&directory).expect("made");
    for (name, content) in files {
        std::fs::write(directory.join(name), content).expect("written");
    }
    setup.set("maps.directory", format!("{:?}", directory.display().to_string()))
}

fn neighbours(count: usize) -> Vec<Hop> {
    Hop::neighbours(vec![Manners::default(); count])
}

fn senders(hop: &Hop) -> Vec<String> {
    hop.mails().iter().map(|mail| address(&mail.mail).to_owned()).collect()
}

#[test]
fn mailertable_and_smarttable_say_which_host() {
    let hops = neighbours(3);
    let [partner, gateway, rest] = hops.as_slice() else { panic!() };
    let mailertable = format!("partner.test esmtp:[127.0.0.1]:{}\n. relay:{}\n", partner.ip(), rest.ip());
    // The first host of the list does not listen on this port: the next is tried.
    let mailertable = mailertable.replace("[127.0.0.1]", "[127.255.255.254]");
    let smarttable = format!("boss@corp.test esmtp:{}\n", gateway.ip());
    let files = [("mailertable", mailertable.as_str()), ("smarttable", smarttable.as_str())];
    let mut server = with_maps(&hops, &files).start();
    send(&server, "clerk@corp.test", &["a@partner.test", "b@other.test"], CONTENT);
    assert_eq!((partner.wait(1)[0].to(), rest.wait(1)[0].to()), ("a@partner.test", "b@other.test"));
    // As with sendmail, mailertable wins, a dot entry included.
    send(&server, "boss@corp.test", &["c@partner.test"], CONTENT);
    partner.wait(2);
    // The other way round it is the sender who counts.
    crate::world::reload(&mut server, "route.precedence", "\"sender\"");
    send(&server, "boss@corp.test", &["d@partner.test", "e@other.test"], CONTENT);
    gateway.wait(1);
    send(&server, "clerk@corp.test", &["f@partner.test"], CONTENT);
    partner.wait(3);
    ends_empty(server);
    let counts: Vec<usize> = hops.iter().map(|hop| hop.mails().iter().map(|mail| mail.rcpts.len()).sum()).collect();
    assert_eq!(counts, [3, 2, 1]);
}

#[test]
fn a_list_has_its_owner_for_a_sender_and_others_keep_theirs() {
    let hops = neighbours(1);
    let members = hops[0].mailbox("m1") + ", " + &hops[0].mailbox("m2");
    let aliases = format!("list: {members}\nowner-list: list-request\nlist-request: {}\n", hops[0].mailbox("boss"));
    let mut server = with_maps(&hops, &[("aliases", &aliases)]).start();
    let id = send(&server, "a@client.test", &["list@mx.test", &hops[0].mailbox("alone")], CONTENT);
    let mails = hops[0].wait_until("all three", |mails| mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>() == 3);
    for mail in &mails {
        let is_alone = mail.all_to() == [hops[0].mailbox("alone")];
        let sender = address(&mail.mail);
        assert_eq!(sender == "a@client.test", is_alone, "{mail:?}");
        assert!(is_alone || sender.contains("list-request") || sender.contains("boss"), "{sender}");
    }
    let clone = any_line(&mut server, &["clone: owner="]);
    let own = clone.split_once(&format!("{id}: ")).and_then(|(_, rest)| rest.split_once(": clone: "));
    assert!(own.is_some_and(|(own, _)| own.len() == id.len() && own != id), "it has a name of its own: {clone}");
    ends_empty(server);
    assert_eq!(mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>(), 3);
}

#[test]
fn the_access_map_refuses_drops_and_holds() {
    let hops = neighbours(1);
    let access = "From:spam.test REJECT\nFrom:quiet.test DISCARD\nFrom:odd.test QUARANTINE:on a watch list\n\
                  To:blocked.test ERROR:5.7.1:\"550 We don't accept mail, sorry; see http://x/\"\n";
    let mailertable = format!(". esmtp:{}\ndrop.test discard:\n", hops[0].ip());
    let server = &mut with_maps(&hops, &[("access", access), ("mailertable", &mailertable)]).start();
    let mut client = greeted(server.address());
    let refused = client.command("MAIL FROM:<a@spam.test>");
    assert!(refused.starts_with("550 5.7.1"), "{refused}");
    client.expect("MAIL FROM:<a@good.test>", "250");
    let refused = client.command("RCPT TO:<b@blocked.test>");
    assert_eq!(refused.trim_end(), "550 5.7.1 <b@blocked.test>... We don't accept mail, sorry; see http://x/");
    client.expect("RSET", "250");
    client.quit();
    let id = send(server, "a@quiet.test", &["b@d.test", "c@d.test"], CONTENT);
    any_line(server, &[&id, "ruleset=check_mail, arg1=<a@quiet.test>, relay=[127.0.0.1], discard"]);
    any_line(server, &[&format!("{id}: discarded")]);
    let id = send(server, "a@odd.test", &["b@d.test"], CONTENT);
    any_line(server, &[&id, "quarantine=on a watch list", "stat=quarantined"]);
    let shown = text(&server.control(&["queue", "show", &id], b""));
    assert!(shown.contains("held by rule access: on a watch list"), "{shown}");
    let last = send(server, "a@good.test", &["last@d.test", "x@drop.test"], CONTENT);
    any_line(server, &[&last, "to=<x@drop.test>, delay=00:0", ", stat=discarded"]);
    hops[0].wait(1);
    assert_eq!(senders(&hops[0]), ["a@good.test"]);
    let released = server.control(&["queue", "release", &id], b"");
    assert!(released.status.success(), "{}", text(&released));
    hops[0].wait(2);
    assert_eq!(senders(&hops[0]), ["a@good.test", "a@odd.test"]);
}

#[test]
fn a_copy_goes_to_a_second_server_and_its_failure_harms_nothing() {
    let hops = neighbours(2);
    let mailertable = format!(". esmtp:{}\n", hops[0].ip());
    let mut archive = hops.into_iter();
    let (main, mut archive) = (archive.next().expect("two"), archive.next().expect("two"));
    archive.shut();
    let rule = format!("[{{ recipient = [\"@d.test\"], copy = [\"smtp:{}\"] }}]", archive.ip());
    let setup = with_maps(std::slice::from_ref(&main), &[("mailertable", &mailertable)]);
    let server = setup.set("route.rule", rule).start();
    send(&server, "a@client.test", &["b@d.test", "c@e.test"], CONTENT);
    main.wait_until("both", |mails| mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>() == 2);
    // The server hears of it a moment after the hop has it.
    poll("the copy alone waits", || (waiting(&server) == 1).then_some(()));
    archive.reopen();
    assert_eq!(archive.wait(1)[0].to(), "b@d.test");
    ends_empty(server);
    assert_eq!((main.mails().iter().map(|mail| mail.rcpts.len()).sum::<usize>(), archive.count()), (2, 1));
}

#[test]
fn a_changed_mailertable_holds_for_mail_that_waits() {
    let mut hops = neighbours(2);
    hops[0].shut();
    let table = |hop: &Hop| format!("d.test esmtp:{}\n", hop.ip());
    let mut server: Server = with_maps(&hops, &[("mailertable", &table(&hops[0]))]).start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred"]);
    let file = server.setup.path("mail/mailertable");
    // Nonsense is named with its line; the entries that can be read count.
    std::fs::write(&file, table(&hops[1]) + "e.test esmtp:[192.0.2.1\n").expect("written");
    hops[1].wait(1);
    ends_empty(server);
}

#[test]
fn mail_of_a_rule_waits_for_a_command() {
    let hops = neighbours(1);
    let mailertable = format!(". esmtp:{}\n", hops[0].ip());
    let setup = with_maps(&hops, &[("mailertable", &mailertable)]);
    let server = setup.set("route.rule", "[{ sender = [\"@slow.test\"], queue = true }]").start();
    send(&server, "a@slow.test", &["b@d.test"], CONTENT);
    send(&server, "a@fast.test", &["c@d.test"], CONTENT);
    assert_eq!(hops[0].wait(1)[0].to(), "c@d.test");
    poll("one waits", || (waiting(&server) == 1).then_some(()));
    let output = server.control(&["queue", "retry", "--all"], b"");
    assert!(output.status.success(), "{}", text(&output));
    hops[0].wait(2);
    ends_empty(server);
}

#[test]
fn who_is_nobody_here_is_refused_at_once() {
    let hops = neighbours(1);
    let aliases = format!("joe: {}\nlost: nobody-at-all\n", hops[0].mailbox("joe"));
    let server = with_maps(&hops, &[("aliases", &aliases), ("local-host-names", "here.test\n")]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<Joe@HERE.test>", "250");
    for nobody in ["nobody@here.test", "nobody@mx.test"] {
        let refused = client.command(&format!("RCPT TO:<{nobody}>"));
        assert!(refused.starts_with("550 5.1.1"), "{refused}");
    }
    client.data(CONTENT);
    client.quit();
    assert_eq!(hops[0].wait(1)[0].to(), hops[0].mailbox("joe"));
    poll("it is gone", || (waiting(&server) == 0).then_some(()));
    ends_empty(server);
}

#[test]
fn reports_go_by_the_maps_too() {
    let manners = Manners::default().script(|moment| match moment.at {
        At::Rcpt if moment.line.contains("<gone@") => Act::Say("550 5.1.1 There is no such person here"),
        _ => Act::Well,
    });
    let hops = Hop::neighbours(vec![manners]);
    let at_hop = |name: &str| hops[0].mailbox(name);
    let aliases = format!(
        "list: {}\nowner-list: list-request\nlist-request: {}\nstaff: {}, {}\nowner-staff: nobody-at-all\nroot: {}\n",
        at_hop("gone"),
        at_hop("keeper"),
        at_hop("ann"),
        at_hop("bob"),
        at_hop("root")
    );
    let server = with_maps(&hops, &[("aliases", &aliases)]).start();
    let report_to = |count: usize, who: &[&str]| {
        let mails =
            hops[0].wait_until("the report", |mails| mails.iter().map(|mail| mail.rcpts.len()).sum::<usize>() == count);
        let report = mails.last().expect("there is one");
        let wanted: Vec<String> = who.iter().map(|name| at_hop(name)).collect();
        assert_eq!((address(&report.mail), report.all_to()), ("", wanted.iter().map(String::as_str).collect()));
        report.text()
    };
    // The owner of a list, which is an alias here.
    send(&server, "a@client.test", &["list@mx.test"], CONTENT);
    report_to(1, &["keeper"]);
    // A sender that is a list with an owner: a report keeps the null sender on its way through it.
    send(&server, "staff@mx.test", &[&at_hop("gone")], CONTENT);
    report_to(3, &["ann", "bob"]);
    // A sender that is unknown here: the postmaster, which is root, gets the report.
    send(&server, "nobody-at-all@mx.test", &[&at_hop("gone")], CONTENT);
    let text = report_to(4, &["root"]);
    assert!(text.contains("nobody-at-all@mx.test") && text.contains("User unknown"), "{text}");
    ends_empty(server);
}

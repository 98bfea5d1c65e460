//! Dialogs with sendmail 8.17.1.9, replayed. `oracle.txt` has maps, options and classes made at random, and sendmail's
//! replies to `MAIL` and `RCPT` with them; `+`: it took it.

use super::*;

/// One map with its dialogs.
#[derive(Default)]
struct Case<'a> {
    options: Vec<&'a str>,
    entries: Vec<(&'a str, &'a str)>,
    local: String,
    relay: String,
    dialogs: Vec<&'a str>,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "options" {
            cases.push(Case { options: rest.split(' ').collect(), ..Case::default() });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match word {
            "entry" => case.entries.push(rest.split_once(' ').unwrap()),
            "local" => case.local = rest.replace(' ', "\n"),
            "relay" => case.relay = rest.replace(' ', "\n"),
            "|" => case.dialogs.push(rest),
            _ => panic!("{line}"),
        }
    }
    cases
}

fn options(words: &[&str]) -> Options {
    let has = |word: &str| words.contains(&word);
    Options {
        delay_checks: match words.iter().find_map(|word| word.strip_prefix("delay_")) {
            Some("delay") => DelayChecks::Yes,
            Some("friend") => DelayChecks::Friend,
            Some("hater") => DelayChecks::Hater,
            _ => DelayChecks::No,
        },
        blocklist_recipients: has("blocklist_recipients"),
        lookup_dot_domain: has("lookupdotdomain"),
        relay_to_full_address: has("relaytofulladdress"),
        relay_hosts_only: has("relay_hosts_only"),
        relay_mail_from: match (has("relay_mail_from"), has("relay_mail_from_domain")) {
            (_, true) => RelayMailFrom::Domain,
            (true, _) => RelayMailFrom::Address,
            _ => RelayMailFrom::No,
        },
        relay_local_from: has("relay_local_from"),
        relay_loopback: true,
        accept_unqualified_senders: has("accept_unqualified_senders"),
    }
}

fn client(text: &str) -> Client<'_> {
    let (ip, name) = text.split_once(' ').unwrap();
    Client::of(ip.parse().unwrap()).named(match name {
        "-" => ClientName::NotFound,
        "forged" => ClientName::Forged,
        "unavailable" => ClientName::Unavailable,
        name => ClientName::Verified(name),
    })
}

/// Returns our replies to `MAIL` and `RCPT`; the second only if it counts.
fn answer(
    access: &Access,
    classes: &Classes,
    client: &Client<'_>,
    sender: &str,
    recipient: &str,
) -> (String, Option<String>) {
    let connect = known(|ask| access.connect(ask, client));
    if told(&connect) != "+" {
        return (told(&connect), Some(told(&connect)));
    }
    let sender = path(sender);
    let mail = known(|ask| access.sender(ask, client, &sender, classes));
    if told(&mail) != "+" {
        return (told(&mail), None);
    }
    let rcpt = known(|ask| access.recipient(ask, client, &sender, &address(recipient), classes));
    // For a message that is thrown away sendmail checks no recipients; and it relays held messages for strangers.
    let is_held = rcpt.steps.iter().any(|step| step.text.starts_with("held: "));
    (told(&mail), (mail.ruling != Ruling::Discard && !is_held).then(|| told(&rcpt)))
}

fn plain(reply: &str) -> String {
    reply.replace('"', "")
}

/// Returns the differences, and the number of dialogs.
fn replay(text: &str) -> (Vec<String>, usize) {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases(text) {
        let options = options(&case.options);
        let access = Access::new(vec![table(&case.entries)], options);
        let classes = classes(&format!("{}\nlocalhost", case.local), &case.relay, options.relay_hosts_only);
        for dialog in &case.dialogs {
            let parts: Vec<&str> = dialog.split(" | ").collect();
            let [who, sender, recipient, mail, rcpt] = parts[..] else { panic!("{dialog}") };
            count += 1;
            // An address is told as it is read: in quotes only if it needs them.
            let (mail, rcpt) = (&*plain(mail), &*plain(rcpt));
            let (our_mail, our_rcpt) = answer(&access, &classes, &client(who), sender, recipient);
            if plain(&our_mail) != mail || our_rcpt.as_ref().is_some_and(|ours| plain(ours) != rcpt) {
                wrong.push(format!(
                    "{:?}\n{:?}\n  {dialog}\n  ours: {our_mail} | {our_rcpt:?}\n",
                    case.options, case.entries
                ));
            }
        }
    }
    (wrong, count)
}

#[test]
fn sendmail_decides_the_same() {
    let text = std::env::var("ACCESS_ORACLE")
        .map_or_else(|_| include_str!("oracle.txt").to_owned(), |file| std::fs::read_to_string(file).unwrap());
    let (wrong, count) = replay(&text);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 300, "{count}");
}

#[test]
fn the_replay_sees_what_differs() {
    let text = include_str!("oracle.txt");
    for (part, other) in [
        (" blocklist_recipients", ""),
        ("entry Connect:", "entry From:"),
        ("local ", "local o.example "),
        ("relay r.", "relay x."),
    ] {
        assert!(!replay(&text.replace(part, other)).0.is_empty(), "{part}");
    }
}

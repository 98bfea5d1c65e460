//! Router and access map beside the recorded answers of the real sendmail, without a server.
//!
//! The whole program is compared in `crates/mailrace/tests/commands/oracle`, which says where it differs on purpose.
//! This is the same for these rooms alone, in a second. Questions that other rooms answer are left out: addresses that
//! cannot be read, dialogs, the delivery of accepted messages.

use mail::{Address, Domain, DomainName, ReversePath};
use route::access::{Access, Client, ClientName, DelayChecks, Options, RelayMailFrom, Ruled, Ruling};
use route::class::{Class, Classes, Kind};
use route::destination::{Hosts, To};
use route::map::{MapFile, Table};
use route::question::{Answer as Said, Answers, Ask, Question, Source, Stop};
use route::resolve::{Generics, Maps, Masquerade, Outcome, Request, Router, RouterSettings, SenderKind};
use route::tables::mailer::MailerValue;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use testkit::oracle::answer::{Answer, address, qualified};
use testkit::oracle::corpus::{Asked, Case, Extent};

const HOST: &str = "oracle.example";

/// Router and access map with the files of a case.
struct Site {
    router: Router,
    access: Access,
    case: Case,
}

impl Site {
    fn new(case: Case) -> Self {
        let dir = case.dir.clone();
        let map = |name: &str| table(&dir, name).into_iter().collect::<Vec<Source>>();
        let flag = |word: &str| case.options.contains_key(word);
        let text = |word: &str| case.options.get(word).and_then(|value| value.as_str()).map(str::to_owned);
        let host = DomainName::new(HOST).expect("a name");
        let features: Vec<&str> = case
            .options
            .get("access")
            .and_then(|value| value.as_array())
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str())
            .collect();
        let class = |kind, name: &str| {
            Class::read(kind, name, name, &std::fs::read_to_string(dir.join(name)).unwrap_or_default()).0
        };
        let mut relay = class(Kind::Relay { hosts_only: flag("relay_hosts_only") }, "relay-domains");
        if flag("relay_entire_domain") {
            relay.add_tree(&DomainName::new("example").expect("a name"));
        }
        if flag("promiscuous_relay") {
            for network in ["0.0.0.0/0", "::/0"] {
                relay.add_network(network.parse().expect("a network"));
            }
        }
        let virt = class(Kind::Local, "virtuser-domains");
        // VirtHost is in class R, with the names below.
        relay.extend(&class(Kind::Relay { hosts_only: flag("relay_hosts_only") }, "virtuser-domains"));
        let mut classes = Classes {
            local: class(Kind::Local, "local-host-names"),
            relay,
            to: Class::default(),
            ours: Class::default(),
            virt,
            hostname: Some(host.clone()),
        };
        // The addresses at which the server listens are its own, as it adds them.
        classes.ours.add_address(std::net::Ipv4Addr::LOCALHOST.into());
        let mut settings = RouterSettings::new(host);
        settings.smart_hosts = text("smart_host").and_then(|text| hosts(&text));
        settings.luser_relay = text("luser_relay").and_then(|text| MailerValue::parse(&text, 25).ok());
        settings.mail_hub = text("mail_hub").and_then(|text| MailerValue::parse(&text, 25).ok());
        settings.generics = Generics {
            domains: class(
                if flag("generics_entire_domain") { Kind::Relay { hosts_only: false } } else { Kind::Local },
                "generics-domains",
            ),
            envelope: flag("masquerade_envelope"),
            headers: true,
            recipients: flag("allmasquerade"),
        };
        let mut masqueraded = Class::default();
        for name in case.options.get("masquerade_domain").and_then(|value| value.as_array()).into_iter().flatten() {
            let name = DomainName::new(name.as_str().expect("a text")).expect("a name");
            if flag("masquerade_entire_domain") { masqueraded.add_tree(&name) } else { masqueraded.add_name(&name) }
        }
        settings.masquerade = text("masquerade_as").map(|domain| Masquerade {
            domain: DomainName::new(&domain).expect("a name"),
            domains: masqueraded,
            is_limited: flag("limited_masquerade"),
            exceptions: Class::default(),
            exposed: text("exposed_user").into_iter().map(String::into_boxed_str).collect(),
        });
        let maps = Maps {
            mailertable: map("mailertable"),
            virtusertable: map("virtusertable"),
            genericstable: map("genericstable"),
            domaintable: map("domaintable"),
            aliases: aliases(&dir, &classes).into_iter().collect(),
            ..Maps::default()
        };
        let options = Options {
            delay_checks: match text("delay_checks").as_deref() {
                None => DelayChecks::No,
                Some("friend") => DelayChecks::Friend,
                Some("hater") => DelayChecks::Hater,
                Some(_) => DelayChecks::Yes,
            },
            blocklist_recipients: flag("blocklist_recipients"),
            lookup_dot_domain: features.contains(&"lookupdotdomain"),
            relay_to_full_address: features.contains(&"relaytofulladdress"),
            relay_hosts_only: flag("relay_hosts_only"),
            relay_mail_from: match (flag("relay_mail_from_domain"), flag("relay_mail_from")) {
                (true, _) => RelayMailFrom::Domain,
                (_, true) => RelayMailFrom::Address,
                _ => RelayMailFrom::No,
            },
            relay_local_from: flag("relay_local_from"),
            ..Options::default()
        };
        let access = Access::new(map("access"), options);
        Self { router: Router { settings, maps, classes, rules: Vec::new() }, access, case }
    }

    /// Asks until everything is known.
    fn known<T>(&self, mut what: impl FnMut(&mut Ask<'_>) -> Result<T, Stop>) -> Result<T, Arc<str>> {
        let mut answers = Answers::new();
        for _ in 0..1_000 {
            let mut ask = Ask::new(&answers);
            match what(&mut ask) {
                Ok(done) => return Ok(done),
                Err(Stop::Trouble(why)) => return Err(why),
                Err(Stop::Open) => {}
                Err(Stop::TooMuchWork) => unreachable!("any work is allowed"),
            }
            for question in ask.into_open() {
                let answer = self.reply(&question);
                answers.insert(question, answer);
            }
        }
        panic!("{}: it asks and asks", self.case.name);
    }

    fn reply(&self, question: &Question) -> Said {
        let read = |path: &Path| std::fs::read_to_string(path);
        match question {
            Question::User { name } => {
                let users = read(&self.case.dir.join("users")).unwrap_or_default();
                let is_there =
                    ["root", "daemon", "mail", "nobody"].into_iter().chain(users.lines()).any(|user| user == &**name);
                if is_there { Said::User { home: format!("/run/home/{name}").into() } } else { Said::Nothing }
            }
            Question::Forward { user, detail } => {
                let home = self.case.dir.join("home").join(&**user);
                let names = [detail.as_deref().map(|detail| format!(".forward+{detail}")), Some(".forward".to_owned())];
                for name in names.into_iter().flatten() {
                    if let Ok(text) = read(&home.join(&name)) {
                        return Said::Text { text: text.into(), file: name.into(), owner: Some(user.as_ref().into()) };
                    }
                }
                Said::Nothing
            }
            Question::Include { path, .. } => {
                let file = self.case.dir.join(path.trim_start_matches("/etc/mail/"));
                read(&file).map_or_else(
                    |error| Said::Trouble(error.to_string().into()),
                    |text| Said::Text { text: text.into(), file: path.as_ref().into(), owner: Some("root".into()) },
                )
            }
            Question::Map { .. } | Question::Routing { .. } => Said::Nothing,
        }
    }

    /// The answer, if this is a question for these rooms.
    fn answer(&self, asked: &Asked) -> Option<Answer> {
        match asked {
            Asked::Route { address } => self.route(address),
            Asked::Rewrite { flags, address } => self.rewrite(flags, address),
            Asked::Header { field, value } => Some(self.header(field, value)),
            Asked::Transaction { client, sender, recipients, extent: Extent::Recipients } => {
                self.transaction(*client, sender, recipients)
            }
            Asked::Transaction { .. } | Asked::Dialog { .. } => None,
        }
    }

    fn route(&self, written: &str) -> Option<Answer> {
        let recipient = Address::parse(qualified(written).as_bytes()).ok()?;
        let mut answer = Answer::default();
        let request =
            Request { sender: &ReversePath::Null, recipient: &recipient, client: None, is_local_submission: true };
        let resolution = match self.known(|ask| self.router.resolve(ask, &request)) {
            Ok(resolution) => resolution,
            Err(why) => {
                answer.reply("refused", &format!("451 4.3.0 {why}"));
                return Some(answer);
            }
        };
        if !resolution.failed.is_empty() {
            answer.lines.push("undeliverable".to_owned());
        }
        match resolution.outcome {
            Outcome::Refuse(refusal) => answer.reply("refused", &refusal.to_string()),
            Outcome::Discard => answer.lines.push("discard".to_owned()),
            Outcome::Deliver(deliveries) => {
                for delivery in deliveries {
                    let to = delivery.address.to_string();
                    match &delivery.destination.to {
                        To::Local => {
                            answer.delivery("local", "", to.rsplit_once('@').map_or(to.as_str(), |(local, _)| local))
                        }
                        To::Program { command, .. } => answer.delivery("prog", "", command),
                        To::File { path, .. } => answer.delivery("file", "", path),
                        To::Error { .. } => answer.lines.push("undeliverable".to_owned()),
                        To::Domain(_) | To::Literal(_) | To::Hosts(_) => {
                            let text = delivery.via.clone().unwrap_or_else(|| delivery.destination.to_string());
                            answer.delivery("smtp", &testkit::oracle::answer::hosts(&text), &address(&to));
                        }
                    }
                }
            }
        }
        answer.lines.sort();
        answer.lines.dedup();
        Some(answer)
    }

    fn rewrite(&self, flags: &str, written: &str) -> Option<Answer> {
        let sender = ReversePath::Address(Address::parse(qualified(written).as_bytes()).ok()?);
        let kind = match flags {
            "ES" => SenderKind::Envelope,
            "HS" => SenderKind::Header,
            "HR" => SenderKind::HeaderRecipient,
            _ => return None,
        };
        let said = self
            .known(|ask| self.router.sender(ask, &sender, kind))
            .map_or_else(|why| why.to_string(), |said| said.to_string());
        Some(Answer { lines: vec![qualified(&said)], texts: Vec::new() })
    }

    fn header(&self, field: &str, value: &str) -> Answer {
        let section = format!("{field}: {value}\r\n");
        let new = self.known(|ask| self.router.header(ask, section.as_bytes())).expect("maps in memory");
        let new = new.map_or(section, |new| String::from_utf8(new).expect("text"));
        let mut lines = vec![testkit::oracle::answer::field(new.split_once(':').expect("a colon").1)];
        if field == "Subject" {
            lines.push("test".to_owned());
        }
        Answer { lines, texts: Vec::new() }
    }

    fn transaction(&self, ip: IpAddr, sender: &str, recipients: &[String]) -> Option<Answer> {
        let path = if sender.is_empty() {
            ReversePath::Null
        } else {
            ReversePath::Address(Address::parse(sender.as_bytes()).ok()?)
        };
        let name = self.name(ip);
        let client = Client::of(ip).named(match &name {
            Name::Is(name) => ClientName::Verified(name),
            Name::Forged => ClientName::Forged,
            Name::Nobody => ClientName::NotFound,
            Name::Unknown => ClientName::Unavailable,
        });
        let mut answer = Answer::default();
        let (access, classes) = (&self.access, &self.router.classes);
        let refused = |ruled: &Result<Ruled, Arc<str>>| match ruled {
            Err(why) => Some(format!("451 4.3.0 {why}")),
            Ok(Ruled { ruling: Ruling::Refuse(refusal), .. }) => Some(refusal.to_string()),
            Ok(_) => None,
        };
        let at_connect = refused(&self.known(|ask| access.connect(ask, &client)));
        let path = self.known(|ask| self.router.canonical_path(ask, &path)).ok()?;
        let at_mail =
            at_connect.clone().or_else(|| refused(&self.known(|ask| access.sender(ask, &client, &path, classes))));
        if at_connect.as_deref().is_some_and(|reply| reply.starts_with("421")) {
            // The server closes the connection.
            return None;
        }
        answer.reply("mail", at_mail.as_deref().unwrap_or("250 2.1.0 ok"));
        for written in recipients {
            if at_connect.is_some() || at_mail.is_some() {
                answer.reply("rcpt", at_connect.as_deref().unwrap_or("503 5.0.0 Need MAIL before RCPT"));
                continue;
            }
            let recipient = Address::parse(qualified(written).as_bytes()).ok()?;
            let ruled = self.known(|ask| {
                let canonical = self.router.canonical(ask, &recipient)?;
                access.recipient(ask, &client, &path, &canonical, classes)
            });
            let request =
                Request { sender: &path, recipient: &recipient, client: Some(ip), is_local_submission: false };
            let said = refused(&ruled).or_else(|| match self.known(|ask| self.router.resolve(ask, &request)) {
                Ok(resolution) => match resolution.outcome {
                    Outcome::Refuse(refusal) => Some(refusal.to_string()),
                    _ => None,
                },
                Err(why) => Some(format!("451 4.3.0 {why}")),
            });
            answer.reply("rcpt", said.as_deref().unwrap_or("250 2.1.5 ok"));
        }
        answer.end_at_refusal();
        Some(answer)
    }

    /// Returns the name of an address in the zone of the case.
    fn name(&self, ip: IpAddr) -> Name {
        if ip.is_loopback() && ip.to_string() != "127.0.0.9" {
            return Name::Is("localhost".to_owned());
        }
        let zone = std::fs::read_to_string(self.case.dir.join("zone")).unwrap_or_default();
        let lines: Vec<Vec<&str>> = zone.lines().map(|line| line.split_ascii_whitespace().collect()).collect();
        let ip = ip.to_string();
        if lines.iter().any(|line| *line == [ip.as_str(), "SERVFAIL"]) {
            return Name::Unknown;
        }
        let Some(name) =
            lines.iter().find(|line| line.len() == 3 && line[0] == ip && line[1] == "PTR").map(|line| line[2])
        else {
            return Name::Nobody;
        };
        let leads_back =
            lines.iter().any(|line| line.len() == 3 && line[0].eq_ignore_ascii_case(name) && line[2] == ip);
        if leads_back { Name::Is(name.to_owned()) } else { Name::Forged }
    }
}

enum Name {
    Is(String),
    Forged,
    Nobody,
    Unknown,
}

fn table(dir: &Path, name: &str) -> Option<Source> {
    let bytes = std::fs::read(dir.join(name)).ok()?;
    Some(Source::Loaded(Arc::new(
        Table::read(MapFile { name, file: name, bytes, fold: true }).expect("readable").table,
    )))
}

fn aliases(dir: &Path, classes: &Classes) -> Option<Source> {
    let text = std::fs::read_to_string(dir.join("aliases")).ok()?;
    let is_local = |name: &str| Domain::parse(name.as_bytes()).is_ok_and(|domain| classes.is_local(&domain));
    Some(Source::Loaded(Arc::new(route::alias::parse_aliases("aliases", &text, &is_local).table)))
}

fn hosts(text: &str) -> Option<Hosts> {
    match MailerValue::parse(text, 25) {
        Ok(MailerValue::Hosts { hosts, .. }) => Some(hosts),
        _ => None,
    }
}

#[test]
fn these_rooms_answer_as_sendmail_did() {
    let (_, groups) = testkit::oracle::differences::read(
        &std::fs::read_to_string(testkit::oracle::corpus::home().join("differences")).expect("the file of differences"),
    );
    let (mut asked, mut wrong) = (0, String::new());
    for case in testkit::oracle::corpus::cases() {
        let site = Site::new(case);
        for question in &site.case.questions {
            let Some(ours) = site.answer(&question.asked) else { continue };
            asked += 1;
            let theirs = testkit::oracle::answer::theirs(question);
            let is_known =
                groups.iter().flat_map(|group| &group.entries).any(|entry| entry.fits(&site.case.name, &question.text));
            if theirs.lines != ours.lines && !is_known {
                wrong += &format!(
                    "{}: {}\n    sendmail: {}\n    mailrace: {} ({})\n",
                    site.case.name,
                    question.text,
                    theirs.lines.join(" / "),
                    ours.lines.join(" / "),
                    ours.texts.join(" / ")
                );
            }
        }
    }
    let count = wrong.lines().filter(|line| !line.starts_with(' ')).count();
    assert!(asked > 1_000 && wrong.is_empty(), "{count} of {asked} questions:\n{wrong}");
}

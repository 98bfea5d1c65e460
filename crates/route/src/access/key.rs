//! The keys under which the access map is asked, in sendmail's order: a key with its tag before the same key without
//! one, a narrow key before a wide one.
//!
//! | Group | Keys for `u+d@x.v.example` and tag `From` |
//! |---|---|
//! | [`full`] | `From:u+d@x.v.example`, `u+d@x.v.example`, `From:u+*@x.v.example`, …, `From:u@x.v.example`, … |
//! | [`user`] | `From:u+d@`, `u+d@`, `From:u+*@`, …, `From:u@`, … |
//! | [`domain`] | `From:x.v.example`, `x.v.example`, (`From:.v.example`, …), `From:v.example`, …, `example` |
//! | [`address`] | `Connect:10.1.2.3`, `10.1.2.3`, `Connect:10.1.2`, …, `10`; networks in their place by length |
//!
//! Names in two spellings (`xn--bcher-kva.example`, `bücher.example`) are asked for in both.

use crate::network::Networks;
use mail::Domain;
use std::borrow::Cow;
use std::net::IpAddr;

/// The tag of a question, and whether keys without it count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: &'static str,
    pub(super) bare: bool,
}

impl Tag {
    /// With keys without a tag, as sendmail asks for `Connect`, `From` and `To`.
    pub(super) const fn or_bare(name: &'static str) -> Self {
        Self { name, bare: true }
    }

    pub(super) const fn only(name: &'static str) -> Self {
        Self { name, bare: false }
    }
}

/// Keys in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) keys: Vec<String>,
    /// `SKIP` ends the whole search, not this group alone.
    pub(super) skip_ends: bool,
}

impl Group {
    fn push(&mut self, tag: Tag, key: &str) {
        self.keys.push(format!("{}:{key}", tag.name));
        if tag.bare {
            self.keys.push(key.to_owned());
        }
    }
}

/// The key that is a tag alone: its default.
pub(super) fn default(tag: Tag) -> Group {
    Group { keys: vec![format!("{}:", tag.name)], skip_ends: true }
}

/// The user's own key, that for any detail, that without detail: `u+d`, `u+*`, `u`.
fn details(local: &str) -> Vec<Cow<'_, str>> {
    let mut keys = vec![Cow::Borrowed(local)];
    if let Some((user, detail)) = local.split_once('+').filter(|(user, _)| !user.is_empty()) {
        if detail != "*" {
            keys.push(format!("{user}+*").into());
        }
        keys.push(user.into());
    }
    keys
}

/// An address.
pub(super) fn full(tag: Tag, local: &str, at: &Domain) -> Group {
    let mut group = Group { keys: Vec::new(), skip_ends: true };
    let spellings = spellings(at);
    for user in details(local) {
        for domain in &spellings {
            group.push(tag, &format!("{user}@{domain}"));
        }
    }
    group
}

/// A user of any domain.
pub(super) fn user(tag: Tag, local: &str) -> Group {
    let mut group = Group { keys: Vec::new(), skip_ends: true };
    for user in details(local) {
        group.push(tag, &format!("{user}@"));
    }
    group
}

/// A domain and all above it; with `dots` also `.domain` for names below it.
pub(super) fn domain(tag: Tag, domain: &Domain, dots: bool) -> Group {
    let mut group = Group::default();
    if let Domain::Literal(_) = domain {
        for text in spellings(domain) {
            brackets(&mut group, tag, &text);
        }
        return group;
    }
    let spellings = spellings(domain);
    let mut rests: Vec<&str> = spellings.iter().map(|text| &**text).collect();
    while !rests.is_empty() {
        for rest in &rests {
            group.push(tag, rest);
        }
        rests = rests.iter().filter_map(|rest| rest.split_once('.').map(|(_, rest)| rest)).collect();
        if dots {
            for rest in &rests {
                group.push(tag, &format!(".{rest}"));
            }
        }
    }
    group
}

/// A domain alone.
pub(super) fn exact(tag: Tag, domain: &Domain) -> Group {
    let mut group = Group::default();
    for text in spellings(domain) {
        group.push(tag, &text);
    }
    group
}

/// A client without a name: its address in brackets.
pub(super) fn nameless(tag: Tag, ip: IpAddr) -> Group {
    let mut group = Group::default();
    brackets(&mut group, tag, &format!("[{}]", written(ip)));
    group
}

/// An address in brackets, and its beginnings in brackets.
fn brackets(group: &mut Group, tag: Tag, text: &str) {
    let mut inside = text.trim_start_matches('[').trim_end_matches(']');
    loop {
        group.push(tag, &format!("[{inside}]"));
        match inside.rfind(['.', ':']) {
            Some(at) => inside = inside.get(..at).unwrap_or_default().trim_end_matches(':'),
            None => return,
        }
    }
}

/// The address of a client and its networks, the longest prefix first. `networks`: the keys with a prefix length that
/// the map has, of this tag and of none.
pub(super) fn address(
    tag: Tag,
    ip: IpAddr,
    tagged: Option<&Networks<Box<str>>>,
    bare: Option<&Networks<Box<str>>>,
) -> Group {
    let ip = ip.to_canonical();
    let text = written(ip);
    let bits: u8 = if ip.is_ipv4() { 8 } else { 16 };
    let parts: Vec<usize> =
        text.match_indices(['.', ':']).map(|(at, _)| at).skip(usize::from(ip.is_ipv6())).chain([text.len()]).collect();
    let mut group = Group::default();
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    for length in (0..=longest).rev() {
        let part = (length > 0 && length % bits == 0).then(|| parts.get(usize::from(length / bits) - 1)).flatten();
        let prefix = part.and_then(|end| text.get(..*end));
        let network =
            |networks: Option<&Networks<Box<str>>>| networks.and_then(|all| all.of_length(ip, length)).cloned();
        group.keys.extend(prefix.map(|prefix| format!("{}:{prefix}", tag.name)));
        group.keys.extend(network(tagged).map(String::from));
        if tag.bare {
            group.keys.extend(prefix.map(str::to_owned));
            group.keys.extend(network(bare).map(String::from));
        }
    }
    if ip.is_ipv6() {
        group.push(tag, "IPv6");
    }
    group
}

/// A key as it is given.
pub(super) fn named(tag: Tag, key: &str) -> Group {
    let mut group = Group { keys: Vec::new(), skip_ends: true };
    group.push(tag, key);
    group
}

/// An address as sendmail writes that of a client: `IPv6:` with all eight groups.
pub(super) fn written(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let groups: Vec<String> = ip.segments().iter().map(|group| format!("{group:x}")).collect();
            format!("IPv6:{}", groups.join(":"))
        }
    }
}

fn spellings(domain: &Domain) -> Vec<Cow<'_, str>> {
    match domain {
        Domain::Name(name) => {
            let unicode = name.unicode();
            if unicode == name.ascii() { vec![name.ascii().into()] } else { vec![name.ascii().into(), unicode] }
        }
        Domain::Literal(literal) => {
            let short = literal.to_string();
            let long =
                literal.ip().map(|ip| format!("[{}]", written(ip))).filter(|long| !long.eq_ignore_ascii_case(&short));
            [Cow::Owned(short)].into_iter().chain(long.map(Cow::Owned)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Tag = Tag::or_bare("From");
    const CONNECT: Tag = Tag::or_bare("Connect");

    fn tagged(group: &Group, tag: &str) -> String {
        // Bare keys follow theirs; the oracle found that order at every level.
        for pair in group.keys.chunks(2) {
            assert_eq!(pair.first().map(String::as_str), pair.get(1).map(|bare| format!("{tag}:{bare}")).as_deref());
        }
        group.keys.iter().step_by(2).map(|key| key.split_once(':').unwrap().1).collect::<Vec<_>>().join(" ")
    }

    fn of(text: &str) -> Domain {
        Domain::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn keys_come_in_the_order_of_the_oracle() {
        // This order comes from sendmail 8.17.1.9, by taking the entry that decided out of the map until none was left.
        let at = of("x.y.v.example");
        assert_eq!(tagged(&full(FROM, "u+d", &at), "From"), "u+d@x.y.v.example u+*@x.y.v.example u@x.y.v.example");
        assert_eq!(tagged(&full(FROM, "u+", &at), "From"), "u+@x.y.v.example u+*@x.y.v.example u@x.y.v.example");
        assert_eq!(tagged(&full(FROM, "u+a+b", &at), "From"), "u+a+b@x.y.v.example u+*@x.y.v.example u@x.y.v.example");
        assert_eq!(tagged(&user(FROM, "u+d"), "From"), "u+d@ u+*@ u@");
        assert_eq!(tagged(&domain(FROM, &at, false), "From"), "x.y.v.example y.v.example v.example example");
        assert_eq!(
            tagged(&domain(FROM, &at, true), "From"),
            "x.y.v.example .y.v.example y.v.example .v.example v.example .example example"
        );
        assert_eq!(tagged(&domain(FROM, &of("[10.1.2.3]"), true), "From"), "[10.1.2.3] [10.1.2] [10.1] [10]");
        assert!(
            tagged(&domain(FROM, &of("[IPv6:2001:db8::1]"), false), "From")
                .starts_with("[IPv6:2001:db8::1] [IPv6:2001:db8] [IPv6:2001] [IPv6]")
        );
        let v4 = "10.1.2.3".parse().unwrap();
        assert_eq!(tagged(&nameless(CONNECT, v4), "Connect"), "[10.1.2.3] [10.1.2] [10.1] [10]");
        assert_eq!(tagged(&address(CONNECT, v4, None, None), "Connect"), "10.1.2.3 10.1.2 10.1 10");
        assert_eq!(
            tagged(&address(CONNECT, "2001:db8::1".parse().unwrap(), None, None), "Connect"),
            "IPv6:2001:db8:0:0:0:0:0:1 IPv6:2001:db8:0:0:0:0:0 IPv6:2001:db8:0:0:0:0 IPv6:2001:db8:0:0:0 IPv6:2001:db8:0:0 \
             IPv6:2001:db8:0 IPv6:2001:db8 IPv6:2001 IPv6"
        );
        assert_eq!(written("::ffff:10.1.2.3".parse().unwrap()), "10.1.2.3");
    }

    #[test]
    fn a_name_is_asked_for_in_both_spellings() {
        let group = domain(Tag::only("From"), &of("a.xn--bcher-kva.example"), false);
        assert_eq!(
            group.keys,
            [
                "From:a.xn--bcher-kva.example",
                "From:a.b\u{fc}cher.example",
                "From:xn--bcher-kva.example",
                "From:b\u{fc}cher.example",
                "From:example",
                "From:example"
            ]
        );
    }
}

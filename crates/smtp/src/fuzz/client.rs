//! The body of the client: replies of a server in all orders, beside events.

use std::sync::Arc;
use std::time::Duration;

use mail::{MailParams, Recipient, RecipientParams};

use crate::client::{ClientDialect, ClientSettings, ClientTransaction, Login, Mechanism, Outcome, Security, TlsUse};
use crate::client_rehearsal::{ClientRehearsal, Job};

/// Bit of the first octet: the client logs in, in clear too.
const LOGIN: u8 = 32;
/// Bit of the first octet: the login waits for encryption.
const LOGIN_BEHIND_TLS: u8 = 64;
/// Bit of the first octet: the envelopes have parameters.
const PARAMETERS: u8 = 128;

/// The password as PLAIN and LOGIN say it; PLAIN's response begins at a group of three octets of its own.
const SECRETS: [&[u8]; 2] = [b"AHRpbQBzZWNyZXQ=", b"c2VjcmV0"];

/// Parameters of MAIL and of RCPT for each job.
const ENVELOPES: [(&str, &str); 4] = [
    ("SIZE=4 BODY=8BITMIME RET=HDRS ENVID=a+2Bb AUTH=<>", "NOTIFY=SUCCESS,DELAY ORCPT=rfc822;x+40y@z"),
    ("MT-PRIORITY=3 HOLDFOR=60 BY=600;RT", "NOTIFY=NEVER"),
    ("SMTPUTF8 BODY=BINARYMIME", ""),
    ("REQUIRETLS AUTH=tim@b.test", "ORCPT=utf-8;\\x{FC}@d"),
];

/// Keywords of parameters that the client says only to a server that offers the extension, and that extension.
const EXTENSIONS: [(&str, &str); 11] = [
    (" SIZE=", "SIZE"),
    (" BODY=8BITMIME", "8BITMIME"),
    (" BODY=BINARYMIME", "BINARYMIME"),
    (" RET=", "DSN"),
    (" ENVID=", "DSN"),
    (" NOTIFY=", "DSN"),
    (" ORCPT=", "DSN"),
    (" MT-PRIORITY=", "MT-PRIORITY"),
    (" BY=", "DELIVERBY"),
    (" SMTPUTF8", "SMTPUTF8"),
    (" REQUIRETLS", "REQUIRETLS"),
];

/// Feeds replies of a server to a client; the first octet chooses the settings. After each line the client carries out
/// its steps. A line of one letter is an event: `t` a time limit, `e` the end of the connection, `r` room for some
/// octets, `R` room for all, `q` QUIT.
///
/// # Panics
/// When what must hold does not.
pub fn client(data: &[u8]) {
    let (bits, input) = data.split_first().unwrap_or((&0, &[]));
    let whole = client_in_pieces(*bits, input, usize::MAX);
    for size in [1, 3] {
        let cut = client_in_pieces(*bits, input, size);
        assert_eq!(cut.done, whole.done, "in pieces of {size}");
        assert_eq!(cut.session.closing(), whole.session.closing(), "in pieces of {size}");
        assert_eq!(cut.wire.escape_ascii().to_string(), whole.wire.escape_ascii().to_string(), "in pieces of {size}");
    }
}

fn client_in_pieces(bits: u8, input: &[u8], size: usize) -> ClientRehearsal {
    let mut settings = ClientSettings::new("client.test");
    if bits & 1 != 0 {
        settings.dialect = ClientDialect::Lmtp;
    }
    settings.pipelining = bits & 2 == 0;
    settings.chunking = bits & 4 == 0;
    settings.tls = if bits & 8 == 0 { TlsUse::IfOffered } else { TlsUse::Required };
    settings.limits.content_ahead_octets = if bits & 16 == 0 { 1_000 } else { 10 };
    settings.limits.reply_lines = if bits & PARAMETERS == 0 { 5 } else { 20 };
    settings.limits.reply_line_octets = 100;
    settings.limits.reply_octets = 1_000;
    settings.login = (bits & (LOGIN | LOGIN_BEHIND_TLS) != 0).then(|| login(bits));
    let mut rehearsal = ClientRehearsal::new(settings);
    for (token, recipients, content) in
        [(1_u8, 2, "hi\r\n"), (2, 1, ".\r\n.x"), (3, 3, "1234567890123\r\n"), (4, 1, "")]
    {
        let mut recipient = Recipient::new("c@d.test".parse().expect("an address"));
        let mut params = MailParams::default();
        if bits & PARAMETERS != 0
            && let Some((of_mail, of_recipient)) = ENVELOPES.get(usize::from(token) - 1)
        {
            params = of_mail.parse().expect("parameters of MAIL");
            recipient.params = RecipientParams::parse(of_recipient.as_bytes()).expect("parameters of RCPT");
        }
        let transaction = ClientTransaction {
            token: token.into(),
            sender: "<a@b.test>".parse().expect("a path"),
            params,
            recipients: vec![recipient; recipients].into(),
            content_bytes: 0,
        };
        rehearsal.jobs.push_back(Job { transaction, content: content.as_bytes().into() });
    }
    rehearsal.pump();
    for line in input.split_inclusive(|octet| *octet == b'\n') {
        match line {
            b"t\n" => rehearsal.wait(rehearsal.session.deadline().min(Duration::from_secs(3_600))),
            b"e\n" => rehearsal.session.end_of_input(rehearsal.now),
            b"r\n" => rehearsal.room = 70,
            b"R\n" => rehearsal.room = usize::MAX,
            b"q\n" => rehearsal.session.quit(rehearsal.now),
            _ => line.chunks(size.min(line.len())).for_each(|piece| rehearsal.session.receive(piece, rehearsal.now)),
        }
        rehearsal.pump();
        if rehearsal.wants_tls && !rehearsal.closed {
            rehearsal.tls(true);
        }
    }
    rehearsal.session.end_of_input(rehearsal.now);
    rehearsal.pump();
    assert!(rehearsal.closed && rehearsal.session.in_flight() == 0);
    // Each delivered recipient has a reply of its own behind content that was sent.
    let delivered = rehearsal.done.iter().filter(|done| done.outcomes.iter().any(Outcome::is_delivered));
    let ends = [&b"BDAT "[..], b".\r\n"].map(|end| memchr::memmem::find_iter(&rehearsal.wire, end).count());
    assert!(delivered.count() <= ends.iter().sum());
    check_extensions(&rehearsal, bits, input);
    rehearsal
}

fn login(bits: u8) -> Arc<Login> {
    Arc::new(Login {
        user: "tim".into(),
        on_behalf_of: None,
        password: Box::<[u8]>::from(&b"secret"[..]).into(),
        mechanisms: Mechanism::ALL.to_vec(),
        password_needs: if bits & LOGIN_BEHIND_TLS == 0 { Security::Clear } else { Security::Encrypted },
        is_required: bits & LOGIN != 0,
    })
}

/// Asserts that the client says nothing that the server did not offer: no parameter of an extension, no password.
fn check_extensions(rehearsal: &ClientRehearsal, bits: u8, input: &[u8]) {
    let offers = input.to_ascii_uppercase();
    let is_offered = |word: &str| memchr::memmem::find(&offers, word.as_bytes()).is_some();
    let commands = rehearsal
        .wire
        .split(|octet| *octet == b'\n')
        .filter(|line| line.starts_with(b"MAIL FROM:") || line.starts_with(b"RCPT TO:"));
    for command in commands {
        for (parameter, extension) in EXTENSIONS {
            let is_said = memchr::memmem::find(command, parameter.as_bytes()).is_some();
            assert!(!is_said || is_offered(extension), "{} in {}", parameter, command.escape_ascii());
        }
    }
    let is_secret_said = SECRETS.iter().any(|secret| memchr::memmem::find(&rehearsal.wire, secret).is_some());
    let is_encrypted = || memchr::memmem::find(&rehearsal.wire, b"STARTTLS\r\n").is_some();
    assert!(!is_secret_said || is_offered("AUTH"), "a password that was not asked for");
    let may_say = bits & LOGIN_BEHIND_TLS == 0 || is_encrypted();
    assert!(!is_secret_said || bits & (LOGIN | LOGIN_BEHIND_TLS) != 0 && may_say, "a password in clear");
}

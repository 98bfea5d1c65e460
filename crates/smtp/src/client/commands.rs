//! The commands of a message: MAIL and RCPT with the parameters that the server offers.
//!
//! A parameter whose extension is not offered is dropped where its RFC lets a relay drop it. Where it may not be
//! dropped, [`misfit`] says so before anything is sent.

use std::borrow::Cow;

use mail::{Address, Body, Deadline, DeliverBy, Notify, RecipientParams, ReversePath, Submitter};

use super::offers::Offers;
use super::output::Output;
use super::step::{ClientTransaction, Misfit};

/// Returns the reason why `transaction` cannot be sent to a server with these offers. `chunking`: BDAT may be used.
/// `is_relay`: it is not one that delivers at once, by LMTP.
pub(super) fn misfit(
    transaction: &ClientTransaction,
    offers: &Offers,
    chunking: bool,
    is_relay: bool,
) -> Option<Misfit> {
    let params = &transaction.params;
    if !offers.smtputf8 && needs_utf8(transaction) {
        return Some(Misfit::Address);
    }
    // RFC 6531 §3.4: such a message goes only to servers with SMTPUTF8
    if params.smtputf8 && !offers.smtputf8 {
        return Some(Misfit::Smtputf8);
    }
    // RFC 8689 §4.2.1: such a message goes only to servers with REQUIRETLS
    if params.requiretls && !offers.requiretls {
        return Some(Misfit::RequireTls);
    }
    // RFC 2852 §4.1.4.1: mode R goes to no server without DELIVERBY, nor to one that promises nothing so soon
    if let Some(Deadline::Return(left)) = params.by.map(DeliverBy::deadline) {
        match offers.deliverby {
            Some(least) if left.get() < least => return Some(Misfit::TooLate { least }),
            None if is_relay => return Some(Misfit::DeliverBy),
            _ => {}
        }
    }
    match params.body {
        // RFC 6152 §3: without 8BITMIME it is converted or comes back
        Some(Body::EightBitMime) if !offers.eight_bit_mime => return Some(Misfit::EightBit),
        // RFC 3030 §3: binary content goes by BDAT only
        Some(Body::BinaryMime) if !(offers.binary_mime && chunking) => return Some(Misfit::Binary),
        _ => {}
    }
    // RFC 1870 §6.1: a message above the server's limit is not tried
    offers.size_max().filter(|max| transaction.content_bytes > *max).map(|max| Misfit::Size { max })
}

/// Writes MAIL. `utf8` is [`uses_utf8`].
pub(super) fn mail(out: &mut Output, transaction: &ClientTransaction, offers: &Offers, utf8: bool) {
    let params = &transaction.params;
    match &transaction.sender {
        ReversePath::Null => out.text(b"MAIL FROM:<>"),
        ReversePath::Address(address) => out.write(format_args!("MAIL FROM:<{}>", spelt(address, utf8))),
    }
    // RFC 1870 §6.1: the number of octets, dots not doubled
    if offers.size.is_some() {
        out.write(format_args!(" SIZE={}", transaction.content_bytes));
    }
    match params.body {
        Some(body @ (Body::SevenBit | Body::EightBitMime)) if offers.eight_bit_mime => {
            out.write(format_args!(" BODY={}", body.keyword()));
        }
        Some(Body::BinaryMime) => out.text(b" BODY=BINARYMIME"),
        _ => {}
    }
    // RFC 6531 §3.4
    if utf8 {
        out.text(b" SMTPUTF8");
    }
    // RFC 3461 §5.2.1: passed on where DSN is offered
    if offers.dsn {
        if let Some(ret) = params.ret {
            out.write(format_args!(" RET={}", ret.keyword()));
        }
        if let Some(envid) = &params.envid {
            let only_envid = mail::MailParams { envid: Some(envid.clone()), ..mail::MailParams::default() };
            out.write(format_args!(" {only_envid}"));
        }
    }
    // RFC 4954 §5: a relay that did not authenticate to this server vouches for no submitter
    if offers.auth && params.auth.is_some() {
        out.write(format_args!(" AUTH={}", Submitter::Unknown));
    }
    // RFC 6710 §4.2: passed on as it was accepted, where it is offered; RFC 6710 §4.1: it is 0 where the client gave
    // none
    if offers.mt_priority {
        out.write(format_args!(" MT-PRIORITY={}", params.mt_priority.unwrap_or_default()));
    }
    if params.requiretls {
        out.text(b" REQUIRETLS");
    }
    // RFC 2852 §4.1.4: the driver has subtracted the time that has passed. RFC 4865 §3: a message that was held is sent
    // without HOLDFOR and HOLDUNTIL, since its time has come
    if let Some(by) = params.by.filter(|_| offers.deliverby.is_some()) {
        out.write(format_args!(" BY={by}"));
    }
    out.text(b"\r\n");
}

/// Writes RCPT for the recipient at `index`.
pub(super) fn rcpt(out: &mut Output, transaction: &ClientTransaction, index: usize, offers: &Offers, utf8: bool) {
    let Some(recipient) = transaction.recipients.get(index) else { return };
    out.write(format_args!("RCPT TO:<{}>", spelt(&recipient.address, utf8)));
    // RFC 3461 §5.2.1: NOTIFY and ORCPT are passed on unchanged
    let notify = late_notify(transaction, recipient.params.notify, offers);
    if offers.dsn && (notify.is_some() || recipient.params.orcpt.is_some()) {
        out.write(format_args!(" {}", RecipientParams { notify, ..recipient.params.clone() }));
    }
    out.text(b"\r\n");
}

/// Adds DELAY to NOTIFY when the sender gave a time and the server does not offer DELIVERBY: the server then reports
/// delays by its own clock.
// RFC 2852 §4.1.4.2: mode N, before the time; in spite of RFC 3461 §5.2.1
fn late_notify(transaction: &ClientTransaction, notify: Option<Notify>, offers: &Offers) -> Option<Notify> {
    let by = transaction.params.by.filter(|_| offers.deliverby.is_none());
    if !matches!(by.map(DeliverBy::deadline), Some(Deadline::Notify(1..))) || notify == Some(Notify::NEVER) {
        return notify;
    }
    Some(notify.unwrap_or(Notify::FAILURE).and(Notify::DELAY))
}

/// Whether an address has no form in ASCII.
fn needs_utf8(transaction: &ClientTransaction) -> bool {
    let mut addresses = transaction
        .sender
        .address()
        .into_iter()
        .chain(transaction.recipients.iter().map(|recipient| &recipient.address));
    addresses.any(|address| !address.is_ascii() && address.to_ascii().is_none())
}

/// Whether SMTPUTF8 is said.
pub(super) fn uses_utf8(transaction: &ClientTransaction, offers: &Offers) -> bool {
    offers.smtputf8 && (transaction.params.smtputf8 || needs_utf8(transaction))
}

// RFC 6531 §3.2: without SMTPUTF8 a domain goes out in A-labels
fn spelt(address: &Address, utf8: bool) -> Cow<'_, Address> {
    if utf8 || address.is_ascii() {
        return Cow::Borrowed(address);
    }
    address.to_ascii().map_or(Cow::Borrowed(address), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Recipient;

    const PARAMS: &str = "SIZE=1 BODY=8BITMIME RET=HDRS ENVID=x+2By AUTH=a@b.test MT-PRIORITY=3 BY=100;R";

    fn transaction(sender: &str, params: &str, recipient: &str) -> ClientTransaction {
        let address = recipient.parse().unwrap();
        let rcpt: RecipientParams = "NOTIFY=NEVER ORCPT=rfc822;c+2Bd@e.test".parse().unwrap();
        ClientTransaction {
            token: 1,
            sender: sender.parse().unwrap(),
            params: params.parse().unwrap(),
            recipients: [Recipient { address, params: rcpt }].into(),
            content_bytes: 1_000,
        }
    }

    fn said(transaction: &ClientTransaction, offers: &str) -> Result<String, Misfit> {
        let offers = Offers::read(format!("x {offers}").split(' ').map(str::as_bytes));
        if let Some(misfit) = misfit(transaction, &offers, offers.chunking, true) {
            return Err(misfit);
        }
        let mut out = Output::default();
        let utf8 = uses_utf8(transaction, &offers);
        mail(&mut out, transaction, &offers, utf8);
        rcpt(&mut out, transaction, 0, &offers, utf8);
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let count = out.slices(&mut slices);
        assert_eq!(count, 1);
        Ok(String::from_utf8(slices[0].to_vec()).unwrap())
    }

    // RFC 2852 §4.1.4 (test), RFC 6710 §4.2 (test), RFC 6710 §4.3 (test), RFC 3461 §5.2.1 (test), RFC 4954 §5 (test),
    // RFC 1870 §6.1 (test), RFC 6152 §3 (test), RFC 6531 §3.2 (test)
    #[test]
    fn what_is_offered_is_said() {
        let message = transaction("<a@b.test>", PARAMS, "c@d.test");
        assert_eq!(said(&message, "SIZE"), Err(Misfit::DeliverBy));
        assert_eq!(said(&message, "SIZE DELIVERBY"), Err(Misfit::EightBit));
        assert_eq!(
            said(&message, "SIZE 8BITMIME DSN AUTH MT-PRIORITY DELIVERBY SMTPUTF8").unwrap(),
            "MAIL FROM:<a@b.test> SIZE=1000 BODY=8BITMIME RET=HDRS ENVID=x+2By AUTH=<> MT-PRIORITY=3 BY=100;R\r\n\
             RCPT TO:<c@d.test> NOTIFY=NEVER ORCPT=rfc822;c+2Bd@e.test\r\n"
        );
        assert_eq!(
            said(&message, "8BITMIME DELIVERBY").unwrap(),
            "MAIL FROM:<a@b.test> BODY=8BITMIME BY=100;R\r\nRCPT TO:<c@d.test>\r\n"
        );
        let message = transaction("<>", "BODY=7BIT", "c@d.test");
        assert_eq!(said(&message, "").unwrap(), "MAIL FROM:<>\r\nRCPT TO:<c@d.test>\r\n");
        let message = transaction("<>", "", "c@d\u{fc}.test");
        assert_eq!(said(&message, "").unwrap(), "MAIL FROM:<>\r\nRCPT TO:<c@xn--d-eha.test>\r\n");
        assert_eq!(said(&message, "SMTPUTF8").unwrap(), "MAIL FROM:<>\r\nRCPT TO:<c@xn--d-eha.test>\r\n");
        let message = transaction("<>", "", "\u{fc}@d\u{fc}.test");
        assert_eq!(said(&message, "SMTPUTF8").unwrap(), "MAIL FROM:<> SMTPUTF8\r\nRCPT TO:<\u{fc}@d\u{fc}.test>\r\n");
        let message = transaction("<>", "REQUIRETLS", "c@d.test");
        assert_eq!(said(&message, "REQUIRETLS").unwrap(), "MAIL FROM:<> REQUIRETLS\r\nRCPT TO:<c@d.test>\r\n");
        let message = transaction("<>", "BODY=BINARYMIME", "c@d.test");
        assert_eq!(
            said(&message, "BINARYMIME CHUNKING").unwrap(),
            "MAIL FROM:<> BODY=BINARYMIME\r\nRCPT TO:<c@d.test>\r\n"
        );
    }

    // RFC 2852 §4.1.4.2 (test)
    #[test]
    fn who_does_not_know_the_time_is_asked_to_tell_of_delays() {
        let notify = |by: &str, notify: &str, offers: &str| {
            let mut message = transaction("<a@b.test>", by, "c@d.test");
            let params: RecipientParams = notify.parse().unwrap();
            message.recipients = [Recipient { params, ..message.recipients[0].clone() }].into();
            let said = said(&message, offers).unwrap();
            said.lines().nth(1).unwrap().strip_prefix("RCPT TO:<c@d.test>").unwrap().to_owned()
        };
        for (by, given, offers, wanted) in [
            ("BY=9;N", "", "DSN", " NOTIFY=FAILURE,DELAY"),
            ("BY=9;NT", "ORCPT=rfc822;x@y.test", "DSN", " NOTIFY=FAILURE,DELAY ORCPT=rfc822;x@y.test"),
            ("BY=9;N", "NOTIFY=SUCCESS", "DSN", " NOTIFY=SUCCESS,DELAY"),
            ("BY=9;N", "NOTIFY=DELAY", "DSN", " NOTIFY=DELAY"),
            ("BY=9;N", "NOTIFY=NEVER", "DSN", " NOTIFY=NEVER"),
            ("BY=9;N", "", "", ""),
            ("BY=9;N", "", "DSN DELIVERBY 60", ""),
            ("BY=9;R", "", "DSN DELIVERBY", ""),
            // Its sender was told.
            ("BY=0;N", "", "DSN", ""),
            ("BY=-9;N", "NOTIFY=FAILURE", "DSN", " NOTIFY=FAILURE"),
            ("", "NOTIFY=FAILURE", "DSN", " NOTIFY=FAILURE"),
        ] {
            assert_eq!(notify(by, given, offers), wanted, "{by} {given} {offers}");
        }
    }

    // RFC 6710 §4.2 (test)
    #[test]
    fn a_message_without_a_priority_has_that_of_usual_mail() {
        let message = transaction("<a@b.test>", "", "c@d.test");
        for (offers, wanted) in [("MT-PRIORITY MIXER", " MT-PRIORITY=0"), ("", "")] {
            let said = said(&message, offers).unwrap();
            assert_eq!(said.lines().next().unwrap(), format!("MAIL FROM:<a@b.test>{wanted}"));
        }
    }

    // RFC 3030 §3 (test), RFC 8689 §4.2.1 (test), RFC 6531 §3.4 (test)
    #[test]
    fn what_does_not_fit() {
        let offers = |limit: u64| Offers { size: Some(limit), ..Offers::default() };
        for (sender, params, recipient, wanted) in [
            ("<\u{fc}@b.test>", "SMTPUTF8", "c@d.test", Misfit::Address),
            ("<a@b.test>", "", "\u{fc}@d.test", Misfit::Address),
            ("<a@b.test>", "SMTPUTF8", "c@d.test", Misfit::Smtputf8),
            ("<a@b.test>", "REQUIRETLS", "c@d.test", Misfit::RequireTls),
            ("<a@b.test>", "BODY=BINARYMIME", "c@d.test", Misfit::Binary),
            ("<a@b.test>", "BODY=8BITMIME", "c@d.test", Misfit::EightBit),
            ("<a@b.test>", "", "c@d.test", Misfit::Size { max: 999 }),
        ] {
            let message = transaction(sender, params, recipient);
            assert_eq!(misfit(&message, &offers(999), true, true), Some(wanted), "{sender} {params} {recipient}");
        }
        let late = |params: &str, least: Option<u32>, is_relay| {
            let offers = Offers { deliverby: least, ..Offers::default() };
            misfit(&transaction("<>", params, "c@d.test"), &offers, true, is_relay)
        };
        assert_eq!(late("BY=99;R", Some(100), true), Some(Misfit::TooLate { least: 100 }));
        assert_eq!(late("BY=99;R", None, true), Some(Misfit::DeliverBy));
        assert_eq!([late("BY=100;R", Some(100), true), late("BY=-5;N", Some(100), true)], [None; 2]);
        assert_eq!([late("BY=1;N", None, true), late("BY=1;R", None, false)], [None; 2]);
        let message = transaction("<>", "", "c@d.test");
        assert_eq!([0, 1_000].map(|limit| misfit(&message, &offers(limit), true, true)), [None, None]);
        let binary = Offers { binary_mime: true, ..Offers::default() };
        let message = transaction("<>", "BODY=BINARYMIME", "c@d.test");
        assert_eq!(misfit(&message, &binary, false, true), Some(Misfit::Binary));
        assert_eq!(misfit(&message, &binary, true, true), None);
    }
}

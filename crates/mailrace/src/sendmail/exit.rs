//! sendmail's exit statuses, and which refusal has which.

/// `EX_OK`
pub(super) const OK: u8 = 0;
/// `EX_USAGE`
pub(super) const USAGE: u8 = 64;
/// `EX_DATAERR`
pub(super) const DATA: u8 = 65;
/// `EX_NOINPUT`
pub(super) const NO_INPUT: u8 = 66;
/// `EX_NOUSER`
pub(super) const NO_USER: u8 = 67;
/// `EX_NOHOST`
pub(super) const NO_HOST: u8 = 68;
/// `EX_UNAVAILABLE`
pub(super) const UNAVAILABLE: u8 = 69;
/// `EX_SOFTWARE`
pub(super) const SOFTWARE: u8 = 70;
/// `EX_OSFILE`
pub(super) const SYSTEM_FILE: u8 = 72;
/// `EX_CANTCREAT`
pub(super) const CANNOT_CREATE: u8 = 73;
/// `EX_IOERR`
pub(super) const IO: u8 = 74;
/// `EX_TEMPFAIL`
pub(super) const LATER: u8 = 75;
/// `EX_PROTOCOL`
pub(super) const PROTOCOL: u8 = 76;
/// `EX_NOPERM`
pub(super) const NO_PERMISSION: u8 = 77;
/// `EX_CONFIG`
pub(super) const CONFIG: u8 = 78;

/// The status of a permanent refusal by its reply, as `550 5.1.1 …`: by the enhanced code where there is one, as
/// sendmail's `dsntoexitstat` does it, else by the code.
pub(super) fn of_reply(reply: &str) -> u8 {
    let mut words = reply.split_ascii_whitespace();
    let code = words.next().unwrap_or_default();
    let status: Vec<&str> = words.next().unwrap_or_default().split('.').collect();
    match status.as_slice() {
        ["5", subject, detail] => of_status(subject, detail),
        _ => of_code(code),
    }
}

/// Returns the status for a refusal of the next hop, by its code.
pub(super) fn of_code(code: &str) -> u8 {
    match code {
        "550" | "551" | "553" => NO_USER,
        _ => UNAVAILABLE,
    }
}

fn of_status(subject: &str, detail: &str) -> u8 {
    match (subject, detail) {
        ("1", "1" | "6" | "0") | ("2", "1") => NO_USER,
        ("1", "2") => NO_HOST,
        ("1", "3") => USAGE,
        ("1" | "7", _) => DATA,
        ("5", _) => PROTOCOL,
        _ => UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_refusals() {
        for (reply, status) in [
            ("550 5.1.1 <x@y>... User unknown", NO_USER),
            ("550 5.1.2 <x@y>... Host unknown", NO_HOST),
            ("550 5.7.1 <x@y>... Relaying denied", DATA),
            ("554 5.4.6 Too many hops", UNAVAILABLE),
            ("552 5.3.4 too large", UNAVAILABLE),
            ("554 5.5.0 Command rejected", PROTOCOL),
            ("553 5.1.3 <x@>... User address required", USAGE),
            ("550 no such user", NO_USER),
            ("554 no", UNAVAILABLE),
            ("", UNAVAILABLE),
        ] {
            assert_eq!(of_reply(reply), status, "{reply}");
        }
    }
}

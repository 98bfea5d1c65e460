//! Names and values of header fields that a filter wants to set: checked, so that none can begin another field or end
//! the header section.

/// Whether octets are the name of a field (RFC 5322 §3.6.8).
pub(crate) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&octet| octet.is_ascii_graphic() && octet != b':')
}

/// Makes the octets behind the colon of a value as filters write it: folds are LF, or CR LF, and a blank.
///
/// The result begins with a blank unless the value keeps its own, folds with CR LF, and has no last line end. A line of
/// the value that begins with no blank would begin another field, and an empty one would end the header.
///
/// # Errors
/// The fault of the value.
pub(crate) fn folded_value(value: &[u8], keeps_leading_blank: bool) -> Result<Vec<u8>, &'static str> {
    let mut value = value;
    while let [rest @ .., b'\r' | b'\n'] = value {
        value = rest;
    }
    let mut out = Vec::with_capacity(value.len() + 8);
    if !keeps_leading_blank {
        out.push(b' ');
    }
    for (number, line) in value.split(|&octet| octet == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') {
            return Err("a CR within a field");
        }
        if line.contains(&0) {
            return Err("a NUL within a field");
        }
        if number > 0 {
            if !matches!(line.first(), Some(b' ' | b'\t')) {
                return Err("a line that would begin a field or end the header");
            }
            if line.iter().all(|&octet| matches!(octet, b' ' | b'\t')) {
                return Err("a continued line of blanks only");
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(line);
    }
    Ok(out)
}

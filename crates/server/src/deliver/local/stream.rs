//! An order and its message from the server to the process that delivers it, and the verdict back, over a Unix socket.
//!
//! | Octets | From the server | From the agent |
//! |---|---|---|
//! | 4, then as many as they say | the order, JSON | the verdict, JSON |
//! | 4, then as many as they say, again and again | a piece of the message | |
//! | 4 of zero | the end of the message | |
//!
//! Numbers are little endian. A message without its end is none: the agent takes back what it has done.

use super::letter::Content;
use super::order::{Order, Verdict};
use bytes::Bytes;
use std::io::{self, Read, Write};

/// The longest order or verdict.
const TEXT_MAX: u32 = 256 << 10;
/// The longest piece of a message.
const PIECE_MAX: u32 = 4 << 20;

/// Sends an order.
pub(super) fn send_order(to: &mut impl Write, order: &Order) -> io::Result<()> {
    send(to, order.to_json().as_bytes())
}

/// Sends a message to its end.
///
/// # Errors
/// `Ok(Err(_))`: it cannot be read. `Err(_)`: nobody takes it.
pub(super) fn send_content(to: &mut impl Write, content: &mut dyn Content) -> io::Result<Result<(), String>> {
    loop {
        match content.next() {
            Ok(Some(piece)) => {
                for part in piece.chunks(PIECE_MAX as usize) {
                    send(to, part)?;
                }
            }
            Ok(None) => {
                to.write_all(&[0; 4])?;
                return Ok(Ok(()));
            }
            Err(why) => return Ok(Err(why)),
        }
    }
}

/// Sends a verdict.
pub(super) fn send_verdict(to: &mut impl Write, verdict: &Verdict) -> io::Result<()> {
    send(to, verdict.to_json().as_bytes())
}

fn send(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)
}

/// Waits for an order.
pub(super) fn order(from: &mut impl Read) -> io::Result<Order> {
    Order::from_json(&receive(from, TEXT_MAX)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits for a verdict.
pub(super) fn verdict(from: &mut impl Read) -> io::Result<Verdict> {
    Verdict::from_json(&receive(from, TEXT_MAX)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn receive(from: &mut impl Read, max: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A message as it comes.
pub(super) struct Incoming<'a, R> {
    from: &'a mut R,
    is_over: bool,
}

impl<'a, R: Read> Incoming<'a, R> {
    pub(super) fn new(from: &'a mut R) -> Self {
        Self { from, is_over: false }
    }

    /// Reads what is left of it, for an answer that is given before its end.
    pub(super) fn drain(&mut self) {
        while let Ok(Some(_)) = self.next() {}
    }
}

impl<R: Read> Content for Incoming<'_, R> {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        if self.is_over {
            return Ok(None);
        }
        let piece = receive(self.from, PIECE_MAX).map_err(|error| {
            self.is_over = true;
            format!("the server broke off: {error}")
        })?;
        self.is_over = piece.is_empty();
        Ok((!self.is_over).then(|| piece.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::{Pieces, Text, order as an_order};
    use super::*;

    #[test]
    fn what_is_sent_arrives() {
        let mut wire = Vec::new();
        send_order(&mut wire, &an_order()).unwrap();
        send_content(&mut wire, &mut Text::new("0123456789", 3)).unwrap().unwrap();
        send_verdict(&mut wire, &Verdict::delivered()).unwrap();
        let mut from = wire.as_slice();
        assert_eq!(order(&mut from).unwrap(), an_order());
        let mut content = Incoming::new(&mut from);
        let mut whole = Vec::new();
        while let Some(piece) = content.next().unwrap() {
            whole.extend_from_slice(&piece);
        }
        assert_eq!((whole.as_slice(), content.next()), (b"0123456789".as_slice(), Ok(None)));
        assert_eq!(verdict(&mut from).unwrap(), Verdict::delivered());
    }

    #[test]
    fn a_message_without_its_end_is_none() {
        let mut wire = Vec::new();
        let mut broken = Pieces(vec![Ok(b"abc"), Err("gone")]);
        assert_eq!(send_content(&mut wire, &mut broken).unwrap(), Err("gone".to_owned()));
        for end in 0..=wire.len() {
            let mut from = &wire[..end];
            let mut content = Incoming::new(&mut from);
            let last = loop {
                match content.next() {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            assert!(last.is_err(), "cut at {end}");
        }
        assert!(order(&mut [0xff_u8; 8].as_slice()).is_err(), "longer than anything");
    }
}

//! Orders and their messages from the server to the process that carries them out, and verdicts back, over a Unix
//! socket.
//!
//! | Octets | From the server | From the agent |
//! |---|---|---|
//! | 4, then as many as they say | an order, JSON | |
//! | 4 of zero | | the first order is there, and is begun |
//! | 4, then as many as they say, again and again | a piece of its message | |
//! | 4 of zero, or 4 of 0xff | the end of the message, or that it breaks off | |
//! | … | the next order and its message | |
//! | 4 of zero, in the place of an order | the end of the batch | |
//! | 4, then as many as they say | | for each order a verdict, JSON |
//!
//! Numbers are little endian. A message without its end is none: the agent undoes its delivery. An agent that ends
//! before it has begun has done nothing, and the batch can be given to another. If it ends later, the results are
//! unknown. After a batch the server may send another.

use super::letter::{Content, Orders};
use super::order::{DeliveryRequest, Verdict};
use bytes::Bytes;
use std::io::{self, Read, Write};

/// The longest order or verdict.
const TEXT_MAX: u32 = 256 << 10;
/// The longest piece of a message.
const PIECE_MAX: u32 = 4 << 20;
/// In the place of a piece: the message breaks off.
const BROKEN: u32 = u32::MAX;

/// Sends orders with their messages. For each, why its message cannot be read, if so.
///
/// # Errors
/// The worker has closed the socket.
pub fn send_batch(to: &mut impl Write, orders: &mut dyn Orders) -> io::Result<Vec<Option<String>>> {
    let mut all = Vec::new();
    while let Some(order) = orders.next_order() {
        send(to, order.to_json().as_bytes())?;
        all.push(send_content(to, orders)?);
    }
    to.write_all(&[0; 4])?;
    to.flush()?;
    Ok(all)
}

fn send_content(to: &mut impl Write, content: &mut dyn Orders) -> io::Result<Option<String>> {
    loop {
        match content.next() {
            Ok(Some(piece)) => {
                for part in piece.chunks(PIECE_MAX as usize) {
                    send(to, part)?;
                }
            }
            Ok(None) => {
                to.write_all(&[0; 4])?;
                return Ok(None);
            }
            Err(why) => {
                to.write_all(&BROKEN.to_le_bytes())?;
                return Ok(Some(why));
            }
        }
    }
}

/// Says that the first order is begun.
///
/// # Errors
/// The socket cannot be written to.
pub fn send_begun(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 4])
}

/// Sends verdicts.
///
/// # Errors
/// The socket cannot be written to.
pub fn send_verdicts(to: &mut impl Write, verdicts: &[Verdict]) -> io::Result<()> {
    verdicts.iter().try_for_each(|verdict| send(to, verdict.to_json().as_bytes()))?;
    to.flush()
}

/// Sends octets behind their number.
///
/// # Errors
/// The socket cannot be written to; more than 4 GiB.
pub fn send(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)
}

/// Waits until the first order is begun.
///
/// # Errors
/// The other side is gone, or sends nothing of this form.
pub fn receive_begun(from: &mut impl Read) -> io::Result<()> {
    receive(from, 0).map(drop)
}

/// Waits for a verdict.
///
/// # Errors
/// The other side is gone, or sends nothing of this form.
pub fn receive_verdict(from: &mut impl Read) -> io::Result<Verdict> {
    Verdict::from_json(&receive(from, TEXT_MAX)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The most octets that are taken from a socket at once: memory grows with the octets that the other side has sent.
const PIECE_BYTES: u64 = 64 << 10;

/// Waits for octets behind their number, at most `max`.
///
/// # Errors
/// The other side is gone, or announces more.
pub fn receive(from: &mut impl Read, max: u32) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    let mut rest = u64::from(length);
    while rest > 0 {
        let piece = from.by_ref().take(rest.min(PIECE_BYTES)).read_to_end(&mut bytes)?;
        if piece == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest = rest.saturating_sub(piece as u64);
    }
    Ok(bytes)
}

/// A batch as it comes.
pub struct Incoming<R> {
    from: R,
    /// An order that was read and is not given yet.
    first: Option<DeliveryRequest>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next is an order, or the end.
    BetweenOrders,
    InMessage,
    /// The batch was read to its end.
    Whole,
    /// It broke off.
    Over,
}

impl<R: Read> Incoming<R> {
    /// Waits for the first order of a batch; `None`: the server wants nothing any more.
    ///
    /// # Errors
    /// It does not come in time, or is none.
    pub fn receive_first(mut from: R) -> io::Result<Option<Self>> {
        Ok(order(&mut from)?.map(|first| Self { from, first: Some(first), state: State::BetweenOrders }))
    }

    /// Whether the batch was read to its end. If not, no process reads a verdict.
    pub fn is_whole(&mut self) -> bool {
        while self.next_order().is_some() {}
        self.state == State::Whole
    }
}

/// The next order; `None`: the batch, or the stream between batches, ends.
fn order(from: &mut impl Read) -> io::Result<Option<DeliveryRequest>> {
    let text = match receive(from, TEXT_MAX) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    match text.as_slice() {
        [] => Ok(None),
        text => DeliveryRequest::from_json(text).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

impl<R: Read> Content for Incoming<R> {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        if self.state != State::InMessage {
            return Ok(None);
        }
        let broken = |state: &mut State, end, error: &dyn std::fmt::Display| {
            *state = end;
            Err(format!("the server broke off: {error}"))
        };
        let mut length = [0; 4];
        if let Err(error) = self.from.read_exact(&mut length) {
            return broken(&mut self.state, State::Over, &error);
        }
        match u32::from_le_bytes(length) {
            0 => {
                self.state = State::BetweenOrders;
                Ok(None)
            }
            BROKEN => broken(&mut self.state, State::BetweenOrders, &"its end is missing"),
            length if length > PIECE_MAX => broken(&mut self.state, State::Over, &"a piece that is none"),
            length => {
                let mut bytes = vec![0; length as usize];
                match self.from.read_exact(&mut bytes) {
                    Ok(()) => Ok(Some(bytes.into())),
                    Err(error) => broken(&mut self.state, State::Over, &error),
                }
            }
        }
    }
}

impl<R: Read> Orders for Incoming<R> {
    fn next_order(&mut self) -> Option<DeliveryRequest> {
        while let Ok(Some(_)) = self.next() {}
        if matches!(self.state, State::Whole | State::Over) {
            return None;
        }
        if let Some(first) = self.first.take() {
            self.state = State::InMessage;
            return Some(first);
        }
        let mut length = [0; 4];
        let text = match self.from.read_exact(&mut length).map(|()| u32::from_le_bytes(length)) {
            // The next octets are those of the next batch.
            Ok(0) => {
                self.state = State::Whole;
                return None;
            }
            Ok(length) if length <= TEXT_MAX => {
                let mut text = vec![0; length as usize];
                self.from.read_exact(&mut text).map(|()| text)
            }
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(error),
        };
        let order = text.ok().and_then(|text| DeliveryRequest::from_json(&text));
        self.state = if order.is_some() { State::InMessage } else { State::Over };
        order
    }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::{Pieces, Text, order as an_order};
    use super::*;

    /// Orders from a list.
    struct List(Vec<(DeliveryRequest, Box<dyn Content>)>, Option<Box<dyn Content>>);

    impl Content for List {
        fn next(&mut self) -> Result<Option<Bytes>, String> {
            self.1.as_mut().map_or(Ok(None), |content| content.next())
        }
    }

    impl Orders for List {
        fn next_order(&mut self) -> Option<DeliveryRequest> {
            if self.0.is_empty() {
                return None;
            }
            let (order, content) = self.0.remove(0);
            self.1 = Some(content);
            Some(order)
        }
    }

    fn sent() -> (Vec<u8>, Vec<Option<String>>) {
        let mut wire = Vec::new();
        let other = DeliveryRequest { local: "other".into(), ..an_order() };
        let broken = Pieces(vec![Ok(b"abc"), Err("gone")]);
        let mut list = List(
            vec![
                (an_order(), Box::new(Text::new("0123456789", 3))),
                (other.clone(), Box::new(broken)),
                (other, Box::new(Text::new("x", 3))),
            ],
            None,
        );
        let told = send_batch(&mut wire, &mut list).unwrap();
        (wire, told)
    }

    #[test]
    fn what_is_sent_arrives() {
        let (mut wire, told) = sent();
        assert_eq!(told, [None, Some("gone".to_owned()), None]);
        wire.extend(sent().0);
        let mut from = wire.as_slice();
        for _ in 0..2 {
            let mut batch = Incoming::receive_first(&mut from).unwrap().unwrap();
            let mut all = Vec::new();
            while let Some(order) = batch.next_order() {
                let mut whole = Vec::new();
                let end = loop {
                    match batch.next() {
                        Ok(Some(piece)) => whole.extend_from_slice(&piece),
                        Ok(None) => break true,
                        Err(_) => break false,
                    }
                };
                all.push((order.local, whole, end));
            }
            let wanted = [("joe", "0123456789", true), ("other", "abc", false), ("other", "x", true)];
            assert_eq!(all, wanted.map(|(local, text, end)| (local.to_owned(), text.as_bytes().to_vec(), end)));
            assert!(batch.is_whole());
        }
        assert!(Incoming::receive_first(&mut from).unwrap().is_none(), "nothing follows");
        let mut wire = Vec::new();
        send_begun(&mut wire).unwrap();
        send_verdicts(&mut wire, &[Verdict::delivered(), Verdict::failed((1, 1), "x")]).unwrap();
        let mut from = wire.as_slice();
        receive_begun(&mut from).unwrap();
        assert_eq!(receive_verdict(&mut from).unwrap(), Verdict::delivered());
        assert_eq!(receive_verdict(&mut from).unwrap(), Verdict::failed((1, 1), "x"));
        assert!(receive_begun(&mut wire.get(4..).unwrap()).is_err(), "a verdict says nothing of a beginning");
    }

    #[test]
    fn a_batch_may_be_passed_over() {
        let (wire, _) = sent();
        let mut batch = Incoming::receive_first(wire.as_slice()).unwrap().unwrap();
        assert_eq!(batch.next(), Ok(None), "no message before its order");
        assert!(batch.is_whole() && batch.from.is_empty());
    }

    #[test]
    fn a_batch_without_its_end_is_none() {
        let (wire, _) = sent();
        for end in 0..wire.len() {
            let Ok(Some(mut batch)) = Incoming::receive_first(&wire[..end]) else { continue };
            let mut broken = 0;
            while batch.next_order().is_some() {
                broken += u32::from(loop {
                    match batch.next() {
                        Ok(Some(_)) => {}
                        other => break other.is_err(),
                    }
                });
            }
            assert!(!batch.is_whole(), "cut at {end}");
            assert!(broken <= 2, "cut at {end}");
        }
        assert!(Incoming::receive_first([0xff_u8; 8].as_slice()).is_err(), "longer than anything");
    }
}

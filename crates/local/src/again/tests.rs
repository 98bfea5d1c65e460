//! Trials of deliveries that were cut short: at every octet, and with others who have written meanwhile.

use super::super::file::Tail;
use super::super::letter::MailboxMessage;
use super::super::letter::tests::{Text, order, split};
use super::*;
use proptest::prelude::*;

/// A file in memory.
struct Memory(Vec<u8>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for Memory {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut rest = self.0.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        io::Read::read(&mut rest, buffer)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.0.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message as it comes to the spool, with the queue id of the order in it.
const TEXT: &str =
    "Received: by mx.example id 6AK84ct0028759;\r\n\tFri, 15 Jan 2027\r\nSubject: x\r\n\r\nFrom me\r\nto you\r\n";

fn put(file: &mut Vec<u8>, text: &str, is_again: bool) {
    // Some time later.
    let date = if is_again { "Sat Jan 16 09:00:00 2027" } else { "Fri Jan 15 08:00:00 2027" };
    let order = DeliveryRequest { is_again, date: date.into(), ..order() };
    let mut content = Text::new(text, 7);
    let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
    let length = file.len() as u64;
    let mut tail = Tail::new(Memory(std::mem::take(file)), length, u64::MAX);
    assert!(tail.append(&mut letter).is_ok() && tail.close(|| Ok(())).is_ok());
    *file = tail.into_medium().0;
}

fn once(text: &str) -> Vec<u8> {
    let mut file = Vec::new();
    put(&mut file, text, false);
    file
}

fn is_whole(message: &str) -> bool {
    message.ends_with("Subject: x\n\nFrom me\nto you\n\n")
}

#[test]
fn a_message_that_was_cut_short_is_completed() {
    let whole = once(TEXT);
    let line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for before in ["", "From x\n\nold\n\n"] {
        let (mut completed, mut stubs) = (0, 0);
        for cut in 0..=whole.len() {
            let half = [before.as_bytes(), &whole[..cut]].concat();
            let mut file = half.clone();
            put(&mut file, TEXT, true);
            assert!(file.starts_with(&half), "nothing is taken away, at {cut}");
            let messages = split(str::from_utf8(&file).unwrap());
            assert_eq!(messages.iter().filter(|message| is_whole(message)).count(), 1, "at {cut}");
            if cut >= line {
                assert_eq!(file, [before.as_bytes(), &whole].concat(), "at {cut}");
                completed += 1;
            } else {
                stubs += 1;
                // A rest of its line is no part of the whole one.
                assert!(
                    messages.last().is_some_and(|last| is_whole(last)) && messages.len() <= 2 + before.len().min(1)
                );
            }
            // The control: a delivery that does not look has half a message and a whole one.
            let mut file = half.clone();
            put(&mut file, TEXT, false);
            let messages = split(str::from_utf8(&file).unwrap());
            assert_eq!(
                messages.len(),
                usize::from(!before.is_empty()) + 1 + usize::from(cut >= "From ".len()),
                "at {cut}"
            );
        }
        assert!(completed > 100 && stubs > 30, "{completed} {stubs}");
    }
}

#[test]
fn a_message_that_is_there_is_not_repeated() {
    let whole = once(TEXT);
    for behind in ["", "From y\n\nanother\n\n"] {
        let before = [whole.as_slice(), behind.as_bytes()].concat();
        let mut file = before.clone();
        put(&mut file, TEXT, true);
        assert_eq!(str::from_utf8(&file).unwrap(), str::from_utf8(&before).unwrap());
        put(&mut file, TEXT, false);
        assert_ne!(file, before, "the control");
    }
}

#[test]
fn what_somebody_has_changed_is_left_alone() {
    let whole = once(TEXT);
    let half = &whole[..whole.len() - 9];
    let flagged = String::from_utf8(whole.clone()).unwrap().replace("Subject: x\n", "Subject: x\nStatus: RO\n");
    for (what, before) in [
        ("a reader has noted that it was read", flagged.into_bytes()),
        ("another message follows half of it", [half, b"\n\nFrom y\n\nanother\n\n"].concat()),
        ("something else follows half of it", [half, b"else"].concat()),
        ("something follows the whole of it", [&whole, b"else".as_slice()].concat()),
        ("zeroes follow half of it", [half, &[0; 100]].concat()),
        ("a message that only begins alike", once(&TEXT.replace("to you", "to them"))),
        ("half of one that only begins alike", once(&TEXT.replace("to you", "to them"))[..188].to_vec()),
    ] {
        let mut file = before.clone();
        put(&mut file, TEXT, true);
        assert!(file.starts_with(&before), "{what}");
        let behind = str::from_utf8(&file[before.len()..]).unwrap();
        let own = behind.trim_start_matches('\n');
        assert!(
            own.starts_with("From ann@a.example Sat Jan 16") && own.ends_with("\n\n>From me\nto you\n\n"),
            "{what}: {behind:?}"
        );
        assert!(own.contains("Received: by mx.example id 6AK84ct0028759;\n"), "{what}: {behind:?}");
    }
}

#[test]
fn of_several_messages_that_come_again_each_is_looked_for() {
    let id = |number: u32| TEXT.replace("8759;", &format!("8759;{number}"));
    let texts: Vec<String> = (0..5).map(id).collect();
    // Three of them are there, the last in part; and they come in another order, after it.
    let mut file = once("Subject: other\r\n\r\nFrom x\r\n");
    texts.iter().take(3).for_each(|text| put(&mut file, text, false));
    file.truncate(file.len() - 20);
    let length = file.len() as u64;
    let mut tail = Tail::new(Memory(file), length, u64::MAX);
    for number in [2, 4, 0, 3, 1] {
        let order = DeliveryRequest { is_again: true, ..order() };
        let mut content = Text::new(&texts[number], 7);
        assert!(tail.append(&mut MailboxMessage::open(&order, &mut content, 1 << 20).unwrap()).is_ok());
    }
    let file = String::from_utf8(tail.into_medium().0).unwrap();
    let order_of: Vec<_> =
        split(&file).iter().skip(1).map(|message| message.split("8759;").nth(1).unwrap()[..1].to_owned()).collect();
    assert_eq!(order_of, ["0", "1", "2", "4", "3"]);
    assert_eq!(split(&file).iter().filter(|message| is_whole(message)).count(), 5);
}

#[test]
fn messages_without_their_queue_id_are_not_compared() {
    // As a daily report that says the same each day.
    let text = "Subject: daily\r\n\r\nnothing\r\n";
    let mut file = once(text);
    put(&mut file, text, true);
    assert_eq!(split(str::from_utf8(&file).unwrap()).len(), 2);
}

#[test]
fn a_file_that_is_full_takes_the_rest_of_a_message_or_nothing() {
    let whole = once(TEXT);
    for (max, is_taken) in [(whole.len(), true), (whole.len() - 1, false)] {
        let order = DeliveryRequest { is_again: true, ..order() };
        let mut content = Text::new(TEXT, 7);
        let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
        let mut tail = Tail::new(Memory(whole[..150].to_vec()), 150, max as u64);
        assert_eq!(tail.append(&mut letter).is_ok(), is_taken);
        let wanted = if is_taken { &whole } else { &whole[..150] };
        assert_eq!(tail.into_medium().0, wanted);
    }
}

proptest! {
    /// Messages that are larger than one read, between others of the same sender.
    #[test]
    fn large_messages_are_completed(lines in 1_000..6_000_usize, cut in 0.0..1.0_f64, others in 0..3_usize) {
        let text = format!("{TEXT}{}", "From a line of some length, which is quoted\r\n".repeat(lines));
        let before = once("Subject: other\r\n\r\nFrom x\r\n").repeat(others);
        let whole = once(&text);
        let line = 45;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a file")]
        let at = line + ((whole.len() - line) as f64 * cut) as usize;
        let mut file = [before.as_slice(), &whole[..at]].concat();
        put(&mut file, &text, true);
        prop_assert!(file == [before, whole].concat(), "cut at {at}");
    }
}

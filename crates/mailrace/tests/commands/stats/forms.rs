//! The forms of each kind: text, JSON, HTML, SVG, PNG, from logs of real servers.

use super::{Logs, POSTFIX, YEAR, json, printed, run, sendmail_lines, stats};

fn words<'a>(kind: &[&'a str]) -> Vec<&'a str> {
    [kind, &YEAR].concat()
}

#[test]
fn a_log_of_postfix_as_every_table() {
    let logs = Logs::new();
    let path = logs.write("mail.log", POSTFIX);
    let mail = printed(&words(&["mail"]), &path);
    assert!(mail.contains("Nov 27 10      4/     4     10/    69\n"), "{mail}");
    let late = printed(&words(&["late"]), &path);
    assert!(late.lines().count() == 2 && late.contains("       1      6s  always@d.test "), "{late}");
    assert!(late.contains("  127.0.0.1: host 127.0.0.1[127.0.0.1] said: 450 4.2.2 Mailbox full"), "{late}");
    let queue = printed(&words(&["queue"]), &path);
    assert!(
        queue.contains("\n1 E3B4D9840B9   256 Fri Nov 27 10:10 <a@ext.test>\n1 recipient of 1 message\n"),
        "{queue}"
    );
    let real = printed(&words(&["real"]), &path);
    assert!(real.starts_with("10:10:15 16") || real.starts_with("10:10:30 16"), "{real}");
    let day = printed(&words(&["day"]), &path);
    for part in [
        "Mail from Fri Nov 27 10:10 to Fri Nov 27 10:10\n\nTotals\n",
        "       8  messages received\n",
        "      69  recipients delivered\n",
        "       3  recipients deferred, each attempt counted\n",
        "       1  reports to senders\n",
        "\nReasons for refusal\n  number  name\n       2  Recipient address rejected: Access denied\n",
        "\nHosts that took mail\n",
    ] {
        assert!(day.contains(part), "{part:?}\n{day}");
    }
}

#[test]
fn a_log_of_sendmail_as_every_table() {
    let logs = Logs::new();
    let path = logs.write("maillog", sendmail_lines());
    let mail = printed(&words(&["mail"]), &path);
    assert!(mail.contains("Nov 27 03      2/     2     10/    13\n"), "{mail}");
    let late = printed(&words(&["late"]), &path);
    assert!(late.contains("  later@d.test ") && late.contains(": 450 4.2.0 Greylisted\n"), "{late}");
    let queue = printed(&words(&["queue"]), &path);
    assert!(queue.ends_with("2 recipients of 2 messages\n"), "{queue}");
    let day = printed(&words(&["day", "--top", "1"]), &path);
    assert!(day.contains("\nReasons for failure\n  number  name\n       1  User unknown\n"), "{day}");
    // One row of each list.
    assert!(!day.contains("\nRecipients\n  number  name\n       1"), "{day}");
}

#[test]
fn tables_and_json_have_the_same_figures() {
    let logs = Logs::new();
    let path = logs.write("mail.log", POSTFIX);
    let mail = json(&words(&["mail"]), &path);
    assert_eq!((&mail["total"]["sent"], &mail["hours"][0]["sent_hosts"]), (&69.into(), &10.into()), "{mail}");
    assert_eq!(mail["hours"][0]["hour"], "2026-11-27T10:00:00");
    let day = json(&words(&["day"]), &path);
    assert_eq!(day["total"], mail["total"]);
    assert_eq!(day["lines"], mail["lines"]);
    let batch = json(&words(&["batch"]), &path);
    assert_eq!((&batch["total"], &batch["day"]), (&mail["total"], &"2026-11-27".into()));
    let late = json(&words(&["late"]), &path);
    assert_eq!((&late["late"][0]["recipient"], &late["late"][0]["attempts"]), (&"always@d.test".into(), &2.into()));
    let hosts = json(&words(&["late", "--by", "host"]), &path);
    assert_eq!((&hosts["late"][0]["host"], &hosts["late"][0]["messages"]), (&"127.0.0.1".into(), &1.into()));
    let queue = json(&words(&["queue"]), &path);
    assert_eq!(queue["messages"][0]["id"], "E3B4D9840B9");
    let real = printed(&words(&["real", "--json"]), &path);
    let sent =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["sent"].as_u64().expect("one");
    assert_eq!(real.lines().map(sent).sum::<u64>(), 69, "{real}");
}

#[test]
fn one_day_of_several() {
    let logs = Logs::new();
    let other = POSTFIX.replace("Nov 27", "Nov 26").replace("9840", "9841");
    let path = logs.write("mail.log", [&other, POSTFIX].concat());
    for (date, part) in [("2026-11-26", "Mail of Thu 2026-11-26\n"), ("2026-11-27", "Mail of Fri 2026-11-27\n")] {
        let day = printed(&words(&["day", "--date", date]), &path);
        assert!(day.starts_with(part) && day.contains("      69  recipients delivered\n"), "{day}");
        let batch = printed(&words(&["batch", "--date", date]), &path);
        assert!(batch.contains(&format!("{date}: 69 delivered, 4 not delivered, 8 messages came\n")), "{batch}");
    }
    let (batch, _) = run(stats(&words(&["batch"]), &[&path]), 0);
    assert!(batch.contains("2026-11-27: 69 delivered"), "the last day: {batch}");
}

#[test]
fn pictures_of_a_day() {
    let logs = Logs::new();
    let path = logs.write("mail.log", POSTFIX);
    let (svg, png) = (logs.path("day.svg"), logs.path("day.png"));
    let texts = [svg.to_str().expect("UTF-8"), png.to_str().expect("UTF-8")];
    let said = printed(&words(&["batch", "--svg", texts[0], "--png", texts[1]]), &path);
    assert_eq!(said, "");
    let svg = std::fs::read_to_string(svg).expect("written");
    assert!(svg.starts_with("<svg ") && svg.contains("2026-11-27: 69 delivered"), "{svg}");
    let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(png).expect("written")));
    let mut reader = decoder.read_info().expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    assert_eq!((info.width, info.height), (1_440, 620));
    let colours: std::collections::BTreeSet<&[u8]> = pixels.chunks(3).collect();
    assert!(colours.len() > 4, "axes, text, deliveries, failures");
}

#[test]
fn a_page_of_a_day() {
    let logs = Logs::new();
    let path = logs.write("mail.log", POSTFIX);
    let page = printed(&words(&["day", "--html"]), &path);
    assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</body></html>\n"), "{page}");
    assert!(page.contains("<td>69</td><td>recipients delivered</td>"), "{page}");
    assert!(page.contains("450 4.2.2 Mailbox full"), "{page}");
    run(stats(&["day", "--html", "--json"], &[&path]), 64);
}

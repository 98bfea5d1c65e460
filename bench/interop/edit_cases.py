"""The changes that the probe filter makes, by case: calls of libmilter by way of Python's Milter."""

RECIPIENTS = ("ann@example.org", "bob@example.org")
LONG = "x" * 60

# Each call is a method of Milter.Base with its arguments; addheader with a third argument inserts at that index.
CASES = {
    "nothing": [],
    "add": [("addheader", "X-New", "value")],
    "add twice": [("addheader", "X-New", "1"), ("addheader", "X-New", "2")],
    "add folded": [("addheader", "X-New", "one\n\ttwo\n three")],
    "add folded with CR LF": [("addheader", "X-New", "one\r\n\ttwo")],
    "add long": [("addheader", "X-New", " ".join([LONG] * 40))],
    "add long word": [("addheader", "X-New", "y" * 1500)],
    "add 8-bit": [("addheader", "X-New", "gr\u00fc\u00df")],
    "add empty": [("addheader", "X-New", "")],
    "add with blanks": [("addheader", "X-New", "  two before, two behind  ")],
    "insert 0": [("addheader", "X-New", "value", 0)],
    "insert 1": [("addheader", "X-New", "value", 1)],
    "insert 2": [("addheader", "X-New", "value", 2)],
    "insert last": [("addheader", "X-New", "value", 9)],
    "insert behind the last": [("addheader", "X-New", "value", 10)],
    "insert 100": [("addheader", "X-New", "value", 100)],
    "insert 1 twice": [("addheader", "X-New", "1", 1), ("addheader", "X-New", "2", 1)],
    "insert 0 twice": [("addheader", "X-New", "1", 0), ("addheader", "X-New", "2", 0)],
    "insert and change": [("addheader", "X-Two", "new", 1), ("chgheader", "X-Two", 1, "changed")],
    "change": [("chgheader", "Subject", 1, "new")],
    "change in another case": [("chgheader", "SUBJECT", 1, "new")],
    "change 0": [("chgheader", "Subject", 0, "new")],
    "change the second": [("chgheader", "X-Two", 2, "new")],
    "change what is not there": [("chgheader", "X-Two", 4, "new")],
    "change an unknown name": [("chgheader", "X-New", 1, "new")],
    "change folded": [("chgheader", "Subject", 1, "one\n two")],
    "change the client's Received": [("chgheader", "Received", 1, "new")],
    "delete": [("chgheader", "X-Two", 1, "")],
    "delete the second": [("chgheader", "X-Two", 2, "")],
    "delete 1 twice": [("chgheader", "X-Two", 1, ""), ("chgheader", "X-Two", 1, "")],
    "delete 1 and 2": [("chgheader", "X-Two", 1, ""), ("chgheader", "X-Two", 2, "")],
    "delete 2 and 1": [("chgheader", "X-Two", 2, ""), ("chgheader", "X-Two", 1, "")],
    "delete what is not there": [("chgheader", "X-Two", 4, "")],
    "delete and change": [("chgheader", "X-Two", 1, ""), ("chgheader", "X-Two", 2, "new")],
    "delete the client's Received": [("chgheader", "Received", 1, "")],
    "delete 0": [("chgheader", "X-Two", 0, "")],
    "body": [("replacebody", "new body\r\n")],
    "body in two pieces": [("replacebody", "new "), ("replacebody", "body\r\n.dot\r\n")],
    "body with LF": [("replacebody", "one\ntwo\n")],
    "body without a line end": [("replacebody", "one\r\ntwo")],
    "body of 200,000 octets": [("replacebody", (LONG + "\r\n") * 3300)],
    "add a recipient": [("addrcpt", "<eve@example.org>")],
    "add a recipient twice": [("addrcpt", "<eve@example.org>"), ("addrcpt", "<eve@example.org>")],
    "add a recipient that is there": [("addrcpt", "<ann@example.org>")],
    "add a recipient without brackets": [("addrcpt", "eve@example.org")],
    "delete a recipient": [("delrcpt", "<bob@example.org>")],
    "delete a recipient in another case": [("delrcpt", "<BOB@EXAMPLE.ORG>")],
    "delete a recipient that is not there": [("delrcpt", "<eve@example.org>")],
    "add and delete a recipient": [("addrcpt", "<eve@example.org>"), ("delrcpt", "<eve@example.org>")],
    "delete and add a recipient": [("delrcpt", "<bob@example.org>"), ("addrcpt", "<bob@example.org>")],
    "delete all recipients": [("delrcpt", "<ann@example.org>"), ("delrcpt", "<bob@example.org>")],
    "change the sender": [("chgfrom", "<other@example.com>")],
    "change the sender to none": [("chgfrom", "<>")],
    "quarantine": [("quarantine", "looks bad")],
}


def message(case):
    """A message whose filter carries out the case."""
    return (
        "Received: from client.example by hop.example with SMTP id 1;\r\n\tFri, 27 Nov 2026 10:00:00 +0000\r\n"
        "X-Two: 1\r\nFrom: <sender@example.com>\r\nTo: <ann@example.org>\r\nDate: Fri, 27 Nov 2026 10:00:00 +0000\r\n"
        f"Message-ID: <{case.replace(' ', '.').replace(',', '')}@example.com>\r\nX-Two: 2\r\nSubject: old\r\nX-Case: {case}\r\n"
        "\r\nold body\r\n..dot\r\n"
    ).encode()

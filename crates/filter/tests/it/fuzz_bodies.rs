//! The fuzz bodies under generated input: pieces of rules and messages in any order, and random octets.

use filter::fuzz::BODIES;
use proptest::prelude::*;

const PIECES: [&str; 73] = [
    "rule a {\n",
    "rule b { reject }\n",
    "match any {\n",
    "none {\n",
    "}\n",
    "\n",
    "header ~ /a(b|c)/\n",
    "script = Han\n",
    "subject = \"x\"\n",
    "size > 10M\n",
    "damage\n",
    "reject\n",
    "tag subject \"[x]\"\n",
    "for recipient \"@a\"\n",
    "\"",
    "/",
    "\\",
    "Content-Type: multipart/mixed; boundary=a\r\n",
    "Content-Type: message/rfc822\r\n",
    "--a\r\n",
    "--a--\r\n",
    "\r\n",
    "--a\n",
    "Content-Transfer-Encoding: base64\r\n",
    "Content-Transfer-Encoding: quoted-printable\r\n",
    "=41=4",
    "QUFB",
    "Content-Disposition: attachment; filename*0*=gb2312''%c4%e3; filename*1=.exe\r\n",
    "; name=\"a\\\"",
    "=?gb2312?B?xOO6ww==?=",
    "=?utf-8?Q?=C3?=",
    "=?x?B??=",
    " ",
    "<p>",
    "<style>",
    "Content-Type: text/html; charset=gbk\r\n",
    "\u{4f60}",
    "MZ",
    ";",
    "filename=",
    "\0\0\0\x07hX\0a b\0",
    "\0\0\0\x0ai\0\0\0\0Y\0zz\0",
    "\0\0\0\x0bm\0\0\0\x01X\0new\0",
    "\0\0\0\x08hX\0a\n b\0",
    "\0\0\0\x07hX\0a\nb\0",
    "\0\0\0\x01p",
    "\0\0\0\x01c",
    "\0\0\0\x08y550 no\0",
    "action=",
    "action=PREPEND X: y\n\n",
    "DEFER_IF_PERMIT later\n\n",
    "PREPEND ",
    "421 bye\n\n",
    "stream: ",
    "OK\0",
    " FOUND\0",
    " ERROR\0",
    "SPAMD/1.1 0 EX_OK\r\n",
    "Spam: True ; 7.5 / 5.0\r\n",
    "Content-length: 10\r\n",
    "X-Spam-Status: Yes, tests=A,B\r\n",
    "Subject: [SPAM]\r\n",
    "HTTP/1.1 200 OK\r\n",
    "Transfer-Encoding: chunked\r\n",
    "4\r\nabcd\r\n",
    "0\r\n\r\n",
    "{\"action\":\"reject\",\"milter\":{\"add_headers\":{\"X\":\"a\\n b\"}}}",
    "{\"action\":\"add header\",\"score\":1e999,\"required_score\":1}",
    "{\"action\":\"no action\",\"milter\":{\"remove_headers\":{\"Received\":-1}}}",
    "{\"action\":\"greylist\",\"milter\":{\"add_headers\":",
    "{\"X\":{\"value\":\"y\",\"order\":0}}}}",
    "\"",
    "}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_input(
        pieces in proptest::collection::vec(prop_oneof![
            proptest::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
        ], 0..40),
    ) {
        let data = pieces.concat();
        for (_, body) in BODIES {
            body(&data);
        }
    }
}

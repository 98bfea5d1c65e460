//! Words as senders write them, right and wrong, and that our own are read back.

use proptest::prelude::*;

use super::*;

fn text(value: &[u8]) -> String {
    decode(value, None).text
}

// RFC 2047 §8 (test)
#[test]
fn examples_of_the_rfc() {
    for (value, expected) in [
        ("=?ISO-8859-1?Q?a?=", "a"),
        ("=?ISO-8859-1?Q?a?= b", "a b"),
        ("=?ISO-8859-1?Q?a?= =?ISO-8859-1?Q?b?=", "ab"),
        ("=?ISO-8859-1?Q?a?=  =?ISO-8859-1?Q?b?=", "ab"),
        ("=?ISO-8859-1?Q?a?=\r\n    =?ISO-8859-1?Q?b?=", "ab"),
        ("=?ISO-8859-1?Q?a_b?=", "a b"),
        ("=?ISO-8859-1?Q?a?= =?ISO-8859-2?Q?_b?=", "a b"),
        ("=?US-ASCII?Q?Keith_Moore?= <moore@cs.example>", "Keith Moore <moore@cs.example>"),
        ("=?ISO-8859-1?Q?Andr=E9?= Pirard", "André Pirard"),
        (
            "=?ISO-8859-1?B?SWYgeW91IGNhbiByZWFkIHRoaXMgeW8=?=\r\n =?ISO-8859-2?B?dSB1bmRlcnN0YW5kIHRoZSBleGFtcGxlLg==?=",
            "If you can read this you understand the example.",
        ),
    ] {
        let decoded = decode(value.as_bytes(), None);
        assert_eq!(decoded, Decoded { text: expected.into(), ..Decoded::default() }, "{value}");
    }
}

#[test]
fn charsets_of_the_world() {
    for (value, expected) in [
        ("=?gb2312?B?xOO6w6OsysC95w==?=", "你好，世界"),
        ("=?GBK?Q?=C4=E3=BA=C3?=", "你好"),
        ("=?gb18030?B?xOO6w5U0sjU=?=", "你好𠮷"),
        ("=?big5?B?p0GmbqFBpUCsyQ==?=", "你好，世界"),
        ("=?iso-2022-jp?B?GyRCJDMkcyRLJEEkTxsoQg==?=", "こんにちは"),
        ("=?koi8-r?B?8NLJ18XU?=", "Привет"),
        ("=?windows-1251?Q?=CF=F0=E8=E2=E5=F2?=", "Привет"),
        ("=?euc-kr?B?vsiz58fPvLy/5A==?=", "안녕하세요"),
        ("=?Shift_JIS?B?grGC8YLJgr+CzQ==?=", "こんにちは"),
        ("=?utf-8*de?Q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
    ] {
        let decoded = decode(value.as_bytes(), None);
        assert_eq!(decoded, Decoded { text: expected.into(), ..Decoded::default() }, "{value}");
    }
}

#[test]
fn characters_cut_in_half_are_joined() {
    assert_eq!(text(b"=?utf-8?B?5L0=?= =?utf-8?B?oA==?="), "你");
    assert_eq!(text(b"=?utf-8?Q?=E4?=\r\n =?utf-8?B?vaA=?="), "你");
    assert_eq!(text(b"=?gb2312?Q?=C4?= =?GBK?Q?=E3?= !"), "你 !");
    // Another charset, or text between them, ends the joining.
    assert!(decode(b"=?utf-8?Q?=E4?= =?gbk?Q?=BD=A0?=", None).is_damaged);
    assert!(decode(b"=?utf-8?Q?=E4?= x =?utf-8?Q?=BD=A0?=", None).is_damaged);
}

#[test]
fn unknown_charsets_stay_visible() {
    let decoded = decode(b"a =?utf-7?Q?+AGE-?= =?utf-8?Q?b?= =?x-none?B?YQ==?= c", None);
    assert_eq!(decoded.text, "a =?utf-7?Q?+AGE-?= b =?x-none?B?YQ==?= c");
    assert_eq!(decoded.unknown_charsets, ["utf-7", "x-none"]);
    assert!(!decoded.is_damaged);
}

#[test]
fn raw_eight_bit_text() {
    let gbk = b"\xc4\xe3\xba\xc3 =?utf-8?Q?=C3=BC?=";
    assert_eq!(decode(gbk, Charset::for_label("gb2312")).text, "你好 ü");
    let blind = decode(gbk, None);
    assert!(blind.is_damaged && blind.text.contains('\u{fffd}'));
    assert_eq!(decode("你好".as_bytes(), Charset::for_label("koi8-r")).text, "你好");
}

// RFC 2047 §2 (test)
#[test]
fn what_is_no_encoded_word_stays() {
    for value in
        ["=?", "=?utf-8?", "=?utf-8?X?a?=", "=?utf-8?Q?a", "=?utf-8?Q?a?b?=", "=??Q?a?=", "=?ut f-8?Q?a?=", "a =? b ?="]
    {
        assert_eq!(decode(value.as_bytes(), None), Decoded { text: value.into(), ..Decoded::default() });
    }
    assert_eq!(text(b"=?=?utf-8?Q?a?="), "=?a");
    assert_eq!(text(b"x=?utf-8?Q?a?=y"), "xay");
    assert_eq!(text(b"=?utf-8?Q?a b?="), "a b");
    assert_eq!(text(b"=?utf-8?Q??="), "");
}

// RFC 2047 §4.1 (test), RFC 2047 §4.2 (test)
#[test]
fn damaged_words_are_decoded_as_far_as_possible() {
    for (value, expected) in [
        ("=?utf-8?Q?a=?=", "a="),
        ("=?utf-8?Q?a=G1?=", "a=G1"),
        ("=?utf-8?B?YW*Jj?=", "abc"),
        ("=?utf-8?B?YWJjY?=", "abc"),
        ("=?utf-8?Q?=FF?=", "\u{fffd}"),
    ] {
        let decoded = decode(value.as_bytes(), None);
        assert_eq!((decoded.text.as_str(), decoded.is_damaged), (expected, true), "{value}");
    }
    assert_eq!(decode(b"=?utf-8?B?YQ==YWI?=", None), Decoded { text: "aab".into(), ..Decoded::default() });
    assert_eq!(text(b"=?utf-8?q?=c3=Bc?="), "ü");
}

// RFC 2047 §2 (test), RFC 2047 §5 (test)
#[test]
fn our_own_words() {
    assert_eq!(encode("plain text", 9), "plain text");
    assert_eq!(encode("Viele Grüße an alle Welt", 9), "=?utf-8?Q?Viele_Gr=C3=BC=C3=9Fe_an_alle_Welt?=");
    assert_eq!(encode("世界", 9), "=?utf-8?B?5LiW55WM?=");
    assert_eq!(encode("=?x", 9), "=?utf-8?B?PT94?=");
    assert_eq!(encode("a\r\nBcc: somebody", 9), "=?utf-8?Q?a=0D=0ABcc=3A_somebody?=");
    assert_eq!(encode("Прекрасное далёко", 70).split("\r\n ").map(str::len).collect::<Vec<_>>(), [24, 48]);
}

proptest! {
    #[test]
    fn encoded_text_is_decoded(
        text in prop_oneof![any::<String>(), "[ -~]{0,60}", r"(=\?|\PC| ){0,200}"],
        used in 0..200_usize,
    ) {
        let encoded = encode(&text, used);
        prop_assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic() || b"\r\n ".contains(&byte)));
        if encoded != text {
            // A field name that leaves too little room for the first word gets a longer line.
            let mut first = used.min(52);
            for line in encoded.split("\r\n") {
                prop_assert!(first + line.len() <= 76, "{}", line);
                first = 0;
            }
        }
        let decoded = decode(encoded.as_bytes(), None);
        prop_assert_eq!(decoded, Decoded { text, ..Decoded::default() });
    }
}

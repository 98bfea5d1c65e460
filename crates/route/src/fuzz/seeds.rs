//! Inputs from which mutations of the bodies start.

/// Files of every format.
pub const SEEDS: &[&[u8]] = &[
    include_bytes!("../../tests/maps/entries"),
    b"# c\n\nA.b\tsmtp:[10.0.0.1]\n cont\nnovalue\na.b x\n\xfc\xe4 1\nk \xff\nBl\xc3\x84h 2\r\n\0 3\n",
    b"\xef\xbb\xbfa 1\nb 2",
    b"key value\nkey other\n@ @\n@\0 @\0\n",
    include_bytes!("../../tests/maps/little-hash.db"),
    include_bytes!("../../tests/maps/big-hash.db"),
    include_bytes!("../../tests/maps/little-btree.db"),
    include_bytes!("../../tests/maps/big-btree.db"),
    include_bytes!("../../tests/maps/checksum-hash.db"),
    include_bytes!("../../tests/maps/duplicates-hash.db"),
    include_bytes!("../../tests/maps/duplicates-btree.db"),
    include_bytes!("../../tests/maps/newaliases.db"),
    include_bytes!("../../tests/maps/tinycdb.cdb"),
    b"x@a.example u%b.example@c.example\nConnect:10.1.2.0/24 RELAY\nFrom:a.example ERROR:5.7.1:\"550 no, never\"\nTo:u@ OK\nbcc:c.example a@b.example\n\
      Connect:IPv6:2001:db8::/32 QUARANTINE:x\nSpam:c.example FRIEND\nTLS_Clt: TEMP+VERIFY:128+CN:x++CI:/y\nAuthInfo:x \"U:a\" \"P:b\"\nexample SKIP\n",
    b"ours.example # us\n10.1.\nIPv6:2001:db8\n[10.1.2.3]\n.below.example\n10.0.0.0/8\nb\xc3\xbccher.example two\n",
    b"# c\nlist: joe, \"|/bin/x y\", :include:/a/b,\n \\ann, Joe Smith <joe@a.example>, \\\n/var/x\n\"q n\": team: joe, <@a.example:b@c.example>;\n",
    b"\\joe, ann+x, joe@a.example, loop\n\n#x\n\"a,b\"@c.example (c (d)), error:5.1.1:550 no #@# y\n<\"|x\">, d%e.example, @, <, \"",
    include_bytes!("../import/queue/tests/dsn.qf"),
    include_bytes!("../import/queue/tests/aliases.qf"),
    &[0; 1_600],
    &[0xff; 1_600],
];

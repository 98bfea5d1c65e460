//! Inputs from which mutations begin: each is right for one of the bodies.

/// All seeds.
pub const SEEDS: &[&[u8]] = &[
    // A submitted message of a user.
    b"MRPICKUP\x01\x01\0\x009\0\0\0\x01\0\0\0\x08\0\0\0a@b.test\r\0\0\0BODY=8BITMIME\x08\0\0\0c@d.test\x0c\0\
      \0\0NOTIFY=NEVER",
    // One that the server hands in for a user, with terms.
    b"MRPICKUP\x01\n\0\0?\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\x001000\x0b\0\0\0queue tag=x\x08\0\0\0c@d.\
      test\0\0\0\0\x08\0\0\0e@d.test\0\0\0\0",
    // One that is taken over.
    b"MRPICKUP\x01\x04\0\0J\0\0\0\x01\0\0\0\x08\0\0\0a@b.test\0\0\0\0\x03\0\0\0qfX\n\0\0\x001700000000\x01\0\
      \0\x003\x01\0\0\0w\x07\0\0\0a virus\x08\0\0\0c@d.test\0\0\0\0",
    // A password file.
    b"# users\nann:$5$rounds=5000$saltsalt$4NLOHKrYgBjrmYCTyOfLqxSjSIpQ04zoGSCZyTnmLN9\nbert@b.test:SCRAM-\
      SHA-256$4096:c2FsdHNhbHQ=$c3RvcmVkc3RvcmVkc3RvcmVkc3RvcmVkc3RvcmVkc3Q=:c2VydmVyc2VydmVyc2VydmVyc2Vyd\
      mVyc2VydmVyc2U=\n:x\ncarl\n",
    // Replies of a name server: addresses behind an alias, hosts, a name, nothing.
    b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x04test\0\0\x01\0\x01\x01a\x04test\0\0\x05\0\x01\0\0\0<\0\
      \x08\x01b\x04test\0\x01b\x04test\0\0\x01\0\x01\0\0\0<\0\x04\xc0\0\x02\x01",
    b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x1c\0\x01\x01a\x04test\0\0\x1c\0\x01\0\0\0<\0\
      \x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
    b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x04test\0\0\x0f\0\x01\x01a\x04test\0\0\x0f\0\x01\0\0\x0e\x10\
      \0\r\0\n\x02mx\x01a\x04test\0\x01a\x04test\0\0\x0f\0\x01\0\0\0<\0\x03\0\0\0",
    b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x017\x012\x010\x03192\x07in-addr\x04arpa\0\0\x0c\0\x01\x017\x012\
      \x010\x03192\x07in-addr\x04arpa\0\0\x0c\0\x01\0\0\0<\0\x08\x01h\x04test\0",
    b"\0\x07\x81\x83\0\x01\0\0\0\x01\0\0\x01n\x04test\0\0\x01\0\x01\x04test\0\0\x06\0\x01\0\0\x03\x84\0%\
      \x02ns\x04test\0\x01h\x04test\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05",
    b"\0\x07\x81\x80\0\x01\0\0\0\x01\0\0\x01n\x04test\0\0\x01\0\x01\x04test\0\0\x02\0\x01\0\0\x03\x84\0\t\
      \x02ns\x04test\0",
    // Entries of a directory.
    b"dA\x04\x0fuid=joe,dc=test0.0\x19\x04\x08mailHost1\r\x04\x0b[192.0.2.1]0\x11\x04\tjpegPhoto1\x04\x04\
      \x02\xff\xd8",
    b"d\x04\x04\x000\0",
    // Responses of logins.
    b"\0n,,n=user,r=rOprNGfwEbeRWgbNEkqO\xfec=biws,r=rOprNGfwEbeRWgbNEkqOnonce,p=dHzbZapWIk4jUhN+Ute9ytag9\
      zjfMHgsqmmiz7AndVQ=",
    b"\x01\0user\0password",
    b"\x02user\xfepassword",
    // Headers of proxies.
    b"PROXY TCP4 192.0.2.7 192.0.2.25 4660 25\r\n",
    b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x19\x124\0\x19",
];

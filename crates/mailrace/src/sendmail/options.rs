//! The names of sendmail's options, so that `-O` takes those and complains of others.

/// In lower case.
const NAMES: &[&str] = &[
    "aliasfile", "aliaswait", "allowbogushelo", "authmaxbits", "authmechanisms", "authoptions", "authrealm", "autorebuildaliases",
    "badrcptthrottle", "badrcptthrottledelay", "blanksub", "bodytype", "cacertfile", "cacertpath", "checkaliases", "checkpointinterval", "cipherlist",
    "classfactor", "clientcertfile", "clientkeyfile", "clientportoptions", "clientssloptions", "colonokinaddr", "connectioncachesize",
    "connectioncachetimeout", "connectiononlyto", "connectionratethrottle", "connectionratewindowsize", "controlsocketname",
    "crlfile", "crlpath", "daemonportoptions", "dane", "datafilebuffersize", "deadletterdrop", "defaultauthinfo", "defaultcharset",
    "defaultuser", "delayla", "deliverbymin", "deliverymode", "dhparameters", "dialdelay", "directsubmissionmodifiers", "dontblamesendmail",
    "dontexpandcnames", "dontinitgroups", "dontprobeinterfaces", "dontpruneroutes", "doublebounceaddress", "eightbitmode",
    "errorheader", "errormode", "fallbackmxhost", "fallbacksmarthost", "fastsplit", "forkeachjob", "forwardpath", "helofile", "heloname",
    "helpfile", "holdexpensive", "hostsfile", "hoststatusdirectory", "ignoredots", "inputmailfilters", "ldapdefaultspec", "localaddressfamily", "loglevel",
    "mailboxdatabase", "matchgecos", "maxaliasrecursion", "maxdaemonchildren", "maxheaderslength", "maxhopcount", "maxmessagesize",
    "maxmimeheaderlength", "maxnoopcommands", "maxqueueage", "maxqueuechildren", "maxqueuerunsize", "maxrecipientspermessage",
    "maxrunnersperqueue", "metoo", "milter", "minfreeblocks", "minqueueage", "mustquotechars", "nicenessqueuerun", "noqueue", "norecipientaction",
    "oldstyleheaders", "operatorchars", "passwordfile", "pidfile", "pipelimit", "postmastercopy", "privacyoptions", "processtitleprefix",
    "quarantine", "queuedirectory", "queuefactor", "queuefilemode", "queuela", "queuesortorder", "queuetimeout", "randfile", "recipientfactor",
    "refusela", "rejectloginterval", "requiresdirfsync", "resolveroptions", "retryfactor", "rrtimpliesdsn", "runasuser",
    "safefileenvironment", "savefromline", "sendmimeerrors", "servercertfile", "serverkeyfile", "serverssloptions", 
    "serviceswitchfile", "setcertaltnames", "sevenbitinput", "sharedmemorykey", "sharedmemorykeyfile", "singlelinefromheader", "singlethreaddelivery",
    "smtpgreetingmessage", "smtputf8", "sockettimeout", "softbounce", "sslengine", "sslenginepath", "statusfile", "supersafe", "tempfilemode", "timeout",
    "timezonespec", "tlsfallbacktoclear", "tlssrvoptions", "trusteduser", "trystarttls", "trynullmxlist", "unixfromline", "unsafegroupwrites", "usecompressedipv6addresses",
    "useerrorsto", "usemsp", "userdatabasespec", "usersubmission", "verbose", "xscriptfilebuffersize",
];

/// Whether sendmail has an option of this name, given in lower case. `Timeout.queuereturn` is one of `Timeout`.
pub(super) fn is_known(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or_default();
    NAMES.contains(&name)
}

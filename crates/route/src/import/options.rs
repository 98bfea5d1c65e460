//! Options: the names of `.mc` and `.cf` files, and the keys that hold their values here.

use super::settings::{ImportedSettings, SettingValue};
use super::values::{domain, hosts, time, time_text};

/// How a value is carried over.
enum Conversion {
    /// A time; the unit of a number alone, and the range of our key in seconds.
    Time(&'static str, char, u64, u64),
    /// A number in a range; 0 is no limit where sendmail has it so, and then nothing is written.
    Number(&'static str, u64, u64),
    /// By hand, in [`special`].
    Special,
    /// It cannot be carried over: the reason, and the next step.
    Missing(&'static str, &'static str),
    /// There is nothing to set: why.
    Needless(&'static str),
}

use Conversion::{Missing, Needless, Number, Special, Time};

const DAY: u64 = 86_400;
const LOAD: Conversion = Missing("load is no measure here", "connections are bounded by accept.connections_max");
const QUEUE: Conversion = Needless("the queue is kept and run another way");
const RIGHTS: Conversion = Needless("sendmail's own way of doing it; nothing to set here");

/// Name in `.mc` without `conf`, name in `.cf`, and the way.
const OPTIONS: &[(&str, &str, Conversion)] = &[
    ("DOMAIN_NAME", "", Special),
    ("MAX_MESSAGE_SIZE", "MaxMessageSize", Number("message.size_max", 1 << 10, 4 << 30)),
    ("MAX_RCPTS_PER_MESSAGE", "MaxRecipientsPerMessage", Number("message.recipients_max", 1, 1_000_000)),
    ("MAX_HOP", "MaxHopCount", Number("message.hops_max", 1, 1_000)),
    ("MAX_HEADERS_LENGTH", "MaxHeadersLength", Number("message.header_bytes_max", 1 << 10, 64 << 20)),
    ("MAX_NOOP_COMMANDS", "MaxNOOPCommands", Number("smtp.idle_commands_max", 1, 1_000_000)),
    ("MAX_DAEMON_CHILDREN", "MaxDaemonChildren", Number("accept.connections_max", 1, 1_000_000)),
    ("CONNECTION_RATE_THROTTLE", "ConnectionRateThrottle", Number("accept.rate", 1, 1_000_000)),
    ("LOG_LEVEL", "LogLevel", Number("log.level", 0, 20)),
    ("TO_QUEUERETURN", "Timeout.queuereturn", Time("delivery.give_up_after", 'd', 1, 30 * DAY)),
    ("TO_QUEUERETURN_NORMAL", "Timeout.queuereturn.normal", Time("delivery.give_up_after", 'd', 1, 30 * DAY)),
    ("TO_QUEUEWARN", "Timeout.queuewarn", Time("delivery.warn_after", 'h', 0, 30 * DAY)),
    ("TO_QUEUEWARN_NORMAL", "Timeout.queuewarn.normal", Time("delivery.warn_after", 'h', 0, 30 * DAY)),
    ("TO_CONNECT", "Timeout.connect", Time("delivery.connect_time", 'm', 1, 600)),
    ("TO_ICONNECT", "Timeout.iconnect", Time("delivery.fast_connect_time", 'm', 1, 600)),
    ("TO_INITIAL", "Timeout.initial", Time("delivery.greeting_time", 'm', 1, 3_600)),
    ("TO_RCPT", "Timeout.rcpt", Time("delivery.command_time", 'm', 1, 3_600)),
    ("TO_DATAINIT", "Timeout.datainit", Time("delivery.data_time", 'm', 1, 3_600)),
    ("TO_DATABLOCK", "Timeout.datablock", Time("delivery.block_time", 'm', 1, 3_600)),
    ("TO_DATAFINAL", "Timeout.datafinal", Time("delivery.end_time", 'm', 1, 7_200)),
    ("TO_COMMAND", "Timeout.command", Time("smtp.command_time_max", 'm', 1, 3_600)),
    ("MCI_CACHE_TIMEOUT", "ConnectionCacheTimeout", Time("delivery.idle_time", 'm', 0, 300)),
    ("MIN_QUEUE_AGE", "MinQueueAge", Time("delivery.retry_first", 'm', 1, DAY)),
    ("MAX_QUEUE_AGE", "MaxQueueAge", Time("delivery.retry_max", 'm', 1, DAY)),
    ("PRIVACY_FLAGS", "PrivacyOptions", Special),
    ("DELIVERY_MODE", "DeliveryMode", Special),
    ("AUTH_MECHANISMS", "AuthMechanisms", Special),
    ("AUTH_OPTIONS", "AuthOptions", Special),
    ("RUN_AS_USER", "RunAsUser", Special),
    ("DEF_USER_ID", "DefaultUser", Special),
    ("DOUBLE_BOUNCE_ADDRESS", "DoubleBounceAddress", Special),
    ("SERVER_CERT", "ServerCertFile", Special),
    ("SERVER_KEY", "ServerKeyFile", Special),
    ("CW_FILE", "", Special),
    ("TRUSTED_USERS", "", Special),
    ("ALIAS_FILE", "AliasFile", Special),
    ("CACERT", "CACertFile", Special),
    (
        "CACERT_PATH",
        "CACertPath",
        Missing(
            "a directory of CA certificates is not read",
            "name a file with those that count in tls.client_ca and tls.ca_files",
        ),
    ),
    ("CLIENT_CERT", "ClientCertFile", Missing("no certificate is shown to next hops", "")),
    ("CLIENT_KEY", "ClientKeyFile", Missing("no certificate is shown to next hops", "")),
    ("CRL", "CRLFile", Missing("there are no lists of revoked certificates", "")),
    ("DH_PARAMETERS", "DHParameters", Needless("the TLS library chooses its own")),
    ("CIPHER_LIST", "CipherList", Missing("ciphers are not chosen by hand", "tls.version_min says what is the oldest")),
    ("TLS_SRV_OPTIONS", "TLSSrvOptions", Special),
    (
        "SERVER_SSL_OPTIONS",
        "ServerSSLOptions",
        Missing("options of OpenSSL have no meaning here", "see tls.version_min"),
    ),
    (
        "CLIENT_SSL_OPTIONS",
        "ClientSSLOptions",
        Missing("options of OpenSSL have no meaning here", "see tls.version_min"),
    ),
    ("DANE", "DANE", Missing("there is no DANE", "[[destination]] with tls = \"required\" names partners")),
    ("DEF_AUTH_INFO", "DefaultAuthInfo", Missing("there is no file for it", "write AuthInfo: into the access map")),
    ("AUTH_REALM", "AuthRealm", Needless("a realm is part of the names in auth.file")),
    ("AUTH_MAX_BITS", "AuthMaxBits", Needless("there are no SASL security layers")),
    ("REFUSE_LA", "RefuseLA", LOAD),
    ("QUEUE_LA", "QueueLA", LOAD),
    ("DELAY_LA", "DelayLA", LOAD),
    ("REJECT_LOG_INTERVAL", "RejectLogInterval", LOAD),
    ("FALLBACK_MX", "FallbackMXhost", Missing("there is no host for mail that cannot be delivered", "")),
    ("FALLBACK_SMARTHOST", "FallbackSmartHost", Missing("there is no host for mail that cannot be delivered", "")),
    (
        "BAD_RCPT_THROTTLE",
        "BadRcptThrottle",
        Missing("refused recipients are not slowed down", "smtp.refused_recipients_max ends such a session"),
    ),
    ("CONNECTION_RATE_WINDOW_SIZE", "ConnectionRateWindowSize", Time("access.client_rate_window", 's', 6, 3_600)),
    ("SMTP_LOGIN_MSG", "SmtpGreetingMessage", Needless("the greeting names hostname and no version")),
    (
        "HELO_NAME",
        "HeloName",
        Missing("the name in EHLO is hostname", "destination.hello sets another for some next hops"),
    ),
    (
        "INPUT_MAIL_FILTERS",
        "InputMailFilters",
        Missing("milters are not called", "let a filter stand before this server, or behind it as a next hop"),
    ),
    ("COPY_ERRORS_TO", "PostmasterCopy", Missing("nobody gets copies of reports", "")),
    ("NO_RCPT_ACTION", "NoRecipientAction", Needless("the header is left as it is")),
    (
        "USERDB_SPEC",
        "UserDatabaseSpec",
        Missing("there is no user database", "use maps.aliases and maps.genericstable"),
    ),
    ("SAFE_FILE_ENV", "SafeFileEnvironment", Missing("files are bounded another way", "see local.files")),
    ("FORWARD_PATH", "ForwardPath", Missing(".forward is looked for in the home directory alone", "see local.forward")),
    ("MAX_ALIAS_RECURSION", "MaxAliasRecursion", Needless("it is 10")),
    ("MAILBOX_DATABASE", "MailboxDatabase", Missing("users are those of local.accounts", "")),
    ("LDAP_DEFAULT_SPEC", "LDAPDefaultSpec", Special),
    ("LDAP_CLUSTER", "", Special),
    ("QUEUE_SORT_ORDER", "QueueSortOrder", QUEUE),
    ("MAX_QUEUE_RUN_SIZE", "MaxQueueRunSize", QUEUE),
    ("MAX_QUEUE_CHILDREN", "MaxQueueChildren", QUEUE),
    ("MAX_RUNNERS_PER_QUEUE", "MaxRunnersPerQueue", QUEUE),
    ("FAST_SPLIT", "FastSplit", QUEUE),
    ("SAFE_QUEUE", "SuperSafe", Needless("mail is on the disk before it is acknowledged, see listen.acknowledge")),
    ("CHECKPOINT_INTERVAL", "CheckpointInterval", QUEUE),
    ("HOST_STATUS_DIRECTORY", "HostStatusDirectory", QUEUE),
    ("SINGLE_THREAD_DELIVERY", "SingleThreadDelivery", QUEUE),
    ("MCI_CACHE_SIZE", "ConnectionCacheSize", QUEUE),
    ("TEMP_FILE_MODE", "TempFileMode", RIGHTS),
    ("QUEUE_FILE_MODE", "QueueFileMode", RIGHTS),
    ("TRUSTED_USER", "TrustedUser", RIGHTS),
    ("DONT_BLAME_SENDMAIL", "DontBlameSendmail", RIGHTS),
    ("PID_FILE", "PidFile", RIGHTS),
    ("CF_VERSION", "", RIGHTS),
    ("BIND_OPTS", "ResolverOptions", RIGHTS),
    ("DONT_PROBE_INTERFACES", "DontProbeInterfaces", RIGHTS),
    ("TO_IDENT", "Timeout.ident", Needless("nobody is asked by ident")),
    ("CONTROL_SOCKET_NAME", "ControlSocketName", Needless("control.path is our own")),
    ("QUEUE_DIR", "QueueDirectory", Needless("the spool is our own; what waits in sendmail's queue stays there")),
    ("STATUS_FILE", "StatusFile", Needless("mailrace status counts")),
    ("HELP_FILE", "HelpFile", Needless("HELP says what is built in")),
];

/// Options that say how text, headers and lines of `.cf` files look; a `.cf` file always has them.
const SILENT: &[&str] = &[
    "SevenBitInput",
    "EightBitMode",
    "AliasWait",
    "BlankSub",
    "HoldExpensive",
    "ErrorMode",
    "ErrorHeader",
    "SaveFromLine",
    "MatchGECOS",
    "IgnoreDots",
    "SendMimeErrors",
    "UseErrorsTo",
    "MeToo",
    "CheckAliases",
    "OldStyleHeaders",
    "QueueFactor",
    "MinFreeBlocks",
    "UnixFromLine",
    "OperatorChars",
    "SingleLineFromHeader",
    "AllowBogusHELO",
    "MustQuoteChars",
    "MaxMimeHeaderLength",
    "DefaultCharSet",
    "ServiceSwitchFile",
    "HostsFile",
    "ColonOkInAddr",
    "DontExpandCnames",
    "RrtImpliesDsn",
    "DontInitGroups",
    "RecipientFactor",
    "ClassFactor",
    "RetryFactor",
    "ForkEachJob",
    "DeliverByMin",
    "DontPruneRoutes",
    "DialDelay",
    "TryNullMXList",
    "RequiresDirfsync",
    "DataFileBufferSize",
    "XscriptFileBufferSize",
    "ProcessTitlePrefix",
    "DeadLetterDrop",
    "SharedMemoryKey",
    "NiceQueueRun",
    "RandFile",
    "RejectNUL",
];

/// Carries an option of a `.mc` file over: `confMAX_HOP`, `ALIAS_FILE`. `false` for a name that is none.
pub(super) fn of_mc(settings: &mut ImportedSettings<'_>, name: &str, value: &str, line: usize) -> bool {
    let short = name.strip_prefix("conf").unwrap_or(name);
    let found = OPTIONS.iter().find(|(mc, ..)| *mc == short);
    if let Some((_, _, way)) = found {
        carry(settings, name, short, way, value, line);
    }
    found.is_some()
}

/// Carries an option of a `.cf` file over: `MaxHopCount`.
pub(super) fn of_cf(settings: &mut ImportedSettings<'_>, name: &str, value: &str, line: usize) {
    if SILENT.iter().any(|one| one.eq_ignore_ascii_case(name)) {
        return;
    }
    match OPTIONS.iter().find(|(_, cf, _)| !cf.is_empty() && cf.eq_ignore_ascii_case(name)) {
        Some((mc, _, way)) => carry(settings, name, mc, way, value, line),
        None => settings.missing(line, &format!("O {name}={value}"), "there is no such option here", ""),
    }
}

fn carry(settings: &mut ImportedSettings<'_>, name: &str, mc: &str, way: &Conversion, value: &str, line: usize) {
    let statement = format!("{name} {value}");
    match *way {
        Time(key, unit, min, max) => match time(value, unit) {
            Some(seconds) if (min..=max).contains(&seconds) => {
                settings.set(key, SettingValue::Text(time_text(seconds)), line)
            }
            Some(0) if key == "delivery.connect_time" || key == "delivery.fast_connect_time" => {
                settings.needless(line, &statement, format!("0 is sendmail's word for its default; {key} has its own"));
            }
            Some(seconds) => {
                let reason =
                    format!("{key} is from {} to {}, not {}", time_text(min), time_text(max), time_text(seconds));
                settings.missing(line, &statement, reason, "set the next best");
            }
            None => settings.missing(line, &statement, "no time that can be read", &format!("set {key}")),
        },
        Number(key, min, max) => match value.trim().parse::<u64>() {
            Ok(number) if (min..=max).contains(&number) => {
                settings.set(key, SettingValue::Bare(number.to_string()), line)
            }
            Ok(0) if key == "accept.rate" || key == "accept.connections_max" => {
                settings.needless(line, &statement, format!("0 is no limit; {key} has its own default"));
            }
            Ok(_) => {
                let reason = format!("{key} is from {min} to {max}");
                settings.missing(line, &statement, reason, "its default holds; set what you need");
            }
            Err(_) => settings.missing(line, &statement, "no number that can be read", &format!("set {key}")),
        },
        Special => special(settings, mc, value.trim(), &statement, line),
        Missing(reason, hint) => {
            // Loads and counts of 0 are off.
            if !matches!(value.trim(), "" | "0") {
                settings.missing(line, &statement, reason, hint);
            }
        }
        Needless(reason) => settings.needless(line, &statement, reason),
    }
}

fn special(settings: &mut ImportedSettings<'_>, mc: &str, value: &str, statement: &str, line: usize) {
    let words = || value.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    match mc {
        "DOMAIN_NAME" => match domain(value) {
            Some(name) => settings.set("hostname", SettingValue::Text(name), line),
            None => settings.missing(line, statement, "this is no plain name of a host", "set hostname"),
        },
        "PRIVACY_FLAGS" => privacy(settings, &words().collect::<Vec<_>>(), line),
        "DELIVERY_MODE" => match value.chars().next().map(|c| c.to_ascii_lowercase()) {
            Some('b') => settings.set("delivery.mode", SettingValue::Text("background".to_owned()), line),
            Some('i') => settings.said.is_interactive = true,
            Some('q' | 'd') => {
                settings.set("delivery.mode", SettingValue::Text("queue".to_owned()), line);
                let reason = "no queue is run by time while delivery.mode is \"queue\"";
                settings.differs(
                    line,
                    statement,
                    reason,
                    "run \"mailrace queue retry\" by cron, or set \"background\"",
                );
            }
            _ => settings.missing(line, statement, "there is no such mode", "set delivery.mode"),
        },
        "AUTH_MECHANISMS" => mechanisms(settings, &words().collect::<Vec<_>>(), statement, line),
        "AUTH_OPTIONS" => {
            if value.contains('p') {
                settings.flag("auth.without_tls", false, line);
            } else {
                let reason = "AUTH is offered under TLS only";
                settings.differs(line, statement, reason, "auth.without_tls = true offers it on every connection");
            }
        }
        "RUN_AS_USER" => {
            let (user, group) = value.split_once([':', '.']).unwrap_or((value, ""));
            if is_word(user) && (group.is_empty() || is_word(group)) {
                settings.set("server.user", SettingValue::Text(user.to_owned()), line);
                if !group.is_empty() {
                    settings.set("server.group", SettingValue::Text(group.to_owned()), line);
                }
            } else {
                settings.missing(line, statement, "this is no name of a user", "set server.user");
            }
        }
        "DEF_USER_ID" => {
            let (user, group) = value.split_once([':', '.']).unwrap_or((value, ""));
            if is_word(user) && (group.is_empty() || is_word(group)) {
                let text = if group.is_empty() { user.to_owned() } else { format!("{user}:{group}") };
                settings.set("local.default_user", SettingValue::Text(text), line);
            } else {
                settings.missing(line, statement, "users are named, not numbered", "set local.default_user");
            }
        }
        "DOUBLE_BOUNCE_ADDRESS" => match value.rsplit_once('@') {
            Some((user, host)) if is_word(user) && domain(host).is_some() => {
                settings.set("delivery.postmaster", SettingValue::Text(value.to_owned()), line);
            }
            _ if value.eq_ignore_ascii_case("postmaster") => {
                settings.needless(line, statement, "it is postmaster at our hostname");
            }
            _ => settings.missing(line, statement, "this is no whole address", "set delivery.postmaster"),
        },
        "SERVER_CERT" => settings.said.certificate = paths(value).map(|paths| (paths, line)),
        "CACERT" => settings.said.authorities = paths(value).map(|paths| (paths, line)),
        "TLS_SRV_OPTIONS" => settings.said.spares_clients = value.contains('V'),
        "SERVER_KEY" => settings.said.key = paths(value).map(|paths| (paths, line)),
        "CW_FILE" => settings.said.local_file = paths(value).and_then(|paths| paths.into_iter().next()),
        "LDAP_DEFAULT_SPEC" => settings.said.ldap.default = Some((value.to_owned(), line)),
        "LDAP_CLUSTER" => settings.said.ldap.cluster = Some(value.to_owned()),
        "TRUSTED_USERS" => {
            for user in ["root", "daemon", "uucp"].into_iter().chain(words().filter(|word| is_word(word))) {
                settings.trust(user, line);
            }
        }
        _ => super::maps::aliases(settings, value, line),
    }
}

/// A name of a user or a group.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Paths between commas; nothing for nothing.
fn paths(value: &str) -> Option<Vec<String>> {
    let paths: Vec<String> =
        value.split(',').map(str::trim).filter(|path| path.starts_with('/')).map(str::to_owned).collect();
    (!paths.is_empty()).then_some(paths)
}

fn privacy(settings: &mut ImportedSettings<'_>, flags: &[&str], line: usize) {
    for flag in flags {
        match flag.to_ascii_lowercase().as_str() {
            "novrfy" | "noexpn" | "goaway" => settings.flag("smtp.verify", false, line),
            "nobodyreturn" => settings.set("delivery.return_bytes_max", SettingValue::Bare("0".to_owned()), line),
            "public" | "authwarnings" | "noverb" | "needmailhelo" | "needexpnhelo" | "needvrfyhelo" | "noetrn" => {
                settings.needless(
                    line,
                    &format!("confPRIVACY_FLAGS {flag}"),
                    "it is always so, or there is no such command",
                );
            }
            "restrictqrun" | "restrictmailq" | "restrictexpand" => {
                let reason = "only root and the user of the server may look at the queue and change it";
                settings.needless(line, &format!("confPRIVACY_FLAGS {flag}"), reason);
            }
            _ => settings.missing(line, &format!("confPRIVACY_FLAGS {flag}"), "there is no such flag here", ""),
        }
    }
}

fn mechanisms(settings: &mut ImportedSettings<'_>, words: &[&str], statement: &str, line: usize) {
    const OURS: [&str; 3] = ["SCRAM-SHA-256", "PLAIN", "LOGIN"];
    let has = |ours: &&&str| words.iter().any(|word| word.eq_ignore_ascii_case(ours));
    let known: Vec<String> = OURS.iter().filter(has).map(|word| (*word).to_owned()).collect();
    let is_ours = |word: &&&str| OURS.iter().any(|ours| word.eq_ignore_ascii_case(ours));
    let others: Vec<&str> = words.iter().filter(|word| !is_ours(word)).copied().collect();
    if !known.is_empty() {
        settings.set("auth.mechanisms", SettingValue::List(known), line);
    }
    if !others.is_empty() {
        let reason = format!("there is no {}", others.join(" nor "));
        settings.missing(line, statement, reason, "SCRAM-SHA-256, PLAIN and LOGIN are offered, see auth.mechanisms");
    }
    let reason = "passwords of SASL (saslauthd, sasldb, PAM) are not taken over";
    settings.missing(line, statement, reason, "set auth.file or auth.program");
}

/// Reads the destination of mail for unknown users.
pub(super) fn luser_relay(settings: &mut ImportedSettings<'_>, value: &str, line: usize) {
    let value = value.trim();
    let value = value.strip_prefix("local:").filter(|rest| rest.contains('@')).unwrap_or(value);
    let is_user = value.strip_prefix("local:").is_some_and(is_word);
    let is_address = value.rsplit_once('@').is_some_and(|(user, host)| is_word(user) && domain(host).is_some());
    if is_user || is_address || hosts(value, 25).is_ok() {
        settings.set("local.luser_relay", SettingValue::Text(value.to_owned()), line);
    } else {
        settings.missing(
            line,
            &format!("LUSER_RELAY {value}"),
            "neither a host nor an address",
            "set local.luser_relay",
        );
    }
}

# shellcheck shell=bash
# sendmail with a configuration made by its own m4 files; four queue directories, no load limits.

sendmail_root=$PEERS/sendmail
sendmail_program=$sendmail_root/usr/libexec/sendmail/sendmail

sendmail_is_here() {
    [ -x "$sendmail_program" ] && [ -z "$(libraries "$sendmail_program")" ] && command -v m4 >/dev/null
}

sendmail_install() {
    user smmta smmta
    user smmsp smmsp
    unpack "$sendmail_root" sendmail-bin sendmail-base sendmail-cf || return 1
    export DEBIAN_FRONTEND=noninteractive
    command -v m4 >/dev/null || apt-get install -q -y --no-install-recommends m4 </dev/null || return 1
    [ -z "$(libraries "$sendmail_program")" ] ||
        apt-get install -q -y --no-upgrade --no-install-recommends libwrap0 liblockfile1 libldap-2.5-0 libsasl2-2 </dev/null
}

sendmail_start() {
    cf=$sendmail_root/usr/share/sendmail/cf
    mkdir -p "$queue/q1" "$queue/q2" "$queue/q3" "$queue/q4"
    chmod 700 "$queue" "$queue"/q?
    if [ "$mode" != queue ]; then deliver=background; else deliver=queue; fi
    # Without files for the status of hosts: deliveries at the same time find each other's locked, and defer their mail.
    cat >"$dir/peer.mc" <<END
include(\`$cf/m4/cf.m4')dnl
OSTYPE(\`linux')dnl
define(\`confDOMAIN_NAME', \`sendmail.peer.example')dnl
$([ "$mode" = list ] || sendmail_smart_host)
define(\`QUEUE_DIR', \`$queue/q*')dnl
$([ "$mode${DEFAULTS:+defaults}" != list ] || sendmail_tuned)
define(\`confDELIVERY_MODE', \`$deliver')dnl
define(\`confTO_IDENT', \`0')dnl
define(\`confQUEUE_LA', \`1000')dnl
define(\`confREFUSE_LA', \`1000')dnl
define(\`confDELAY_LA', \`0')dnl
define(\`confCONNECTION_RATE_THROTTLE', \`0')dnl
define(\`confPID_FILE', \`$dir/pid')dnl
define(\`STATUS_FILE', \`$dir/statistics')dnl
define(\`confCW_FILE', \`-o $dir/names')dnl
FEATURE(\`promiscuous_relay')dnl
FEATURE(\`accept_unqualified_senders')dnl
FEATURE(\`accept_unresolvable_domains')dnl
FEATURE(\`nocanonify')dnl
FEATURE(\`no_default_msa')dnl
DAEMON_OPTIONS(\`Family=inet, Name=MTA, Addr=127.0.0.1, Port=$listen, Listen=400')dnl
$([ "$mode" != deliver ] || sendmail_options)
MAILER(\`smtp')dnl
$([ "$mode" != deliver ] || sendmail_mailer)
END
    m4 "-D_CF_DIR_=$cf/" "$dir/peer.mc" >"$dir/peer.cf" 2>"$dir/m4.log"
    # No aliases are used, and the daemon keeps its rights: the queue is its own.
    sed -i 's/^O AliasFile/#&/; s/^O RunAsUser=.*/O RunAsUser=root/; s/^O DefaultUser=.*/O DefaultUser=mail:mail/' "$dir/peer.cf"
    # A queue runner only where mail is to leave.
    if [ "$mode" != queue ]; then run=-q1m; else run=; fi
    if [ "$mode" = deliver ]; then log=$dir/sessions; else log=; fi
    # On a machine whose name has no dot it would sleep for a minute first, so it gets a name of its own.
    # shellcheck disable=SC2016
    unshare --uts sh -c 'hostname sendmail.peer.example && exec "$@"' - \
        "$sendmail_program" -C "$dir/peer.cf" -bd ${run:+"$run"} ${log:+-X "$log"} </dev/null >"$dir/start.log" 2>&1
}

# A message is split into envelopes of 20 recipients, which are delivered side by side; by default one process goes
# through all of them.
sendmail_tuned() {
    echo "define(\`confFAST_SPLIT', \`100')dnl"
    echo "QUEUE_GROUP(\`mqueue', \`P=$queue/q*, F=f, r=20')dnl"
}

sendmail_smart_host() {
    echo "define(\`SMART_HOST', \`relay:[127.0.0.1]')dnl"
    echo "define(\`RELAY_MAILER_ARGS', \`TCP \$h $RELAY_TO')dnl"
}

sendmail_options() {
    echo "define(\`confMAX_MESSAGE_SIZE', \`$SIZE_MAX')dnl"
    [ -z "${MILTER:-}" ] || echo "INPUT_MAIL_FILTER(\`probe', \`S=inet:$MILTER@127.0.0.1, F=T')dnl"
    [ -z "${BARE:-}" ] || echo "define(\`confPRIVACY_FLAGS', \`noreceipts')dnl"
    [ -n "${TLS:-}" ] || return 0
    install -m 600 "$TLS/key" "$dir/key"
    install -m 644 "$TLS/certificate" "$dir/certificate"
    # Without this one it offers no TLS, and says so only in syslog.
    echo "define(\`confCACERT_PATH', \`$dir')dnl"
    for what in SERVER_CERT CLIENT_CERT CACERT; do echo "define(\`conf$what', \`$dir/certificate')dnl"; done
    for what in SERVER_KEY CLIENT_KEY; do echo "define(\`conf$what', \`$dir/key')dnl"; done
}

# A mailer that adds nothing to what was received but a trace line.
sendmail_mailer() {
    cat >"$dir/keep" <<END
#!/bin/sh
umask 022
mkdir -p "$MAILBOX/\$1/new" "$MAILBOX/\$1/tmp"
cat >"$MAILBOX/\$1/tmp/\$\$" && mv "$MAILBOX/\$1/tmp/\$\$" "$MAILBOX/\$1/new/\$(date +%s%N).\$\$"
END
    chmod 755 "$dir/keep"
    chown mail "$MAILBOX"
    cat <<END
MAILER_DEFINITIONS
Mbox, P=$dir/keep, F=lsuq, S=0, R=0, U=mail:mail, L=0, T=DNS/RFC822/X-Unix, A=keep \$u
LOCAL_RULE_0
Rann < @ box.example. >	\$#box \$: ann
Rbob < @ box.example. >	\$#box \$: bob
Reve < @ box.example. >	\$#box \$: eve
R\$+ < @ box.example. >	\$#error \$@ 5.1.1 \$: "550 User unknown"
END
}

sendmail_log() { cat "$dir/sessions"; }

sendmail_stop() { finish "$(sendmail_pid)"; }

sendmail_count() { find "$queue" -name 'qf*' 2>/dev/null | wc -l; }

sendmail_pid() { head -n 1 "$dir/pid" 2>/dev/null || true; }

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
    if [ "$mode" = relay ]; then deliver=background; else deliver=queue; fi
    # Without files for the status of hosts: deliveries at the same time find each other's locked, and defer their mail.
    cat >"$dir/peer.mc" <<END
include(\`$cf/m4/cf.m4')dnl
OSTYPE(\`linux')dnl
define(\`confDOMAIN_NAME', \`sendmail.peer.example')dnl
define(\`SMART_HOST', \`relay:[127.0.0.1]')dnl
define(\`RELAY_MAILER_ARGS', \`TCP \$h $RELAY_TO')dnl
define(\`QUEUE_DIR', \`$queue/q*')dnl
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
DAEMON_OPTIONS(\`Family=inet, Name=MTA, Addr=127.0.0.1, Port=2503, Listen=400')dnl
MAILER(\`smtp')dnl
END
    m4 "-D_CF_DIR_=$cf/" "$dir/peer.mc" >"$dir/peer.cf" 2>"$dir/m4.log"
    # No aliases are used, and the daemon keeps its rights: the queue is its own.
    sed -i 's/^O AliasFile/#&/; s/^O RunAsUser=.*/O RunAsUser=root/; s/^O DefaultUser=.*/O DefaultUser=mail:mail/' "$dir/peer.cf"
    # A queue runner only where mail is to leave.
    if [ "$mode" = relay ]; then run=-q1m; else run=; fi
    # On a machine whose name has no dot it would sleep for a minute first, so it gets a name of its own.
    # shellcheck disable=SC2016
    unshare --uts sh -c 'hostname sendmail.peer.example && exec "$@"' - \
        "$sendmail_program" -C "$dir/peer.cf" -bd ${run:+"$run"} </dev/null >"$dir/start.log" 2>&1
}

sendmail_stop() { finish "$(sendmail_pid)"; }

sendmail_count() { find "$queue" -name 'qf*' 2>/dev/null | wc -l; }

sendmail_pid() { head -n 1 "$dir/pid" 2>/dev/null || true; }

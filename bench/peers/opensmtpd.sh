# shellcheck shell=bash
# OpenSMTPD. Its directories are compiled in: links to ours are made while it runs and taken away when it stops.
# It acknowledges mail before it is on disk; say so beside its figures. Its listen queue is five long, compiled in: many new
# connections at once wait for a second and more until their SYN is sent again.

opensmtpd_root=$PEERS/opensmtpd
opensmtpd_program=$opensmtpd_root/usr/sbin/smtpd
opensmtpd_libexec=/usr/libexec/opensmtpd
opensmtpd_spool=/var/spool/smtpd
opensmtpd_empty=/var/lib/opensmtpd/empty

opensmtpd_is_here() { [ -x "$opensmtpd_program" ] && [ -z "$(libraries "$opensmtpd_program")" ]; }

opensmtpd_install() {
    user opensmtpd opensmtpd
    user opensmtpq opensmtpq
    unpack "$opensmtpd_root" opensmtpd || return 1
    # smtpctl insists on its group.
    chgrp opensmtpq "$opensmtpd_root/usr/sbin/smtpctl"
    chmod 2755 "$opensmtpd_root/usr/sbin/smtpctl"
    [ -z "$(libraries "$opensmtpd_program")" ] ||
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-upgrade --no-install-recommends libasr0 libevent-2.1-7 libdb5.3 </dev/null
}

opensmtpd_start() {
    for path in "$opensmtpd_libexec" "$opensmtpd_spool"; do
        if [ -e "$path" ] && [ ! -L "$path" ] && [ -n "$(ls -A "$path" 2>/dev/null)" ]; then
            echo "peer: $path is there already: an OpenSMTPD of this machine" >&2
            return 1
        fi
    done
    : >"$dir/is-ours"
    mkdir -p /usr/libexec "$opensmtpd_empty" "$opensmtpd_spool"
    chmod 755 "$opensmtpd_empty"
    chmod 711 "$queue"
    ln -sfn "$opensmtpd_root/usr/libexec/opensmtpd" "$opensmtpd_libexec"
    # It insists on a real directory.
    mount --bind "$queue" "$opensmtpd_spool"
    # Relaying: its defaults allow five connections to a next hop, and one more every five seconds. With any setting tried,
    # the last few messages of a burst sometimes wait about ten seconds for a session.
    if [ "$mode" = deliver ]; then opensmtpd_deliver >"$dir/smtpd.conf"; else cat >"$dir/smtpd.conf" <<END; fi
queue ttl 4h
smtp max-message-size 50M
smtp limit max-mails 1000000
mta limit max-conn-per-host 100 max-conn-per-route 100 conn-delay-route 0 conn-delay-relay 0 reconn-delay-route 0 session-mail-max 1000
listen on 127.0.0.1 port $listen hostname opensmtpd.peer.example
action "out" relay host smtp://127.0.0.1:$RELAY_TO
match from any for any action "out"
END
    if [ "$mode" = deliver ]; then
        # Only in the foreground it logs elsewhere than to syslog.
        setsid "$opensmtpd_program" -d -v -T smtp -f "$dir/smtpd.conf" </dev/null >"$dir/log" 2>&1 &
    else
        "$opensmtpd_program" -f "$dir/smtpd.conf" >"$dir/start.log" 2>&1
    fi
    listening "$listen"
    [ "$mode" != queue ] || timeout 5 "$opensmtpd_root/usr/sbin/smtpctl" pause mta >"$dir/pause.log" 2>&1
}

opensmtpd_deliver() {
    chown mail "$MAILBOX"
    [ -z "${TLS:-}" ] || {
        # It reads no key that others can read.
        install -m 600 "$TLS/key" "$dir/key"
        install -m 644 "$TLS/certificate" "$dir/certificate"
        echo "pki opensmtpd.peer.example cert \"$dir/certificate\""
        echo "pki opensmtpd.peer.example key \"$dir/key\""
    }
    cat <<END
queue ttl 4h
smtp max-message-size $SIZE_MAX
mta limit conn-delay-route 0 conn-delay-relay 0 reconn-delay-route 0
table boxes { ann = "$(id -u mail):$(id -g mail):$MAILBOX", bob = "$(id -u mail):$(id -g mail):$MAILBOX", eve = "$(id -u mail):$(id -g mail):$MAILBOX" }
listen on 127.0.0.1 port $listen hostname opensmtpd.peer.example${TLS:+ tls pki opensmtpd.peer.example}${BARE:+ no-dsn}
action "box" maildir "$MAILBOX/%{rcpt.user}" userbase <boxes>
action "out" relay host smtp://127.0.0.1:$RELAY_TO
match from any for domain "box.example" action "box"
match from any for any action "out"
END
}

opensmtpd_log() { cat "$dir/log"; }

opensmtpd_stop() {
    # Another instance may have the directories.
    [ -e "$dir/is-ours" ] || return 0
    finish "$(opensmtpd_pid)"
    for _ in $(seq 100); do
        umount "$opensmtpd_spool" 2>/dev/null && break
        mountpoint -q "$opensmtpd_spool" || break
        sleep 0.1
    done
    rmdir "$opensmtpd_spool" 2>/dev/null || true
    rm -f "$opensmtpd_libexec"
}

opensmtpd_count() { find "$queue/queue" -name message 2>/dev/null | wc -l; }

# The parent is the one whose program was started; its children have other names.
opensmtpd_pid() {
    for stat in /proc/[0-9]*; do
        if [ "$(readlink "$stat/exe" 2>/dev/null)" = "$opensmtpd_program" ] &&
            tr '\0' ' ' <"$stat/cmdline" | grep -qF " $dir/smtpd.conf"; then
            echo "${stat#/proc/}"
            return
        fi
    done | sort -n | head -n 1
}

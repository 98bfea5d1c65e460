#!/usr/bin/env bash
# Has every real client send to a fresh `mailrace serve` and looks for their messages in its spool.
#
#   against-mailrace.sh PROGRAM
#
# The server has a free port of 127.0.0.1, a certificate made for this run, and a user. Each client sends to a domain of its
# own, so the spool says what came from whom. At the end smtp-source sends 2,000 messages over 20 sessions. Exit status: 0 if
# every client that is installed was served and its mail is in the spool, 1 otherwise.
set -u

here=$(cd "$(dirname "$0")" && pwd)
PATH="$PATH:/usr/sbin:/sbin"
mailrace=$1
burst=2000
work=$(mktemp -d)
server=''
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    wait
    rm -rf "$work"
}
trap finish EXIT
die() {
    echo "clients: $*" >&2
    [ ! -s "$work/stderr" ] || tail -n 20 "$work/stderr" >&2
    exit 1
}

settings=(--set "spool.path=$work/spool" --set spool.free_min=64MiB --set spool.ready_bytes=0 --set "log.path=$work/log"
    --set "control.path=$work/control" --set delivery.mode=queue)
listen='address="127.0.0.1:0"'
options=()
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=mailrace.example \
        -keyout "$work/key" -out "$work/certificate" 2>/dev/null || die "openssl made no certificate"
    printf 'a good password\n' | "$mailrace" auth hash --scheme scram-sha-256 --user client >"$work/passwords" ||
        die "no line for the password file"
    listen="$listen, tls=\"starttls\""
    settings+=(--set "tls.certificate=$work/certificate" --set "tls.key=$work/key" --set "auth.file=$work/passwords")
    options+=(--tls --user client --password 'a good password')
else
    echo "clients: skipped: TLS and AUTH, because openssl is missing; install openssl"
fi

MAILRACE_CONFIG=/dev/null "$mailrace" serve "${settings[@]}" --set "listen=[{$listen}]" >"$work/stdout" 2>"$work/stderr" &
server=$!
for _ in $(seq 1800); do
    port=$(sed -n 's/^mailrace: ready on 127\.0\.0\.1://p' "$work/stdout")
    [ -z "$port" ] || break
    kill -0 "$server" 2>/dev/null || die "the server did not start"
    sleep 0.1
done
[ -n "$port" ] || die "the server was not ready within 3 minutes"

failed=0
"$here/run" --port "$port" --ids --log "$work/log" "${options[@]}" | tee "$work/clients" || true
[ "${PIPESTATUS[0]}" = 0 ] || failed=1
ok=$(sed -n 's/^\([a-z-]*\): ok.*/\1/p' "$work/clients")
if command -v smtp-source >/dev/null; then
    smtp-source -s 20 -m "$burst" -l 4096 -f sender@client.example -t burst@burst.client.example "127.0.0.1:$port" &&
        ok="$ok burst" || { echo "smtp-source: FAILED: $burst messages over 20 sessions"; failed=1; }
fi

kill "$server"
wait "$server" || { echo "clients: the server ended with status $?"; failed=1; }
server=''
! grep panicked "$work/stderr" || failed=1
"$mailrace" spool stats --top 100 "$work/spool" >"$work/stats" || die "the spool cannot be read"
for name in $ok; do
    there=$(awk -v domain="$name.client.example" '$NF == domain { gsub(",", "", $1); print $1 }' "$work/stats")
    case $name in
    burst) wanted=$burst ;;
    smtp-source) wanted=5 ;;
    swaks-auth) wanted=2 ;;
    # As many as it sent in its time.
    postal) wanted=${there:-1} ;;
    *) wanted=1 ;;
    esac
    if [ "${there:-0}" != "$wanted" ]; then
        echo "$name: FAILED: ${there:-0} of $wanted messages in the spool"
        failed=1
    fi
done
[ -n "$ok" ] || die "no client could run"
[ "$failed" = 0 ] && echo "clients: $(echo "$ok" | wc -w) senders served, every message is in the spool"
exit "$failed"

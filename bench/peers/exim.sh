# shellcheck shell=bash
# Exim with its configuration given on the command line.

exim_program=$PEERS/exim/usr/sbin/exim4

exim_is_here() { [ -x "$exim_program" ] && [ -z "$(libraries "$exim_program")" ]; }

exim_install() {
    user Debian-exim Debian-exim
    unpack "$PEERS/exim" exim4-daemon-light exim4-base || return 1
    missing=$(libraries "$exim_program")
    case $missing in
    '') ;;
    *) DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-upgrade --no-install-recommends libidn12 libgnutls-dane0 </dev/null || return 1 ;;
    esac
}

exim_start() {
    if [ "$mode" = deliver ]; then exim_rcpt=known; else exim_rcpt=accept; fi
    chown Debian-exim "$dir" "$queue"
    cat >"$dir/exim.conf" <<END
primary_hostname = exim.peer.example
exim_path = $exim_program
exim_user = Debian-exim
exim_group = Debian-exim
spool_directory = $queue
split_spool_directory = true
log_file_path = $dir/%slog
pid_file_path = $dir/pid
local_interfaces = 127.0.0.1
daemon_smtp_ports = $listen
smtp_accept_max = 400
smtp_accept_max_per_host = 400
smtp_accept_max_per_connection = 0
smtp_accept_queue_per_connection = 0
smtp_connect_backlog = 400
acl_smtp_rcpt = $exim_rcpt
host_lookup =
rfc1413_query_timeout = 0s
$(if [ "$mode" = deliver ]; then exim_main; else echo "tls_advertise_hosts ="; fi)
keep_environment =
queue_run_max = 20
# Deliveries here are SMTP only, so nothing needs root after the port is bound.
deliver_drop_privilege = true
$([ "$mode" != queue ] || echo "queue_only = true")
$([ "$mode${DEFAULTS:+defaults}" != list ] || exim_tuned)
$([ "$mode" != deliver ] || exim_acl)
begin routers
$([ "$mode" != deliver ] || exim_router)
$(if [ "$mode" = list ]; then exim_by_dns; else exim_by_hand; fi)
begin transports
relay:
  driver = smtp
  $([ "$mode" = list ] || echo "port = $RELAY_TO")
  allow_localhost
$([ "$mode" != deliver ] || exim_transport)
begin retry
* * F,2h,15m
END
    # A queue runner only where mail is to leave.
    if [ "$mode" != queue ]; then run=-q1m; else run=; fi
    # shellcheck disable=SC2086
    "$exim_program" -C "$dir/exim.conf" -bd $run >"$dir/start.log" 2>&1
}

exim_by_hand() {
    cat <<END
all:
  driver = manualroute
  transport = relay
  route_list = * 127.0.0.1
  self = send
END
}

# It takes every address of 127.0.0.0/8 for this machine; there, other hosts live.
exim_by_dns() {
    cat <<END
all:
  driver = dnslookup
  transport = relay
  self = send
END
}

# By default it delivers a message over four connections at a time.
exim_tuned() { echo "remote_max_parallel = 100"; }

exim_main() {
    chown Debian-exim "$MAILBOX"
    # What a peer said may name a file only after a look into a list.
    printf '%s: %s\n' ann ann bob bob eve eve >"$dir/names"
    echo "message_size_limit = $SIZE_MAX"
    echo "log_selector = +tls_cipher +pipelining +smtp_protocol_error +received_recipients"
    if [ -n "${TLS:-}" ]; then
        # It reads the key without root's rights.
        install -o Debian-exim -m 600 "$TLS/key" "$dir/key"
        printf '%s\n' "tls_advertise_hosts = *" "tls_certificate = $TLS/certificate" "tls_privatekey = $dir/key"
    else
        echo "tls_advertise_hosts ="
    fi
    if [ -n "${BARE:-}" ]; then
        printf '%s\n' "chunking_advertise_hosts =" "accept_8bitmime = false" "smtputf8_advertise_hosts ="
    else
        printf '%s\n' "dsn_advertise_hosts = *"
    fi
}

exim_acl() {
    cat <<END
begin acl
known:
  deny
    domains = box.example
    ! local_parts = ann : bob : eve
    message = 5.1.1 User unknown
  accept
END
}

exim_router() {
    cat <<END
box:
  driver = accept
  domains = box.example
  transport = box
END
}

exim_transport() {
    cat <<END
box:
  driver = appendfile
  directory = $MAILBOX/\${lookup{\$local_part}lsearch{$dir/names}}
  maildir_format
  create_directory
  user = Debian-exim
  group = Debian-exim
END
}

exim_log() { cat "$dir/mainlog" "$dir/rejectlog" "$dir/paniclog" 2>/dev/null; }

exim_stop() { finish "$(exim_pid)"; }

exim_count() { find "$queue/input" -name '*-H' 2>/dev/null | wc -l; }

exim_pid() { cat "$dir/pid" 2>/dev/null || true; }

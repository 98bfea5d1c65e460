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
daemon_smtp_ports = 2502
smtp_accept_max = 400
smtp_accept_max_per_host = 400
smtp_accept_max_per_connection = 0
smtp_accept_queue_per_connection = 0
smtp_connect_backlog = 400
acl_smtp_rcpt = accept
host_lookup =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
keep_environment =
queue_run_max = 20
# Deliveries here are SMTP only, so nothing needs root after the port is bound.
deliver_drop_privilege = true
$([ "$mode" = relay ] || echo "queue_only = true")
begin routers
all:
  driver = manualroute
  transport = relay
  route_list = * 127.0.0.1
  self = send
begin transports
relay:
  driver = smtp
  port = $RELAY_TO
  allow_localhost
begin retry
* * F,2h,15m
END
    # A queue runner only where mail is to leave.
    if [ "$mode" = relay ]; then run=-q1m; else run=; fi
    # shellcheck disable=SC2086
    "$exim_program" -C "$dir/exim.conf" -bd $run >"$dir/start.log" 2>&1
}

exim_stop() { finish "$(exim_pid)"; }

exim_count() { find "$queue/input" -name '*-H' 2>/dev/null | wc -l; }

exim_pid() { cat "$dir/pid" 2>/dev/null || true; }

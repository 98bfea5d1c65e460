# shellcheck shell=bash
# Postfix as its own instance, tuned unless DEFAULTS is set: enough processes for 200 sessions, no delay against overload, no TLS.

postfix_is_here() { [ -x /usr/lib/postfix/sbin/master ]; }

postfix_install() {
    echo "peer: postfix is installed by .ci/setup" >&2
    return 1
}

postfix_start() {
    mkdir -p "$dir/etc" "$dir/data"
    chown postfix "$dir/data"
    # The services of the distribution, outside a chroot, with the listener on our port.
    awk -v OFS='\t' -v listen="127.0.0.1:$listen" '
        /^[[:space:]]*#/ || NF == 0 { next }
        /^[[:space:]]/ { print; next }
        $1 == "smtp" && $2 == "inet" { print listen, "inet", "n", "-", "n", "-", "200", "smtpd"; next }
        { $5 = "n"; print }
    ' /usr/share/postfix/master.cf.dist >"$dir/etc/master.cf"
    cat >"$dir/etc/main.cf" <<END
compatibility_level = 3.6
queue_directory = $queue
data_directory = $dir/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
myhostname = postfix.peer.example
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
mydestination =
local_recipient_maps =
alias_maps =
$([ "$mode" = list ] || echo "relayhost = [127.0.0.1]:$RELAY_TO")
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
$([ "$mode${TLS:+tls}" = delivertls ] || printf 'smtp%s_tls_security_level = none\n' d '')
maillog_file = $(postfix_log_file)
$([ "$mode${DEFAULTS:+defaults}" = listdefaults ] || postfix_tuned)
END
    case $mode in
    relay) [ -z "${MILTERS:-}" ] || echo "smtpd_milters = $MILTERS" >>"$dir/etc/main.cf" ;;
    list) echo "smtpd_recipient_limit = 1000000" >>"$dir/etc/main.cf" ;;
    queue) echo "defer_transports = smtp" >>"$dir/etc/main.cf" ;;
    deliver) postfix_deliver >>"$dir/etc/main.cf" ;;
    esac
    postfix -c "$dir/etc" start >"$dir/start.log" 2>&1
}

postfix_tuned() {
    cat <<END
default_process_limit = 200
in_flow_delay = 0
initial_destination_concurrency = 50
default_destination_concurrency_limit = 100
qmgr_message_active_limit = 50000
END
}

postfix_deliver() {
    chown postfix "$MAILBOX"
    cat <<END
message_size_limit = $SIZE_MAX
virtual_mailbox_domains = box.example
virtual_mailbox_base = $MAILBOX
virtual_mailbox_maps = inline:{ {ann@box.example = ann/}, {bob@box.example = bob/}, {eve@box.example = eve/} }
virtual_uid_maps = static:$(id -u postfix)
virtual_gid_maps = static:$(id -g postfix)
virtual_minimum_uid = 1
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_tls_received_header = yes
smtpd_tls_loglevel = 1
smtp_tls_loglevel = 1
END
    [ -z "${TLS:-}" ] || cat <<END
smtpd_tls_security_level = may
smtpd_tls_chain_files = $TLS/key, $TLS/certificate
smtp_tls_security_level = may
END
    [ -z "${MILTER:-}" ] || printf 'smtpd_milters = inet:127.0.0.1:%s\nmilter_default_action = tempfail\n' "$MILTER"
    [ -z "${BARE:-}" ] || echo "smtpd_discard_ehlo_keywords = chunking, 8bitmime, smtputf8, dsn"
}

postfix_stop() {
    postfix -c "$dir/etc" stop >/dev/null 2>&1 || true
    rm -f "$(postfix_log_file)"
}

# Postfix writes logs only below /var.
postfix_log_file() { echo "/var/log/mailrace-peer-postfix${INSTANCE:+-$INSTANCE}.log"; }

postfix_log() { cat "$(postfix_log_file)"; }

postfix_count() { find "$queue/incoming" "$queue/active" "$queue/deferred" "$queue/maildrop" -type f 2>/dev/null | wc -l; }

postfix_pid() { tr -d ' ' <"$queue/pid/master.pid"; }

"""A value other than its default for each parameter that lib/postfix/parameters.def says changes
nothing between a mail that Postfix delivers and one that Dovelane delivers. A parameter that is a
switch, a number or a time needs none here."""
import re

# Where a value is no matter of the table's class: the reason, and patterns of names.
NOT_TRIED = {
    "names a part of the install": r"""
        .*_service_name service_name process_(name|id) syslog_name
        alternate_config_directories .*_directory (?!forward).*_path .*_privs mail_owner
        setgid_group mail_version mail_release_date maillog_file.* openssl_path""",
    "is the install's own": r"""
        multi_instance_.* postmulti_.* .*_socket import_environment export_environment
        debugger_command proxy_(read|write)_maps inet_interfaces inet_protocols proxy_interfaces
        default_database_type stress known_tcp_ports""",
    "is how the milter is reached": r"""
        smtpd_(milters|milter_maps|.*upstream_proxy.*) milter_(default_action|protocol)
        non_smtpd_milters milter_\w+_macros""",
    "asks for TLS, which the client here lacks": r"""
        smtpd_(tls_wrappermode|enforce_tls|tls_req_ccert|tls_ask_ccert|tls_auth_only)
        smtpd_tls_security_level""",
    "matters in a TLS session only": r"""
        (smtpd|lmtp|smtp)_tls_.*(cert|key|chain|CA|dh\d|sni|ciphers|protocols).*
        (smtpd|lmtp|smtp)_tls_.*(grade|digest|database|policy|match|password).*""",
    "matters in a TLS or SASL session only": r"""
        tls_.* tlsproxy_.* .*_sasl_.* smtpd_use_tls cyrus_.*""",
    "decides whose the mail is, test_milter.py": r"""
        mydestination mydomain myorigin relay_domains virtual_(alias|mailbox)_domains
        virtual_mailbox_maps""",
    "decides where the mail goes, test_milter.py": r"""
        transport_maps relayhost (default|local|relay|virtual)_transport .*_dependent_.*
        empty_address_.*""",
    "decides what is refused": r"""
        relocated_maps local_recipient_maps relay_recipient_maps fallback_transport.*
        mynetworks.* smtpd_reject_unlisted_sender reject_tempfail_action""",
    "has tests of its own": r"""
        receive_override_options smtpd_hide_client_session smtpd_authorized_verp_clients
        requiretls_.*""",
    "is about other clients": r"""
        authorized_(mailq|submit|flush|verp)_.* smtpd_authorized_.* smtpd_proxy_.* qmqpd_.*
        permit_mx_backup_networks""",
    "is what smtp_delivery_status_filter says by default, which keeps mail in Postfix": r"""
        default_delivery_status_filter""",
    "is about probes": r"""
        address_verify_(map|.*_transport|relayhost)""",
}

VALUES = {
    "smtp_bind_address": "127.0.0.3", "lmtp_bind_address": "[127.0.0.4]",
    "smtp_bind_address6": "::1", "lmtp_bind_address6": "::1",
    "2bounce_notice_recipient": "p@x.example", "bounce_notice_recipient": "p@x.example",
    "error_notice_recipient": "p@x.example", "double_bounce_sender": "twice",
    "bounce_template_file": "/dev/null", "header_from_format": "obsolete",
    "internal_mail_filter_classes": "bounce", "default_verp_delimiters": "-=",
    "verp_delimiter_filter": "-=+%", "address_verify_sender": "probe",
    "address_verify_poll_count": "2", "alias_database": "texthash:/dev/null",
    "alias_maps": "inline:{ nobody1=nobody }", "allow_mail_to_commands": "alias",
    "allow_mail_to_files": "alias", "append_dot_mydomain": "yes", "best_mx_transport": "error",
    "canonical_classes": "envelope_sender", "command_expansion_filter": "abc",
    "debug_peer_list": "192.0.2.1", "default_filter_nexthop": "nowhere.example",
    "default_rbl_reply": "no", "dnssec_probe": "", "execution_directory_expansion_filter": "abc",
    "forward_expansion_filter": "abc", "forward_path": "/nowhere/forward",
    "hash_queue_names": "deferred", "home_mailbox": "Maildir/",
    "info_log_address_format": "internal", "local_command_shell": "/bin/false",
    "luser_relay": "u@x.example", "local_header_rewrite_clients": "permit_mynetworks",
    "local_login_sender_maps": "inline:{ nobody1=nobody }", "mail_name": "Other",
    "mailbox_command": "/bin/false", "mailbox_command_maps": "inline:{ nobody1=false }",
    "mailbox_delivery_lock": "dotlock", "mailbox_transport": "error",
    "mailbox_transport_maps": "inline:{ nobody1=error: }", "maps_rbl_domains": "rbl.invalid",
    "masquerade_classes": "envelope_sender", "masquerade_exceptions": "root",
    "myhostname": "other.example", "message_drop_headers": "bcc, x-a, resent-bcc",
    "milter_macro_daemon_name": "other.example", "milter_macro_v": "other",
    "milter_macro_defaults": "{x}=y", "parent_domain_matches_subdomains": "",
    "prepend_delivered_header": "command", "propagate_unmatched_extensions": "canonical",
    "rbl_reply_maps": "inline:{ x=y }", "recipient_canonical_classes": "header_recipient",
    "recipient_delimiter": "+", "relay_clientcerts": "inline:{ x=y }", "respectful_logging": "no",
    "sender_canonical_classes": "envelope_sender", "sendmail_fix_line_endings": "never",
    "smtp_address_preference": "ipv4", "lmtp_address_preference": "ipv4",
    "smtp_address_verify_target": "data", "lmtp_address_verify_target": "data",
    "smtp_connection_cache_destinations": "nowhere.example",
    "lmtp_connection_cache_destinations": "nowhere.example", "smtp_dns_support_level": "enabled",
    "lmtp_dns_support_level": "enabled", "smtp_helo_name": "other.example",
    "lmtp_lhlo_name": "other.example",
    "local_delivery_status_filter": "inline:{ { 5.7.1 = 4.7.1 } }",
    "pipe_delivery_status_filter": "inline:{ { 5.7.1 = 4.7.1 } }",
    "virtual_delivery_status_filter": "inline:{ { 5.7.1 = 4.7.1 } }",
    "smtpd_banner": "$myhostname ESMTP hello", "smtpd_client_event_limit_exceptions": "127.0.0.0/8",
    "smtpd_command_filter": "inline:{ { XYZZY = NOOP } }",
    "smtpd_discard_ehlo_keyword_address_maps": "inline:{ 127.0.0.1=dsn }",
    "smtpd_discard_ehlo_keywords": "dsn, etrn",
    "smtpd_dns_reply_filter": "regexp:{ { /xyzzy/ IGNORE } }", "smtpd_etrn_restrictions": "reject",
    "smtpd_expansion_filter": "abc", "smtpd_forbidden_commands": "CONNECT",
    "smtpd_hard_error_limit": "7", "smtpd_junk_command_limit": "7",
    "smtpd_forbid_bare_newline_exclusions": "127.0.0.0/8",
    "smtpd_log_access_permit_actions": "static:all", "smtpd_noop_commands": "XYZZY",
    "smtpd_null_access_lookup_key": "<none>", "smtpd_per_request_deadline": "yes",
    "smtpd_policy_service_default_action": "451 4.3.5 no",
    "smtpd_policy_service_policy_context": "x", "smtpd_reject_footer": "call",
    "smtpd_reject_footer_maps": "inline:{ x=y }", "smtpd_relay_before_recipient_restrictions": "no",
    "smtpd_sender_login_maps": "inline:{ x=y }", "smtpd_starttls_timeout": "7s",
    "smtpd_timeout": "77s", "smtputf8_autodetect_classes": "all", "smtputf8_enable": "no",
    "syslog_facility": "local3", "unverified_recipient_reject_reason": "no",
    "unverified_sender_reject_reason": "no", "postscreen_access_list": "reject",
    "postscreen_bare_newline_action": "drop", "postscreen_cache_map": "internal:x",
    "postscreen_denylist_action": "drop", "postscreen_client_connection_count_limit": "1",
    "postscreen_command_filter": "inline:{ x=y }", "postscreen_command_time_limit": "3s",
    "postscreen_allowlist_interfaces": "static:none", "postscreen_dnsbl_action": "drop",
    "postscreen_dnsbl_allowlist_threshold": "-1", "postscreen_dnsbl_max_ttl": "2h",
    "postscreen_dnsbl_reply_map": "inline:{ x=y }", "postscreen_dnsbl_sites": "rbl.invalid",
    "postscreen_greet_action": "drop", "postscreen_greet_wait": "1s",
    "postscreen_non_smtp_command_action": "ignore", "postscreen_pipelining_action": "drop",
    "postscreen_upstream_proxy_protocol": "haproxy", "virtual_gid_maps": "static:9",
    "virtual_uid_maps": "static:9999", "virtual_mailbox_base": "/nowhere",
    "virtual_mailbox_lock": "dotlock",
}


def value_of(name, default):
    """A value with which the parameter says another thing than by default; None: see why_not."""
    if why_not(name):
        return None
    if name in VALUES:
        return VALUES[name]
    if default in ("yes", "no"):
        return "no" if default == "yes" else "yes"
    found = re.fullmatch(r"(\d+)([smhdw]?)", default)
    return f"{int(found[1]) + 1}{found[2]}" if found else None


def why_not(name):
    for why, patterns in NOT_TRIED.items():
        if any(re.fullmatch(pattern, name) for pattern in patterns.split()):
            return why
    return None

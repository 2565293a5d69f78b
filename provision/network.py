"""The addresses and ports of this host: looked at before anything is written or a token is used."""
import errno
import json
import re
import socket

import group
from host import Trouble

# What errors of the network mean, in the admin's words.
WORDS = {errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "no route to that network",
         errno.ECONNREFUSED: "nobody listens there", errno.ECONNRESET: "the connection was closed",
         errno.ETIMEDOUT: "no answer", errno.EACCES: "not allowed (a firewall of this host?)"}


def said(error):
    """An error of a connection without the marks of Python and OpenSSL."""
    text = str(error)
    if isinstance(error, socket.gaierror):
        return "that name has no address"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is refused ({getattr(error, 'verify_message', '') or 'not of this group'})"
    if re.search("WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|RECORD_LAYER_FAILURE|HTTP_REQUEST", text):
        return "it speaks no TLS: another program has that port"
    if "EOF occurred" in text or "UNEXPECTED_EOF" in text:
        return "the connection was closed"
    if isinstance(error, TimeoutError):
        return "no answer" if text in ("", "timed out") else text
    if getattr(error, "errno", None) in WORDS:
        return WORDS[error.errno]
    return re.sub(r"^\[[^\]]*\] ?| \(_ssl\.c:\d+\)$", "", text)


# ---- the address by which others reach this host ----

def own_addresses(host):
    """Those by which other hosts can reach this one, as ip(8) shows them."""
    shown = host.run("ip", "-j", "address", "show", "scope", "global", check=False).stdout
    try:
        return [a["local"] for link in json.loads(shown or "[]") for a in link.get("addr_info", []) if "local" in a]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def holder(host, port):
    """The program that listens on that port, or ""."""
    shown = host.run("ss", "-Hltnp", f"sport = :{port}", check=False).stdout
    found = re.search(r'users:\(\("([^"]+)"', shown)
    return f" (by {found[1]})" if found else ""


def resolved(where, port):
    try:
        return [(family, at) for family, _, _, _, at in socket.getaddrinfo(where, port, type=socket.SOCK_STREAM)]
    except OSError as e:
        raise Trouble(f"{where} has no address here ({said(e)}): say one of this host's addresses with --address") from None


def check_listen(host, address):
    """Trouble unless the node's Redis can listen at this address."""
    where, port = group.split_address(address)
    for family, at in resolved(where, port):
        if at[0].startswith("127.") or at[0] == "::1":
            raise Trouble(f"{where} is {at[0]} here (/etc/hosts?), which other hosts do not reach: "
                          f"{say_one(host)}")
        try_to_listen(host, family, at, address)


def check_port(host, where, port, way_out):
    """Trouble unless this host can listen on that port of that address of its own."""
    for family, at in resolved(where, port):
        try:
            listen_once(family, at)
        except OSError as e:
            why = f"is taken{holder(host, port)}" if e.errno == errno.EADDRINUSE else f"cannot be listened on ({said(e)})"
            raise Trouble(f"port {port} of {where} {why}: {way_out}") from None


def say_one(host):
    have = own_addresses(host)
    return f"say --address with one that they reach{'; this host has ' + ', '.join(have) if have else ''}"


def try_to_listen(host, family, at, address):
    port = at[1]
    if port < 1024:
        raise Trouble(f"port {port} of {at[0]} is below 1024, where the node's Redis may not listen{holder(host, port)}: "
                      f"say another one, like {group.join_address(at[0], group.PORT)}")
    try:
        listen_once(family, at)
    except OSError as e:
        if e.errno == errno.EADDRNOTAVAIL:
            raise Trouble(f"{at[0]} is no address of this host: {say_one(host)}. "
                          f"An address that a router translates to this host cannot be used") from None
        if e.errno == errno.EADDRINUSE:
            raise Trouble(f"port {port} of {at[0]} is taken{holder(host, port)}: say another one, "
                          f"like {group.join_address(at[0], group.PORT if port != group.PORT else group.PORT + 10)}") from None
        raise Trouble(f"nothing can listen at {address}: {said(e)}") from None


def listen_once(family, at):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind(at)
        s.listen(1)

"""Postfix: two settings, the ports that take mail back and bounce it, and the milter, last on port 25.

postconf(1) edits copies of main.cf and master.cf; the copies are what the plan shows and puts in place.
"""
import os
import pathlib
import re
import socket
import tempfile

import templates
from host import Trouble

DIRECTORY = "/etc/postfix"
FILES = ("main.cf", "master.cf")
MILTER = "unix:dovelane/milter.sock"
REINJECT, BOUNCE = 10627, 10626


def entries(text):
    """master.cf's services: [(service, type, words)], continuation lines joined, comments away."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace() and found:
            found[-1] += " " + line.strip()
        else:
            found.append(line.strip())
    return [(words.split(None, 2)[0], words.split(None, 2)[1], words) for words in found]


def there(host):
    return bool(host.program("postconf")) and all(host.exists(f"{DIRECTORY}/{name}") for name in FILES)


def free_port(host, wanted, taken):
    """wanted, or one a hundred above it ...: nothing listens there and no service of master.cf has it."""
    for port in range(wanted, wanted + 1000, 100):
        if port in taken:
            continue
        try:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            return port
        except OSError:
            continue
    raise Trouble(f"no port of 127.0.0.1 is free ({wanted}, {wanted + 100} ... {wanted + 900} are taken)")


def ports(host):
    """(reinject_port, bounce_port) for a host that has none of ours yet."""
    taken = {int(found) for found in re.findall(r"^(?:\S*:)?(\d+)\s+inet\s", host.text(f"{DIRECTORY}/master.cf") or "", re.M)}
    return f"127.0.0.1:{free_port(host, REINJECT, taken)}", f"127.0.0.1:{free_port(host, BOUNCE, taken)}"


def tight(milters):
    """A list of milters without blanks: postconf -P takes none."""
    return re.sub(r",?\}", "}", re.sub(r"\{,?", "{", re.sub(r"[\s,]+", ",", milters.strip(", \t\n")))).strip(",")


def public_service(master):
    """Name and type of the smtpd(8) that the world reaches: behind postscreen it is smtpd/pass."""
    found = {(name, kind): words for name, kind, words in entries(master)}
    for name in ("smtp", "25"):
        words = found.get((name, "inet"))
        if words and re.search(r"\spostscreen(\s|$)", words):
            if ("smtpd", "pass") not in found:
                raise Trouble("master.cf has postscreen on port 25, and no `smtpd pass` service behind it: this is not understood, add the milter by hand")
            return "smtpd/pass"
        if words:
            return f"{name}/inet"
    inet = [f"{name}/{kind}" for name, kind, words in entries(master) if kind == "inet" and re.match(r"(.*:)?(smtp|25)$", name)]
    if len(inet) == 1:
        return inet[0]
    raise Trouble(f"master.cf has {'several services' if inet else 'no service'} on port 25: it is not known which one gets the milter; --gateway is for hosts that take mail there")


def milter_line():
    """Ours, as the example has it."""
    return tight(re.search(r"smtpd_milters = (\{ *" + re.escape(MILTER) + r".*?\})", templates.read("master.cf"))[1])


def postconf(host, d, *words, check=True):
    """On the copies in d. They look old afterwards: of a file that was just changed Postfix waits a second before it believes it."""
    done = host.run("postconf", "-c", d, *words, check=check)
    for name in FILES:
        os.utime(pathlib.Path(d, name), (0, 0))
    return done.stdout


def edited(host, local):
    """{file: new text} of main.cf and master.cf."""
    with tempfile.TemporaryDirectory(prefix="dovelane-postfix-") as d:
        for name in FILES:
            pathlib.Path(d, name).write_bytes(host.read(f"{DIRECTORY}/{name}"))
            os.utime(pathlib.Path(d, name), (0, 0))
        wanted = dict(re.findall(r"^(\w+) = (.*)$", templates.read("main.cf"), re.M))
        for name, value in wanted.items():
            if postconf(host, d, "-hx", name).strip() != value:
                postconf(host, d, "-e", f"{name}={value}")  # one by one: several are added in an order that no two runs have
        add_services(host, d, local)
        add_milter(host, d)
        return {name: pathlib.Path(d, name).read_text() for name in FILES}


def own_services(local):
    """As entries(): the example's, with this host's ports."""
    ports = {f"127.0.0.1:{REINJECT}": local["reinject_port"], f"127.0.0.1:{BOUNCE}": local["bounce_port"]}
    return [(ports.get(name, name), kind, words.replace(name, ports.get(name, name), 1)) for name, kind, words in entries(templates.read("master.cf"))[1:]]


def add_services(host, d, local):
    have = {(name, kind): words for name, kind, words in entries(pathlib.Path(d, "master.cf").read_text())}
    for name, kind, words in own_services(local):
        old = have.get((name, kind))
        # Compared as postconf(1) writes it, so that a second run finds nothing to do.
        if old is None or tidy(old) != tidy(words):
            postconf(host, d, "-M", f"{name}/{kind}={words}")


def tidy(words):
    return re.sub(r"\s*=\s*", "=", re.sub(r"\s*([{}])\s*", r"\1", re.sub(r"\s+", " ", words)))


def add_milter(host, d):
    service = public_service(pathlib.Path(d, "master.cf").read_text())
    own = postconf(host, d, "-P", f"{service}/smtpd_milters", check=False)
    has = own.split(" = ", 1)[1].strip() if " = " in own else postconf(host, d, "-h", "smtpd_milters").strip()
    if MILTER in has:
        return
    postconf(host, d, "-P", f"{service}/smtpd_milters={','.join(filter(None, [tight(has), milter_line()]))}")


# ---- taking it out again, of files that somebody changed since ----

def take_out(host, path, old, local):
    """What is ours out of main.cf or master.cf; what others put there since stays. old: the file's text before ours came."""
    if path.endswith("main.cf"):
        return take_out_settings(host, old)
    return take_out_services(host, host.text(path), old, local)


def take_out_settings(host, old):
    for name, ours in re.findall(r"^(\w+) = (.*)$", templates.read("main.cf"), re.M):
        if host.run("postconf", "-hx", name).stdout.strip() != ours:
            continue  # somebody chose another value since
        was = [line for line in old.splitlines() if line.split("=")[0].strip() == name]
        host.run("postconf", *(["-e", was[-1]] if was else ["-X", name]))


def take_out_services(host, text, old, local):
    known = {(name, kind): words for name, kind, words in entries(old)}
    ours = {(name, kind) for name, kind, _ in own_services(local or {"reinject_port": f"127.0.0.1:{REINJECT}", "bounce_port": f"127.0.0.1:{BOUNCE}"})}
    for name, kind, words in entries(text):
        service = f"{name}/{kind}"
        if (name, kind) in ours and (name, kind) not in known:
            host.run("postconf", "-MX", service)
        elif MILTER in words:
            has = host.run("postconf", "-P", f"{service}/smtpd_milters", check=False).stdout.partition(" = ")[2].strip()
            rest = ",".join(element for element in elements(tight(has)) if MILTER not in element)
            # Where the service had no list of its own, ours began as that of main.cf, which counts again unless somebody changed it here.
            of_all = tight(host.run("postconf", "-h", "smtpd_milters").stdout)
            if "smtpd_milters" not in known.get((name, kind), "") and rest in ("", of_all):
                host.run("postconf", "-PX", f"{service}/smtpd_milters")
            else:
                host.run("postconf", "-P", f"{service}/smtpd_milters={rest}")


def elements(milters):
    """Of a list without blanks: commas within braces divide nothing."""
    return re.findall(r"(?:\{[^{}]*\}|[^,{}])+", milters)


def reload(host):
    host.run("postfix", "check")
    if host.active("postfix"):
        host.systemctl("reload", "postfix")

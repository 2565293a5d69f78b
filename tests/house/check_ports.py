#!/usr/bin/env python3
"""Fails where an example, a default or a document of ours uses a port on which a program that
stands beside Postfix listens by its own examples (docs/stacks.md).

    usage: check_ports.py

A line that names the program, or asks it as a milter (inet:...), is about that program.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Who listens there, in their defaults, their guides, or in Debian's packages.
TAKEN = {
    783: "spamassassin spamd", 3310: "clamav clamd", 4190: "managesieve sieve", 6379: "redis",
    7357: "clamav", 8000: "mailman", 8001: "mailman", 8024: "mailman", 8080: "mailcow",
    8891: "opendkim", 8892: "opendkim", 8893: "opendmarc", 8894: "openarc", 9998: "amavis",
    9900: "rspamd", 10001: "postsrsd", 10002: "postsrsd", 10023: "postgrey",
    10024: "amavis", 10025: "amavis", 10026: "amavis", 10027: "amavis", 10028: "dkimproxy amavis",
    10029: "amavis zimbra", 10030: "amavis zimbra", 10031: "policyd cluebringer",
    10032: "amavis zimbra", 10040: "postfwd", 11211: "memcached", 11332: "rspamd",
    11333: "rspamd", 11334: "rspamd", 11335: "rspamd", 11445: "olefy", 12301: "opendkim",
    12325: "sogo", 12340: "quota", 12345: "dovecot", 12525: "policyd-weight", 20000: "sogo",
    65265: "quota",
}
WHERE = ("packaging/**/*", "docker/*", "docker/demo/*", "docker-compose.yml", "provision/*.py", "docs/*.md",
         "docs/man/*", "clients/python/*.md", "clients/python/examples/*", "README.md", "lib/**/*.def", "lib/**/*.c", "ctl/*.c",
         "debian/tests/*", "proxy/*.c", "milter/*.c", "relay/**/*.c",
         "dovecot-plugin/replicator/**/*.c")
# An address's port, or the first word of master.cf's, redis.conf's and ss's lines.
PORT = re.compile(r"(?:(?<=[\w\])*}]:)|(?<=^)|(?<=^port )|(?<=-port )|(?<=-p )|(?<= port ))"
                  r"(\d{3,5})\b(?![.,]?\d)(?=[\s\"'`/,;:.)|}]|$)", re.M)
# Each Redis of an image of the demo is alone in its container; elsewhere it is who has it that is
# told of.
OWN = {"docker/redis.conf": {6379}, "docker/dovelane.conf": {6379}, "docker/site": {6379},
       "docker/demo/world.py": {6379}, "docker-compose.yml": {6379},
       # by which amavis gives mail back, with our milter
       "docs/stacks.md": {10025}}


def faults(path, text):
    for line in text.splitlines():
        for found in PORT.finditer(line):
            port = int(found[1])
            names = TAKEN.get(port, "").split()
            about = any(name in line.lower() for name in names) or "inet:" in line
            # What a page shows as a listing of log lines or of numbers has no address before it.
            alone = not line[:found.start()].strip() and not re.match(r"\S+\s+inet\b", line)
            if names and not about and not alone and port not in OWN.get(path, ()):
                yield f"{path}: {line.strip()[:90]}: {port} is {names[0]}'s"


def self_test():
    for line, port in (('bounce_port = "127.0.0.1:10026"', True), ("10024 inet n - n - - smtpd", 1),
                       ("127.0.0.1:8024 inet n - - - - smtpd", 1), ("port 11332", 1),
                       ("redis-cli -h 10.0.0.1 -p 8891", 1),
                       ("node mx1 { redis = \"a:12301\" }", 1),
                       ("smtpd_milters = inet:127.0.0.1:11332", 0), ("port 7001", 0),
                       ("amavis listens at 127.0.0.1:10024", 0), ("10000 mails", 0),
                       ("10024 mails", 0), ("10:8001", 1), ("1.8001", 0)):
        assert bool(list(faults("x", line))) == bool(port), line


def main():
    self_test()
    found = []
    for pattern in WHERE:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc":
                found += faults(str(path.relative_to(ROOT)), path.read_text(errors="replace"))
    if found:
        print("\n".join(found))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

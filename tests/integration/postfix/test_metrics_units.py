"""metrics_listen of programs that run with what their systemd units leave them.

User, groups, filters of system calls, of address families and of memory: as_unit.py. The units
have no PrivateNetwork= and no IPAddressDeny=, which nobody could scrape through. The replicator
has no unit of ours: tests/replication/test_metrics.py has it as a service of Dovecot's.
"""

import shutil
import smtplib
from pathlib import Path

import pytest

from support.stack import debian, programs, secure
from support.stack.scrape import Page
from support.stack.shape import SinkShape
from support.waiting import eventually

pytestmark = pytest.mark.long
PASSWORD = "prometheus:s3cret"


def belongs_to_it(path):
    for each in (path, *path.rglob("*")):
        if not each.is_symlink():
            shutil.chown(each, debian.USER, debian.USER_GROUP)


def send(system):
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.sendmail("s@x.example", ["u@a.example"], "Subject: x\r\n\r\nhello\r\n")


def filtered(service):
    """What the kernel says of the program, not of the Python that became it."""
    of = Path(f"/proc/{service.pid}")
    status, name = (of / "status").read_text(), (of / "comm").read_text()
    return "Seccomp:\t2" in status and name.startswith("dovelane")


def nices(service):
    """Of its threads; the name in stat may have blanks."""
    stats = [path.read_text() for path in Path(f"/proc/{service.pid}/task").glob("*/stat")]
    return sorted(int(stat.rpartition(")")[2].split()[16]) for stat in stats)


@pytest.mark.parametrize("name", ["milter", "proxy", "relay-mx1"])
def test_it_is_scraped(stack, name):
    program = name.split("-")[0]
    page = Page(program)
    system = stack(
        postfix="proxy" if program == "proxy" else "divert",
        sinks=[SinkShape("a", ours=True)],
        divert=["a"],
    )
    try:
        service = system[name]
        files = Path(service.cwd) / "tls"
        files.mkdir()
        secure.authority(files)
        secure.certificate(files, "one")
        (files / "user").write_text(PASSWORD.replace(":", " ") + "\n")
        (files / "user").chmod(0o600)
        listen = {
            "metrics_listen": page.listen,
            "metrics_tls_cert_file": str(files / "one.crt"),
            "metrics_tls_key_file": str(files / "one.key"),
            "metrics_user_file": str(files / "user"),
        }
        programs.write_settings(service, listen)
        system.kill(name)
        belongs_to_it(Path(service.cwd))
        if "socket" in service.note:
            belongs_to_it(Path(service.note["socket"]).parent)
        debian.as_unit(service, system.directory / "sbin", ["postfix"])
        system.start(name)
        ask = {"ca": files / "ca.crt", "user": PASSWORD}
        eventually("it is ready", lambda: (page.ask("/readyz", **ask) or [0])[0] == 200)
        assert nices(service)[-1] == 10, "scrapes compete with mail"
        assert filtered(service) and page.ask(ca=ask["ca"])[0] == 401
        total = "relay_sent_total" if program == "relay" else "mails_diverted_total"
        eventually("mail is counted", lambda: send(system) or page.values(**ask).get(total, 0) > 0)
    finally:
        page.close()

"""Mails that a client gives to the Postfix of a stack, and where each one is then."""
import json
import re
import smtplib
import subprocess

from .stack import lanes, resp


def send(system, *recipients, content=b"Subject: x\r\nMessage-ID: <m@x>\r\n\r\nhello\r\n", mail_options=(), rcpt_options=(), sender="s@x.example"):
    """(code, text) of the answer to the dot."""
    host, _, port = system.smtp.rpartition(":")
    with smtplib.SMTP(host, int(port)) as client:
        client.ehlo("client.example")
        assert client.mail(sender, mail_options)[0] == 250
        for recipient in recipients:
            code, text = client.rcpt(recipient, rcpt_options)
            assert code == 250, text
        return client.data(content)


def entries(system):
    return [list(lanes.entries(node, address)) for node, address in system.nodes.items()]


def bodies(system):
    """(key, body) of each entry of mx1."""
    with resp.Connection(system.nodes["mx1"]) as redis:
        return [(name, entry[6]) for name in lanes.names(redis) for entry in redis.call("LANE.READ", name, 1)[1]]


def queued(system):
    return [item for item in postqueue(system) if item["recipients"]]


def postqueue(system):
    text = subprocess.run(["postqueue", "-c", system["postfix"].note["config_directory"], "-j"], stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def queue_id(text):
    return re.search(rb"queued as (\S+)", text)[1].decode()

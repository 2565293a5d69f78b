#!/usr/bin/env python3
"""An IMAP client for one action; prints JSON.   imap.py HOST USER list | append FOLDER SUBJECT | create FOLDER | flag FOLDER UID FLAG"""
import imaplib
import json
import re
import sys


def seen(client):
    """{folder: {"uidvalidity": , "mails": {uid: {"flags": , "subject": }}}}"""
    out = {}
    for line in client.list()[1]:
        folder = line.decode().rsplit(" ", 1)[1].strip('"')
        if client.select(f'"{folder}"', readonly=True)[0] != "OK":
            continue
        mails = {}
        for part in client.uid("FETCH", "1:*", "(FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT)])")[1]:
            if isinstance(part, tuple):
                uid = re.search(rb"UID (\d+)", part[0])[1].decode()
                flags = sorted(flag for flag in re.search(rb"FLAGS \(([^)]*)\)", part[0])[1].decode().split() if flag != "\\Recent")
                mails[uid] = {"flags": flags, "subject": part[1].decode().strip().removeprefix("Subject: ")}
        out[folder] = {"uidvalidity": client.response("UIDVALIDITY")[1][0].decode(), "mails": mails}
    return out


def main():
    host, user, action, *words = sys.argv[1:]
    client = imaplib.IMAP4(host, timeout=60)
    client.login(user, "secret")
    answer = ("OK", None)
    if action == "list":
        print(json.dumps(seen(client), sort_keys=True))
        return
    if action == "append":
        answer = client.append(words[0], None, None, f"From: x@client.example\r\nSubject: {words[1]}\r\n\r\nbody of {words[1]}\r\n".encode())
    elif action == "create":
        answer = client.create(words[0])
    elif action == "flag":
        client.select(words[0])
        answer = client.uid("STORE", words[1], "+FLAGS", f"({words[2]})")
    if answer[0] != "OK":
        sys.exit(f"{action} {words}: {answer}")
    print("null")


if __name__ == "__main__":
    main()

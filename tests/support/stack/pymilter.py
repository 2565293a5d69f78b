#!/usr/bin/env python3
"""A content milter, as a spam filter is one: marks each mail with a header, refuses those that say they are spam.

It speaks just enough of the milter protocol (version 6): no answers to anything but the end of the message.
"""
import argparse
import socketserver
import struct

ADD_HEADERS = 0x01
# Not sent: connect, helo, mail, rcpt, body, end of header, unknown commands, data. Headers come, and get no reply.
STEPS = 0x01 | 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x100 | 0x200 | 0x80
MARK = b"X-Content-Milter"
SPAM = b"X-Spam"


class Session(socketserver.StreamRequestHandler):
    mark = True

    def handle(self):
        spam = False
        while len(head := self.rfile.read(5)) == 5:
            length, command = struct.unpack("!Ic", head)
            data = self.rfile.read(length - 1)
            if command == b"O":
                _, actions, steps = struct.unpack("!III", data[:12])
                assert steps & STEPS == STEPS and actions & ADD_HEADERS
                self.say(b"O", struct.pack("!III", 6, ADD_HEADERS, STEPS))
            elif command == b"L":
                spam = spam or data.partition(b"\0")[0] == SPAM
            elif command == b"E" and spam:
                self.say(b"y", b"550 5.7.1 this is spam\0")
                spam = False
            elif command == b"E":
                if self.mark:
                    self.say(b"h", MARK + b"\0seen\0")
                self.say(b"c")
            elif command in b"AK":
                spam = False
            elif command == b"Q":
                return

    def say(self, command, data=b""):
        self.wfile.write(struct.pack("!I", len(data) + 1) + command + data)


class Reader(Session):
    """Reads all and changes nothing; but that it is there makes Postfix hold headers to what a milter can be sent."""

    mark = False


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    host, _, port = parser.parse_args().listen.rpartition(":")
    Server((host, int(port)), Session).serve_forever()

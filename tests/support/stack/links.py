#!/usr/bin/python3
"""The network between sites: one TCP relay per direction, which can cut, go silent, and delay.

    links.py [--listen ADDRESS] --control SOCKET NAME=LISTEN_PORT=HOST:PORT ...

A link is named FROM>TO: connections that FROM opens to TO. Links listen at 127.0.0.1, or at ADDRESS, and so does the control
socket where SOCKET is a port, ":7100". It takes JSON lines and answers each with the state of all links:

    {"do": "cut", "links": [...]}       closes what is open, refuses what comes (a peer that is gone)
    {"do": "silence", "links": [...]}   keeps connections and carries nothing (a cable pulled); what came meanwhile waits
    {"do": "heal", "links": [...]}      carries again
    {"do": "delay", "ms": 6, "links": [...]}   each byte arrives that much later, in each direction
    {"do": "rate", "bytes": 1000000, "links": [...]}  each connection carries at most so many bytes a second; 0: as fast as it can
    {"do": "state"}

Without "links": all of them. `blocked` of a link's state counts connections that were closed or refused by a cut, and connections and
pieces of data that had to wait in a silence: a partition in which nobody had anything to say is none.
"""
import argparse
import asyncio
import json
import socket


class Link:
    """One direction in which connections are opened; bytes flow both ways."""

    def __init__(self, name, port, target):
        self.name, self.port, self.target = name, port, target
        self.mode, self.delay, self.rate, self.bytes, self.blocked = "open", 0.0, 0, 0, 0
        self.writers = set()
        self.carrying = asyncio.Event()
        self.carrying.set()

    async def serve(self, address):
        await asyncio.start_server(self.connected, address, self.port, backlog=128)

    async def connected(self, reader, writer):
        self.writers.add(writer)
        far = None
        try:
            if self.mode == "cut":
                self.blocked += 1
                return
            await self.passage()
            host, _, port = self.target.rpartition(":")
            back, far = await asyncio.open_connection(host, int(port))
            self.writers.add(far)
            if self.rate:  # what waits must be seen to wait, by the sender's kernel
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            for end in (writer, far):
                end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            both = [asyncio.create_task(self.carry(reader, far)), asyncio.create_task(self.carry(back, writer))]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass
        finally:
            for end in (writer, far):
                if end is not None:
                    self.writers.discard(end)
                    end.close()

    async def passage(self):
        """Until it carries."""
        self.blocked += not self.carrying.is_set()
        await self.carrying.wait()

    async def carry(self, reader, writer):
        """Bytes from one side to the other, each as late as the link says, in order."""
        loop, waiting, there = asyncio.get_running_loop(), [], asyncio.Event()

        async def late():
            while True:
                while not waiting:
                    there.clear()
                    await there.wait()
                due, data = waiting.pop(0)
                if (left := due - loop.time()) > 0:
                    await asyncio.sleep(left)
                await self.passage()
                if data is None:
                    return
                writer.write(data)
                await writer.drain()

        if not self.delay:
            while data := await reader.read(min(262144, self.rate // 50) if self.rate else 262144):
                await self.passage()
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
            return
        sender = asyncio.create_task(late())
        try:
            while data := await reader.read(262144):
                self.bytes += len(data)
                waiting.append((loop.time() + self.delay, data))
                there.set()
            waiting.append((loop.time() + self.delay, None))
            there.set()
            await sender
        finally:
            sender.cancel()

    def close_all(self):
        for writer in list(self.writers):
            writer.transport.abort()

    def set_mode(self, mode):
        self.mode = mode
        if mode == "silence":
            self.carrying.clear()
        else:
            self.carrying.set()
        if mode == "cut":
            self.blocked += len(self.writers) // 2
            self.close_all()


class Links:
    def __init__(self, links):
        self.links = {link.name: link for link in links}

    def obey(self, order):
        chosen = [self.links[name] for name in order.get("links", self.links)]
        what = order["do"]
        for link in chosen:
            if what in ("cut", "silence"):
                link.set_mode(what)
            elif what == "heal":
                link.set_mode("open")
            elif what == "delay":
                link.delay = order["ms"] / 1000
                link.close_all()  # what is open was begun with the old delay
            elif what == "rate":
                link.rate = order["bytes"]
                link.close_all()
            elif what != "state":
                raise ValueError(f"unknown order {what!r}")
        return {name: {"mode": link.mode, "ms": link.delay * 1000, "open": len(link.writers) // 2, "bytes": link.bytes,
                       "blocked": link.blocked}
                for name, link in self.links.items()}

    async def control(self, reader, writer):
        while line := await reader.readline():
            try:
                answer = self.obey(json.loads(line))
            except (ValueError, KeyError) as error:
                answer = {"error": str(error)}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()


async def run(arguments):
    links = []
    for text in arguments.link:
        name, port, target = text.split("=")
        links.append(Link(name, int(port), target))
        await links[-1].serve(arguments.listen)
    control = Links(links).control
    if arguments.control.startswith(":"):
        server = await asyncio.start_server(control, arguments.listen, int(arguments.control[1:]))
    else:
        server = await asyncio.start_unix_server(control, arguments.control)
    await server.serve_forever()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--control", required=True)
    parser.add_argument("link", nargs="+")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

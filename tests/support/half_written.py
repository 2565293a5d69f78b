"""A file while somebody is writing it."""
import threading


class Writer(threading.Thread):
    """Somebody whose main.cf is not whole yet, and who stops now and then: while it changes each
    second, Postfix's programs wait before they read it."""

    def __init__(self, path, text):
        super().__init__(daemon=True)
        self.path, self.over = path, threading.Event()
        path.write_text(text)
        self.start()

    def run(self):
        while not self.over.wait(2.5):
            with self.path.open("a", encoding="utf-8") as main:
                main.write("# more\n")

    def end(self):
        self.over.set()
        self.join()

"""What is shown to the admin, and asked, before anything is done; as text, or one JSON document."""
import json
import sys

from host import Trouble, plain


agreed_to = False  # and being done: it is done to its end, also when nobody reads any more what is said of it


class Document:
    """What `-j` prints in the place of text: docs/json.md."""

    def __init__(self):
        self.begin(False)

    def begin(self, chosen):
        self.chosen, self.facts, self.messages, self.changes = chosen, {}, [], []

    def add(self, **facts):
        self.facts.update(facts)

    def print(self, verb):
        made = {"schema": f"{verb}/1", **self.facts, "changes": self.changes,
                "messages": self.messages}
        print(json.dumps(made), flush=True)

    @staticmethod
    def complain(text, file=None):
        made = {"schema": "error/1", "level": "error", "message": text}
        print(json.dumps(made), file=file or sys.stderr)


document = Document()


def say(text=""):
    """Lines; what is in them of others plays no tricks with the terminal."""
    if document.chosen:
        document.messages += [plain(line.expandtabs(), 10000).strip()
                              for line in text.split("\n") if line.strip()]
        return
    try:
        print("\n".join(plain(line.expandtabs(), 10000) for line in text.split("\n")), flush=True)
    except BrokenPipeError:
        if not agreed_to:
            raise


def show_changes(texts):
    document.changes = list(texts)
    for text in texts if not document.chosen else ():
        say(text if text.startswith("---") else f"* {text}")


# ---- asking ----

def agreed(options, texts):
    """Shows all that would change. Whether it may be done."""
    show_changes(texts)
    say()
    if options.dry_run:
        say(f"{len(texts)} changes; nothing was done (--dry-run)")
        return False
    return confirmed(options, f"Make these {len(texts)} changes? [y/N] ")


def change_host(journal, options, build, do):
    """Shows build()'s plan, asks, and does it, under one lock from the last look at the host to the last write.

    Nobody is asked under it. So the plan is made again when the lock is held: what somebody changed while the question waited is shown, and asked about.
    Whether do(plan) was called; None when there is nothing to do.
    """
    shown = wanted(build)
    if not shown:
        say("nothing to do: this host is what it should be")
        return None
    while agreed(options, shown):
        with journal.lock(first=True):
            plan = build()
            texts = wanted(lambda: plan)
            if texts == shown or options.yes:
                do(plan)
                return True
        shown = texts
        say("\nthis host was changed while the question waited; what would be done now:\n")
    return False


def wanted(build):
    """What a plan would do, as text; Trouble where something is in its way."""
    plan = build()
    if refused := plan.refused():
        raise Trouble("\n".join(refused))
    return plan.texts()


def confirmed(options, question):
    global agreed_to
    agreed_to = is_confirmed(options, question)
    return agreed_to


def is_confirmed(options, question):
    if options.yes:
        return True
    if document.chosen or not sys.stdin.isatty():
        raise Trouble("nobody is there to be asked: run it in a terminal, or with --yes; --dry-run only shows")
    if input(question).strip().lower() not in ("y", "yes"):
        say("nothing was done")
        return False
    return True


def common(parser):
    parser.add_argument("--dry-run", action="store_true", help="show what would be changed, and change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")

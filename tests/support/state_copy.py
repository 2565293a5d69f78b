"""A user's state beside a worker that has it open, and locked."""


def copy_state(state, into):
    """The database and its log at one moment, though a worker writes them: not one that was moved
    into the other meanwhile. Nothing where there is none."""
    for _ in range(1000):
        try:
            before, log = (state / "state.db").read_bytes(), (state / "state.db-wal").read_bytes()
        except FileNotFoundError:
            log = b""
            if not (state / "state.db").exists():
                return
            before = (state / "state.db").read_bytes()
        header = log[:32]
        again = state / "state.db-wal"
        try:
            same = again.read_bytes()[:32] == header
        except FileNotFoundError:
            same = not log
        if same and (state / "state.db").read_bytes() == before:
            (into / "state.db").write_bytes(before)
            (into / "state.db-wal").write_bytes(log)
            return
    raise AssertionError(f"{state} never stands still")

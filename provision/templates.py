"""The example files of the documentation: what the guides explain is what is put to use."""
import pathlib

from host import Trouble

HERE = pathlib.Path(__file__).resolve().parent


def read(name):
    for folder in (HERE / "templates", HERE.parent / "packaging" / "examples"):
        if (folder / name).exists():
            return (folder / name).read_text()
    raise Trouble(f"{HERE}/templates/{name} is missing: install dovelane again")

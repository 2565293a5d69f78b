"""The schemas of docs/json, by which what `dovelane -j` prints is judged."""

import copy
import json
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "json"


def closed(schema):
    """The schema, in which every member that it does not name is a fault."""
    made = copy.deepcopy(schema)

    def close(part):
        if isinstance(part, dict):
            if "properties" in part:
                part.setdefault("additionalProperties", False)
            for each in part.values():
                close(each)
        elif isinstance(part, list):
            for each in part:
                close(each)

    close(made)
    return made


def names():
    """mailq/1 and the like, of all files."""
    return {
        path.name.removesuffix(".schema.json").replace("-1", "/1") for path in FOLDER.glob("*.json")
    }


def judged(text):
    """The object in a text, which is as its schema has it."""
    made = json.loads(text)
    name = made["schema"].replace("/", "-")
    path = FOLDER / f"{name}.schema.json"
    assert path.exists(), f"{made['schema']} has no schema in {FOLDER}"
    schema = closed(json.loads(path.read_text()))
    validator = jsonschema.Draft7Validator
    validator.check_schema(schema)
    faults = [
        f"{'/'.join(map(str, each.absolute_path))}: {each.message}"
        for each in validator(schema).iter_errors(made)
    ]
    assert not faults, (faults, text)
    return made


def errors(text):
    """The messages on stderr, each of which is an object on a line."""
    made = [judged(line) for line in text.splitlines()]
    assert all(each["schema"] == "error/1" for each in made), text
    return [each["message"] for each in made]

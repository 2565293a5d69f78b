"""Two sites of each mix of storages, and three."""
import pytest
from worker_sites import MIXES, make_world


@pytest.fixture(params=MIXES)
def world(request, tmp_path_factory):
    made = make_world(tmp_path_factory, request.param.split(","))
    yield made
    told = "".join(f"--- site {s.number}\n{s.log.read_text()[-4000:]}" for s in made.sites.values())
    made.stop()
    print(told)


@pytest.fixture
def three(tmp_path_factory):
    made = make_world(tmp_path_factory, ["sdbox", "maildir", "mdbox"])
    yield made
    made.stop()

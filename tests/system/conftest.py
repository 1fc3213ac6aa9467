from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer
from tests.system.terminals import with_word


@pytest.fixture
def server(home: Path) -> Iterator[LiveServer]:
    with LiveServer(home, "--gpus=4") as live:
        yield live
    assert live.leftovers() == []


@pytest.fixture
def word(request: pytest.FixtureRequest) -> Iterator[str]:
    """A word that only the processes of one test have in their command lines: seconds of sleep(1)."""
    word = f"{600 + abs(hash(request.node.name)) % 10**6}"
    yield word
    assert with_word(word) == []

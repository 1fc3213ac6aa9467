from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer


@pytest.fixture
def server(home: Path) -> Iterator[LiveServer]:
    with LiveServer(home, "--gpus=4") as live:
        yield live
    assert live.leftovers() == []

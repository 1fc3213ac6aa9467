from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer


@pytest.fixture
def server(home: Path) -> Iterator[LiveServer]:
    live = LiveServer(home, "--gpus=4")
    live.start()
    yield live
    live.stop()
    assert live.leftovers() == []

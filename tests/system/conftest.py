from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server and the clients of this test meet."""
    place = tmp_path / "home"
    monkeypatch.setenv("ULLAGE_HOME", str(place))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    return place


@pytest.fixture
def server(home: Path) -> Iterator[LiveServer]:
    live = LiveServer(home, "--gpus=4")
    live.start()
    yield live
    live.stop()
    assert live.leftovers() == []

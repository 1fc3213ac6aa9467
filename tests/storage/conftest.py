from pathlib import Path

import pytest

from tests.storage.flips import build


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store that was killed."""
    return build(tmp_path_factory.mktemp("left"))

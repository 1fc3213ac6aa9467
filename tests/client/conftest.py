"""A fake server that the environment names, and no other."""

import pytest

from tests.fake_api import TOKEN, FakeApi


@pytest.fixture
def fake(monkeypatch, tmp_path):
    fake = FakeApi()
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ULLAGE_ENDPOINT", fake.url)
    monkeypatch.setenv("ULLAGE_TOKEN", TOKEN)
    yield fake
    fake.close()

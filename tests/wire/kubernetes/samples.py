"""Documents of a real cluster, where they are next to the checkout; other tests cover the same forms."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[4] / "shared/reference/k8s-samples"
SAMPLES = Path(os.environ.get("ULLAGE_KUBERNETES_SAMPLES", _BESIDE))


def sample(name):
    path = SAMPLES / f"{name}.json"
    if not path.exists():
        pytest.skip("no samples beside the checkout")
    return path.read_bytes()

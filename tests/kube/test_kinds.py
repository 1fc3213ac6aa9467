"""Objects as the client keeps them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ullage.kube.client.kinds import PODS

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3) | st.just("managedFields"), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["generateName", "managedFields", "ownerReferences"]), _JSON), _JSON)
def test_the_record_of_writers_is_not_kept_and_everything_else_is(metadata, other):
    pod = {"other": other, "metadata": {"name": "p", **metadata}, "spec": {"nodeName": "n"}}
    kept = PODS.read(json.dumps(pod).encode()).document
    left = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    assert kept == {**pod, "metadata": left}
    assert list(kept) == list(pod)

"""Malformed documents: known keys with any values."""

from hypothesis import strategies as st

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["", "0", "1", "-1", "63", "64", "0-3,8", "0-99999999999", "4Gi", "500m", "x", "static", "node-0"]
    )
)


def anything(*keys):
    """Any value, whose mappings have some of these keys."""
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*keys, "", "0", 7]), inner),
        max_leaves=8,
    )


def shaped(template, keys):
    """A document of the shape of `template`, of which any part may be anything else."""
    other = anything(*keys)
    if isinstance(template, dict):
        return other | st.fixed_dictionaries({}, optional={key: shaped(one, keys) for key, one in template.items()})
    if isinstance(template, list):
        return other | st.lists(shaped(template[0], keys), max_size=3)
    return other | st.just(template)

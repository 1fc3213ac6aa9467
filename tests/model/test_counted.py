"""Numbers and their nouns agree."""

import pytest

from ullage.model.counted import counted


@pytest.mark.parametrize(
    ("number", "noun", "several", "text"),
    [
        (0, "card", "", "0 cards"),
        (1, "card", "", "1 card"),
        (2, "card", "", "2 cards"),
        (12_345, "node", "", "12,345 nodes"),
        (1, "slice is", "slices are", "1 slice is"),
        (3, "slice is", "slices are", "3 slices are"),
    ],
)
def test_a_number_and_its_noun_agree(number, noun, several, text):
    assert counted(number, noun, several) == text

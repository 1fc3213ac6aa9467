"""No two columns of one kind of row are the same."""

from ullage.core.kernel import board, columns

NEED = ("SCOPE", "CONTAINER", "STAGE", "NEEDED", "AMOUNT", "LEVEL")
FIRST_NEED = (*NEED, "CLOSENESS", "OWN_PICK", "WIDEST", "ALONE", "SEATED")
SHARE = ("COMPUTE", "VRAM", "MOST", "MIXED", "EXCLUDED", "KEPT_APART", "PENDING", "USERS_MOST")


def test_columns_of_a_shape_are_apart_and_within_it():
    for names, module in ((FIRST_NEED, board), (SHARE, columns)):
        at = [getattr(module, name) for name in names]
        assert len(set(at)) == len(at)
        assert max(at) < columns.SHAPE_COLUMNS

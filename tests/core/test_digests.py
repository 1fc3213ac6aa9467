"""Compiled code is cached by a digest of the sources that it depends on."""

import importlib
import sys
from pathlib import Path

import pytest

import ullage
from ullage.core.kernel.compiling import digests
from ullage.core.kernel.compiling.digests import digest_of, imported, is_in_file, plainly_imported, sources_of

FILES = {
    "ground.py": "STEP = 1\n\ndef step(a):\n    return a + STEP\n",
    "above.py": "from pieces.ground import step\n\ndef twice(a):\n    return step(step(a))\n",
    "other.py": "def half(a):\n    return a / 2\n",
    "around.py": "def around(inner, count):\n    def outer(a):\n        return inner(a) * count\n    return outer\n",
    "broken.py": "raise RuntimeError('nobody may run this')\n",
    "names_broken.py": "def f():\n    from pieces.broken import g\n    return g\n",
    "__init__.py": "",
}


@pytest.fixture
def pieces(tmp_path, monkeypatch):
    folder = tmp_path / "pieces"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield folder
    forget()


def forget():
    """Read sources again, as another process would."""
    for cached in (digests.sources_of, digests._content, digests._imports, digests._source, digests._spec):
        cached.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pieces"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def digest(folder, name):
    forget()
    return sources_of(folder / name)


def test_a_changed_file_changes_the_digest_of_those_that_import_it_and_of_no_other(pieces):
    before = {name: digest(pieces, name) for name in FILES}
    (pieces / "ground.py").write_text(FILES["ground.py"].replace("STEP = 1", "STEP = 2"))
    after = {name: digest(pieces, name) for name in FILES}
    assert {name for name in FILES if before[name] != after[name]} == {"ground.py", "above.py"}


def test_a_copy_has_the_same_digest(pieces, tmp_path, monkeypatch):
    before = digest(pieces, "above.py")
    (tmp_path / "copy").mkdir()
    pieces.rename(tmp_path / "copy" / "pieces")
    monkeypatch.syspath_prepend(str(tmp_path / "copy"))
    assert digest(tmp_path / "copy" / "pieces", "above.py") == before


def test_no_source_is_run_to_find_what_it_imports(pieces):
    before = digest(pieces, "names_broken.py")
    (pieces / "broken.py").write_text("raise RuntimeError('nor this')\n")
    assert digest(pieces, "names_broken.py") != before


def test_what_a_function_closes_over_counts_with_its_sources(pieces):
    def around(count=3):
        forget()
        above, around = (importlib.import_module(f"pieces.{name}") for name in ("above", "around"))
        return digest_of(around.around(above.twice, count))

    before = around()
    assert around() == before
    assert around(4) != before
    (pieces / "other.py").write_text("def half(a):\n    return a / 3\n")
    assert around() == before
    (pieces / "ground.py").write_text(FILES["ground.py"].replace("STEP", "STRIDE"))
    assert around() != before


PLAIN = {
    "import a\nimport b.c as d  # why\n": {"a", "b.c"},
    "from a import b, c as d\n\n\ndef f():\n    from e.f import g\n": {"a", "a.b", "a.c", "e.f", "e.f.g"},
    "from a import (\n    b,  # that one\n    c as d,\n)\n": {"a", "a.b", "a.c"},
    "x = 1\n": set(),
}
ODD = (
    "import a, b\n",
    "import a; import b\n",
    "x = 1; import b\n",
    "if 1: import b\n",
    "from a import \\\n    b\n",
    "from a \\\n    import b\n",
    "from . import b\n",
    "from a import *\n",
    "from a import (  # (b)\n    c)\n",
    '"""What others import from here."""\n',
)


@pytest.mark.parametrize(("text", "names"), PLAIN.items())
def test_plain_imports_are_found_without_parsing(text, names):
    assert plainly_imported(text) == names == imported(text)


@pytest.mark.parametrize("text", ODD)
def test_a_source_with_any_other_import_is_parsed(text):
    assert plainly_imported(text) is None
    imported(text)


def test_without_parsing_no_import_is_missed_in_any_source():
    """An example in a docstring may look like one more."""
    texts = [path.read_text() for path in Path(ullage.__file__).parent.rglob("*.py")]
    plain = [(text, names) for text in texts if (names := plainly_imported(text)) is not None]
    assert len(plain) > 0.8 * len(texts)
    assert all(names >= imported(text) for text, names in plain)


def test_a_value_without_a_digest_is_refused_by_name():
    with pytest.raises(TypeError, match=r"\[1, 2\] has no digest"):
        digest_of([1, 2])


def test_a_function_that_comes_from_no_file_counts_by_its_code():
    made = {}
    exec("def one(a):\n    return a\n\ndef two(a):\n    return a + 1\n", made)
    assert digest_of(made["one"]) != digest_of(made["two"])
    assert not is_in_file(made["one"])
    assert is_in_file(digest_of)

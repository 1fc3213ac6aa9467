"""Notebooks: a real one with a real kernel on a real server, and what each body looks like."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from shutil import which

import pytest

import ullage
from tests.docs.test_examples import blocks
from tests.system.live_server import LiveServer
from ullage.client.rows import Rows
from ullage.wire.amount import AmountBody
from ullage.wire.explanation import Explanation, RejectionBody
from ullage.wire.html import MOST_ROWS, html_of, html_rows
from ullage.wire.node import NodeBody

needs_kernel = pytest.mark.skipif(
    not (find_spec("nbclient") and find_spec("ipykernel")), reason="nbclient or ipykernel is not installed"
)
RUN = """
import asyncio, json, sys
import nbclient, nbformat

cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
"""


def run_notebook(cells, where):
    """Return the outputs of each cell, as a saved notebook has them."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        input=json.dumps(cells),
        cwd=where,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shown(outputs, kind="text/html"):
    return "".join("".join(each["data"][kind]) for each in outputs if kind in each.get("data", {}))


@needs_kernel
def test_the_notebook_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ULLAGE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    with LiveServer(tmp_path / "home", "--gpus=4"):
        cells = [text.rstrip() for text in blocks("docs/how-to/use-in-a-notebook.md", "python")]
        outputs = run_notebook([*cells, "session"], tmp_path)
    client, area, progress, why, nodes, looped, left, gone = outputs
    assert "4, 4 of them free" in shown(client)
    assert shown(area, "text/plain").startswith("12.566")
    assert 'value="200" max="200"' in shown(progress)
    assert "200 of 200 in " in shown(progress)
    assert shown(progress, "text/plain").endswith("8314853")
    assert "<p><b>" in shown(why)
    assert "allocatable" in shown(nodes)
    assert shown(looped, "text/plain").startswith("[0.0, 3.14")
    assert shown(left) == "<p>none</p>"
    assert "session notebook: " in shown(gone)
    assert not [each for cell in outputs for each in cell if each.get("name") == "stderr"]


@needs_kernel
def test_the_bar_of_a_failed_map_shows_how_far_it_came(fake, tmp_path):
    failing = """
try:
    list(session.map(lambda n: 1 / n, [1, 2, 0, 3], progress=True))
except ZeroDivisionError as error:
    print(error)
"""
    opening = "import ullage; session = ullage.connect().session()"
    cells = [opening, failing, "list(session.map(abs, [], progress=True))"]
    _, failed, empty = run_notebook(cells, tmp_path)
    assert 'value="2" max="4"' in shown(failed)
    assert 'value="0" max="1"' in shown(empty)


@pytest.mark.skipif(not which("script"), reason="script, which makes a terminal, is not installed")
def test_a_terminal_gets_a_bar_on_its_stderr(fake, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import ullage\n"
        "with ullage.connect() as client, client.session() as session:\n"
        "    print(sum(session.map(abs, range(50), progress=True)))\n"
    )
    script = f"{sys.executable} {program} >{tmp_path / 'out'}"
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "100%" in done.stdout
    assert (tmp_path / "out").read_text() == "1225\n"


def test_a_client_and_a_session_are_tables(fake):
    with ullage.connect() as client, client.session("mine", priority=1) as session:
        fake.hold = True
        futures = [session.submit(abs, n) for n in range(4)]
        session._exchange._outstanding.task_of(futures[-1])
        assert "open sessions" in client._repr_html_()
        text = session._repr_html_()
        assert "mine (pending)" in text
        assert 'value="0" max="4"' in text
        fake.release()
        assert [future.result() for future in futures] == [0, 1, 2, 3]
        assert "4 of 4 tasks have ended" in session._repr_html_()


def test_a_server_that_is_gone_is_said_within_seconds(fake, monkeypatch):
    monkeypatch.setattr("ullage.client.notebook._ANSWER_S", 0.05)
    client = ullage.connect()
    session = client.session("mine")
    fake.close()
    assert client._repr_html_().startswith("<p>client: ")
    assert session._repr_html_().startswith("<p>session mine: ")
    client.close()


def explanation(**changes):
    known = {
        "session": "s",
        "code": "no-room",
        "cure": "capacity",
        "summary": "0 of 4 gpus are <free>",
        "want": 1,
        "held": 0,
        "deserved": 1,
        "share": 0.25,
        "position": None,
        "rejections": [
            RejectionBody(node="n1", gpu=None, code="full", cure="capacity", needed=1, had=0, text="no & gpu")
        ],
        "holders": [],
        "suggestions": ["ask for gpu=0", "wait for s2"],
    }
    return Explanation(**known | changes)


def test_an_explanation_begins_with_its_summary_and_has_its_rejections_and_suggestions():
    text = explanation()._repr_html_()
    assert text.startswith("<p><b>0 of 4 gpus are &lt;free&gt;</b></p>")
    assert "<li>ask for gpu=0</li>" in text
    assert "no &amp; gpu" in text
    assert "position" not in text
    assert "gpu</th>" not in text  # empty in all rows


def node(name, memory=1 << 34):
    amount = AmountBody(cpu_milli=1500, memory_bytes=memory, gpu_milli=2000)
    return NodeBody(
        name=name,
        state="ready",
        cordoned=False,
        capacity=amount,
        allocatable=amount,
        held=AmountBody(cpu_milli=0, memory_bytes=0, gpu_milli=0),
        executors=0,
        max_executors=9000,
        gpu_source=None,
        note="",
        labels={"zone": "<a>"},
        arch=None,
        os=None,
        observed_at=0.0,
    )


def test_amounts_have_units_and_nothing_is_markup():
    text = html_of(node("<b>"))
    assert "&lt;b&gt;" in text
    assert "cpu=1.5, memory=16Gi, gpu=2" in text
    assert "zone=&lt;a&gt;" in text
    assert re.search(r"observed at</th><td[^>]*>1970-01-01|1969-12-31", text)
    assert ">9,000<" in text


def test_a_long_list_shows_its_first_rows_and_how_many_more():
    rows = Rows(node(f"n{number}") for number in range(MOST_ROWS + 7))
    text = rows._repr_html_()
    assert text.count("<tr>") == MOST_ROWS + 1
    assert text.endswith("<p>and 7 more</p>")
    assert html_rows([]) == "<p>none</p>"

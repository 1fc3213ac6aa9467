import pytest

from ullage.cli.main import main


@pytest.fixture
def ran(http, capsys):
    """Runs a command line and gives its exit code, what it printed, and what it complained of."""

    def run(line):
        code = main(line.split())
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run

"""`ullage kube` whose terms are short, so that the next one need not wait long for a leader that died."""

import sys
from pathlib import Path

from ullage.bootstrap.kube import serve_kube
from ullage.kube.client.lease import Terms

if __name__ == "__main__":
    sys.exit(serve_kube(Path(sys.argv[1].removeprefix("--config=")), {}, terms=Terms(3, 0.3, 2.0)))

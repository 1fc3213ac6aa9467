"""`ullage kube` whose terms are short: the next one need not wait long for a leader that stands still.

They are not so short that a leader on a busy machine misses one.
"""

import sys
from pathlib import Path

from ullage.bootstrap.kube import serve_kube
from ullage.kube.client.lease import LeaseTerms

if __name__ == "__main__":
    sys.exit(serve_kube(Path(sys.argv[1].removeprefix("--config=")), {}, terms=LeaseTerms(8, 0.5, 6.0)))

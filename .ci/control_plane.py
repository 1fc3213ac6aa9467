"""Build the control plane of the tests: package registries lack most of it, the Go module proxy has its sources.

    make control-plane
    make test ARGS=tests/kube

It needs Go and some minutes of all cores, once. An etcd on PATH is linked into the directory, else it is built, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KUBERNETES = "1.36.3"
ETCD = "3.7.3"

_ETCD_MAIN = """
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
"""
_KUBERNETES_MAIN = """
package main

import (
	"os"

	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/{name}/app"
)

func main() {{
	os.Exit(cli.Run(app.{command}()))
}}
"""
_COMMANDS = {"kube-apiserver": "NewAPIServerCommand", "kube-scheduler": "NewSchedulerCommand"}


def main(directory: Path) -> None:
    """Build what the directory lacks."""
    if shutil.which("go") is None:
        sys.exit("Go is needed, 1.26 or newer: https://go.dev/dl")
    directory.mkdir(parents=True, exist_ok=True)
    etcd = shutil.which("etcd")
    if etcd is not None and not (directory / "etcd").exists():
        (directory / "etcd").symlink_to(etcd)
    programs = {name: _KUBERNETES_MAIN.format(name=name, command=command) for name, command in _COMMANDS.items()}
    for name, program in {"etcd": _ETCD_MAIN, **programs}.items():
        if not (directory / name).exists():
            print(f"building {name}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                _build(name, program, Path(folder), directory.absolute() / name)


def _build(name: str, program: str, folder: Path, place: Path) -> None:
    """Build a program in a module of its own."""
    (folder / "go.mod").write_text("module controlplane\n")
    (folder / "main.go").write_text(program)
    flags = "-s -w"
    if name == "etcd":
        _go(folder, "get", f"go.etcd.io/etcd/server/v3@v{ETCD}")
    else:
        _require_kubernetes(folder)
        flags = " ".join([flags, *_version_flags()])
    _go(folder, "mod", "tidy")
    _go(folder, "build", "-ldflags", flags, "-o", str(place), ".")


def _require_kubernetes(folder: Path) -> None:
    """Require Kubernetes; its own libraries, which it replaces by folders, are released as v0.MINOR.PATCH."""
    module = json.loads(_go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    found = json.loads(_go(folder, "mod", "edit", "-json", module["GoMod"]))
    own = sorted(each["Path"] for each in found["Require"] if each["Version"] == "v0.0.0")
    version = f"v0.{KUBERNETES.partition('.')[2]}"
    _go(folder, "mod", "edit", f"-go={found['Go']}", f"-require=k8s.io/kubernetes@v{KUBERNETES}")
    _go(folder, "mod", "edit", *(f"-replace={path}={path}@{version}" for path in own))


def _version_flags() -> list[str]:
    major, minor, _ = KUBERNETES.split(".")
    facts = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return [f"-X k8s.io/component-base/version.{name}={fact}" for name, fact in facts.items()]


def _go(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - the commands above
        ["go", *arguments],  # noqa: S607 - the Go of the caller
        cwd=folder,
        env=os.environ | {"GOFLAGS": "-mod=mod"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"go {' '.join(arguments[:2])} failed")
    return done.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the directory
        sys.exit(f"usage: {sys.argv[0]} DIRECTORY")
    main(Path(sys.argv[1]))

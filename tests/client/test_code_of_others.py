"""Programs written for other libraries, as their own pages show them: only the name of the executor is another."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.live_server import LiveServer

# https://docs.python.org/3/library/concurrent.futures.html#processpoolexecutor-example
PRIMES = """
import concurrent.futures
import math

PRIMES = [
    112272535095293,
    112582705942171,
    112272535095293,
    115280095190773,
    115797848077099,
    1099726899285419]

def is_prime(n):
    if n < 2:
        return False
    if n == 2:
        return True
    if n % 2 == 0:
        return False

    sqrt_n = int(math.floor(math.sqrt(n)))
    for i in range(3, sqrt_n + 1, 2):
        if n % i == 0:
            return False
    return True

def main():
    with concurrent.futures.ProcessPoolExecutor() as executor:
        for number, prime in zip(PRIMES, executor.map(is_prime, PRIMES)):
            print('%d is prime: %s' % (number, prime))

if __name__ == '__main__':
    main()
"""
PRIMES_SHOWN = """\
112272535095293 is prime: True
112582705942171 is prime: True
112272535095293 is prime: True
115280095190773 is prime: True
115797848077099 is prime: True
1099726899285419 is prime: False
"""

# https://docs.python.org/3/library/asyncio-eventloop.html#asyncio.loop.run_in_executor, its case 3
CPU_BOUND = """
import asyncio
import concurrent.futures

def cpu_bound():
    # CPU-bound operations will block the event loop:
    # in general it is preferable to run them in a
    # process pool.
    return sum(i * i for i in range(10 ** 6))

async def main():
    loop = asyncio.get_running_loop()

    # 3. Run in a custom process pool:
    with concurrent.futures.ProcessPoolExecutor() as pool:
        result = await loop.run_in_executor(
            pool, cpu_bound)
        print('custom process pool', result)

if __name__ == '__main__':
    asyncio.run(main())
"""
CPU_BOUND_SHOWN = "custom process pool 333332833333500000\n"

# https://joblib.readthedocs.io/en/stable/parallel.html
JOBLIB = """
import ullage
ullage.register_joblib()

from math import sqrt
from joblib import Parallel, delayed, parallel_backend, parallel_config

def generator():
    yield from Parallel(n_jobs=2, return_as="generator")(delayed(sqrt)(i ** 2) for i in range(5))

with parallel_backend("ullage", resreq="cpu=0.25,mem=64m"):
    print(Parallel(n_jobs=2)(delayed(sqrt)(i ** 2) for i in range(10)))
    print(list(generator()))
with parallel_config(backend="ullage", resreq="cpu=0.25,mem=64m"):
    with Parallel() as parallel:
        print(parallel.n_jobs)
        accumulator = 0.
        n_iter = 0
        while accumulator < 1000:
            results = parallel(delayed(sqrt)(accumulator + i ** 2) for i in range(5))
            accumulator += sum(results)  # synchronization barrier
            n_iter += 1
    print(round(accumulator), n_iter)
    try:
        Parallel(n_jobs=2)(delayed(divmod)(1, i) for i in (1, 0, 2))
    except ZeroDivisionError as error:
        print(error)
"""
JOBLIB_SHOWN = re.compile(
    r"\[0\.0, 1\.0, 2\.0, 3\.0, 4\.0, 5\.0, 6\.0, 7\.0, 8\.0, 9\.0\]\n"
    r"\[0\.0, 1\.0, 2\.0, 3\.0, 4\.0\]\n-1\n\d+ \d+\n.*modulo.*\n"
)

# https://docs.dask.org/en/stable/delayed.html, with the executor of https://docs.dask.org/en/stable/scheduling.html
DASK = """
import dask
from concurrent.futures import ProcessPoolExecutor

def inc(x):
    return x + 1

def double(x):
    return x * 2

def add(x, y):
    return x + y

data = [1, 2, 3, 4, 5]

output = []
for x in data:
    a = dask.delayed(inc)(x)
    b = dask.delayed(double)(x)
    c = dask.delayed(add)(a, b)
    output.append(c)

total = dask.delayed(sum)(output)

with ProcessPoolExecutor(4) as pool:
    print(total.compute(scheduler=pool))
    print(dask.compute(total, *output, scheduler=pool))
    with dask.config.set(scheduler=pool):
        print(total.compute())
"""
DASK_SHOWN = "50\n(50, 4, 7, 10, 13, 16)\n50\n"


def with_ours(program: str) -> str:
    """Return the program with another import, and another name of the executor."""
    ours = re.sub(r"^(from concurrent.futures import ProcessPoolExecutor|import concurrent.futures)$", "import ullage",
                  program, flags=re.MULTILINE)  # fmt: skip
    ours = re.sub(r"(concurrent\.futures\.)?ProcessPoolExecutor\(", "ullage.Executor(", ours)
    return re.sub(r"ullage\.Executor\((\d*)\)", r'ullage.Executor(\1, resreq="cpu=0.25,mem=64m")', ours).replace(
        "Executor(, ", "Executor("
    )


def run(program: str, server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ULLAGE_HOME", str(server.home))
    monkeypatch.delenv("ULLAGE_ENDPOINT", raising=False)
    file = tmp_path / "example.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_primes_of_the_standard_library(server, tmp_path, monkeypatch):
    assert run(with_ours(PRIMES), server, tmp_path, monkeypatch) == PRIMES_SHOWN


def test_run_in_executor_of_asyncio(server, tmp_path, monkeypatch):
    assert run(with_ours(CPU_BOUND), server, tmp_path, monkeypatch) == CPU_BOUND_SHOWN


def test_the_examples_of_joblib(server, tmp_path, monkeypatch):
    pytest.importorskip("joblib")
    assert JOBLIB_SHOWN.fullmatch(run(JOBLIB, server, tmp_path, monkeypatch))


def test_the_delayed_example_of_dask(server, tmp_path, monkeypatch):
    pytest.importorskip("dask")
    assert run(with_ours(DASK), server, tmp_path, monkeypatch) == DASK_SHOWN


def test_an_executor_that_is_left_open_or_dropped_ends_after_its_calls(server, tmp_path, monkeypatch):
    program = """
import time
import ullage

def work(n):
    time.sleep(0.1)
    return n

def use_one():
    return [ullage.Executor(resreq="cpu=0.25,mem=64m").submit(work, n) for n in range(2)]

futures = use_one()
pool = ullage.Executor(resreq="cpu=0.25,mem=64m")
last = pool.submit(work, 2)
last.add_done_callback(lambda future: print("last", future.result()))
print([future.result() for future in futures])
"""
    shown = run(program, server, tmp_path, monkeypatch)  # by two threads
    assert "[0, 1]" in shown
    assert "last 2" in shown
    with server.client() as client:
        assert client.get("/v1/sessions", params={"state": "open"}).json() == []

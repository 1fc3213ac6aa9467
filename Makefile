# On a fresh machine: `make run` shows Ullage at work, `make test` runs everything. Both need python3 (3.11+) only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A test that has to wait for the compiler waits longer than what it tests may.
WARM := $(BIN)/python -c "import asyncio; from ullage.bootstrap.warm import warm; asyncio.run(warm())"

.PHONY: run test test-kernel search check bench format lock clean docs

run: $(READY)
	@$(BIN)/python -m ullage.cli.main demo $(ARGS)

test: $(READY)
	@$(WARM)
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 $(ARGS)

# What is compiled gives the same answers uncompiled, and reads no row that is not there.
KERNEL_TESTS := tests/core/test_placement.py tests/core/test_allocator_cases.py tests/core/test_allocator_oracle.py \
	tests/core/test_leftover_strategy.py tests/core/test_draft.py tests/core/test_filling.py tests/core/test_eviction.py \
	tests/core/test_consolidation.py tests/core/test_fragmentation.py tests/core/test_reclaim.py \
	tests/core/test_linked_cards.py tests/core/test_alignment.py tests/core/test_zone_spans.py \
	tests/core/test_zone_oracle.py tests/core/test_zone_routes.py tests/core/test_zone_pairs.py tests/core/test_zone_score.py

test-kernel: $(READY)
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n auto $(KERNEL_TESTS)
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/boundscheck $(BIN)/python -m pytest -q -n auto $(KERNEL_TESTS)

# The properties on other examples at each run.
search: $(READY)
	@$(WARM)
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 -m hypothesis --hypothesis-profile=search $(ARGS)

check: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache && $(BIN)/codespell

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(READY)
	@$(BIN)/python -m docs.tables

format: $(READY)
	@$(BIN)/ruff check --fix-only -q . && $(BIN)/ruff format .

# The lock names exact versions with hashes and no host; `make lock` renews it.
lock: $(READY)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--extra server --extra k8s --extra replay --extra gpu --extra dev -o requirements.lock pyproject.toml

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@echo "Setting up $(VENV) (once); the first start after that compiles what decides, for a few minutes"
	@$(PYTHON) -m venv $(VENV) || { echo "python3 cannot make virtual environments; on Debian or Ubuntu install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# On a fresh machine: `make run` shows Ullage at work, `make test` runs everything. Both need python3 (3.11+) only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What running needs, and with it what developing needs.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
# A test that has to wait for the compiler waits longer than what it tests may.
WARM := $(BIN)/python -m ullage.bootstrap.warm
# Processes of Python start in a third of the time where the byte code of modules is kept, whatever the caller's shell says.
export PYTHONDONTWRITEBYTECODE :=
# Where the control plane of the tests is built; one that the caller names goes before.
CONTROL_PLANE := $(CURDIR)/build/control-plane
ifneq ($(wildcard $(CONTROL_PLANE)/kube-apiserver),)
export KUBEBUILDER_ASSETS ?= $(CONTROL_PLANE)
endif

# A process takes tests of another one only at the end: until then the tests of a module share the servers that it starts.
SHARED := --maxprocesses 8 --dist worksteal

.PHONY: run warm test quick test-kernel search days request-days mutate check bench format lock control-plane clean docs site pictures

run: $(RUNS)
	@$(BIN)/python -m ullage.cli.main demo $(ARGS)

warm: $(READY)
	@$(WARM)

test: warm
	@$(BIN)/python -m pytest -n auto $(SHARED) $(ARGS)

# Without the compiler nothing waits for it: the core in about a minute, or the tests that ARGS names.
quick: $(READY)
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m "not long" --hypothesis-profile=quick $(if $(ARGS),$(ARGS),-n auto $(SHARED) tests/core tests/binding)

# What is compiled gives the same answers uncompiled, and reads no row that is not there: NumPy checks each index.
KERNEL_TESTS := tests/core/test_placement.py tests/core/test_allocator_cases.py tests/core/test_allocator_oracle.py \
	tests/core/test_leftover_strategy.py tests/core/test_draft.py tests/core/test_filling.py tests/core/test_eviction.py \
	tests/core/test_consolidation.py tests/core/test_fragmentation.py tests/core/test_reclaim.py \
	tests/core/test_linked_cards.py tests/core/test_alignment.py tests/core/test_zone_spans.py \
	tests/core/test_zone_oracle.py tests/core/test_zone_routes.py tests/core/test_zone_pairs.py tests/core/test_zone_score.py

test-kernel: $(READY)
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n auto $(SHARED) $(KERNEL_TESTS)

# The properties and random histories on other examples at each run, and more of them than `make test` tries.
search: warm
	@$(BIN)/python -m pytest -n auto $(SHARED) -m "hypothesis or seeds" --hypothesis-profile=search $(ARGS)

# Nobody is evicted in vain: whole days of the service on a virtual clock, after one another.
days: $(READY)
	@$(BIN)/python -m tests.service.days $(ARGS)

# The same of requests, with sessions on the same nodes.
request-days: $(READY)
	@$(BIN)/python -m tests.service.request_days $(ARGS)

# Faults put into what decides, one at a time: how many of them the tests notice. 200 take hours.
mutate: $(READY)
	@$(BIN)/python .ci/mutate.py $(ARGS)

check: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache && $(BIN)/codespell && $(BIN)/python .ci/shape.py && $(BIN)/python .ci/imports.py && $(BIN)/python -m docs.site

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(READY)
	@$(BIN)/python -m docs.tables

# The pictures of the pages in docs/images, by chromium and chromedriver.
pictures: $(READY)
	@$(BIN)/python -m tests.web.picture docs/images

# The documentation with search, in build/site. It fails for a link that leads nowhere.
site: $(READY)
	@$(BIN)/python -m docs.site

format: $(READY)
	@$(BIN)/ruff check --fix-only -q . && $(BIN)/ruff format .

# The locks name exact versions with hashes and no host; `make lock` renews them. The second has a part of the first.
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

lock: $(READY)
	@$(BIN)/python -m pip install -q uv
	@$(COMPILE) --extra server --extra k8s --extra replay --extra gpu --extra docs --extra dev -o requirements.lock pyproject.toml
	@cp requirements.lock requirements-run.lock
	@$(COMPILE) --extra server --extra gpu --group editable -o requirements-run.lock pyproject.toml

# Without it some tests of Kubernetes are skipped. It needs Go.
control-plane:
	@$(PYTHON) .ci/control_plane.py $(CONTROL_PLANE)

$(RUNS): requirements-run.lock pyproject.toml
	@$(PYTHON) .ci/environment.py $(VENV) requirements-run.lock
	@touch $@

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) .ci/environment.py $(VENV) requirements.lock
	@touch $(RUNS) $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

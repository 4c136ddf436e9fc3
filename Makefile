# `make up` starts a development cluster, `make test` runs all tests. Both need only Python 3.11+.
PYTHON ?= python3
FILE ?= deploy/examples/web.yaml
VENV := .venv
BIN := $(VENV)/bin
# some environments of CI set it; each of the processes that the tests start would compile all of kubeloop
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up test clients client-builds operator-faults bench faults soak hostile kill schemathesis mutants lint format lock image release docs clean

up: $(VENV)/installed
	$(BIN)/kubeloop up -f $(FILE) $(ARGS)

# whole files per worker, in order: tests of a file may share a cluster
# timeout: seconds per test with its fixtures, far longer than any takes; the signal interrupts event loops and waits
test: $(VENV)/installed-dev
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder --timeout 300 --timeout-method signal $(ARGS)

# programs with the client libraries of other languages; those whose toolchain or packages are missing are skipped with
# the reason, and those that are not built after BUILD_SECONDS. The builds need no .venv; OUTPUT: file for what is printed
CLIENTS ?=
BUILD_SECONDS ?= 900
OUTPUT ?=
clients: client-builds $(VENV)/installed-dev
	nice -n 5 $(BIN)/python tests/clients/run.py --built build/clients $(if $(OUTPUT),>>$(OUTPUT) 2>&1)

client-builds:
	@$(PYTHON) kubeloop/python_version.py
	nice -n 5 $(PYTHON) tests/clients/run.py --build build/clients --build-seconds $(BUILD_SECONDS) $(CLIENTS) $(if $(OUTPUT),>>$(OUTPUT) 2>&1)

# planted defects in an operator in Python and one in Go: each must be found, and none in the correct operator
REPETITIONS ?= 10
operator-faults: $(VENV)/installed-dev
	$(BIN)/python tests/operators/repeat.py --repetitions $(REPETITIONS) $(ARGS)

# CPU time of a fixed set of commands beside that of the last release, in about BENCH_SECONDS (benchmarks/README.md)
BENCH_SECONDS ?= 300
bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/regressions.py --seconds $(BENCH_SECONDS) $(ARGS)

# RUNS simulations with fresh seeds of faults, and their table (docs/reliability.md); REPLAY: what a failure prints
RUNS ?= 1000
faults: $(VENV)/installed-dev
	PYTHONPATH=tests $(BIN)/python -m support.faults --runs $(RUNS) $(if $(REPLAY),--replay '$(REPLAY)') $(ARGS)

# soak: for SOAK_SECONDS, a control plane with rollouts, failing nodes and dropped watches, beside an API server with
# random writes and 50 watchers (docs/reliability.md); kill: KILL_ROUNDS times SIGKILL under write load
SOAK_SECONDS ?= 3600
KILL_ROUNDS ?= 100
soak: $(VENV)/installed-dev
	KUBELOOP_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest -n 2 --dist loadfile -rP -k soak tests/e2e $(ARGS)

# malformed and hostile requests to the API server and the endpoint (docs/security.md)
REQUESTS ?= 100000
hostile: $(VENV)/installed-dev
	PYTHONPATH=tests $(BIN)/python -m support.hostile --requests $(REQUESTS) $(ARGS)

kill: $(VENV)/installed-dev
	KUBELOOP_KILL_ROUNDS=$(KILL_ROUNDS) $(BIN)/pytest -s tests/e2e/test_durable.py -k sigkill

# generated requests from the served OpenAPI document
SCHEMATHESIS_CASES ?= 10000
schemathesis: $(VENV)/installed-dev
	KUBELOOP_SCHEMATHESIS_CASES=$(SCHEMATHESIS_CASES) $(BIN)/pytest -s tests/e2e/test_openapi_cases.py

# small bugs put into the product one at a time: the tests must notice them
MUTANTS ?= 500
mutants: $(VENV)/installed-dev
	$(BIN)/python tests/support/development/mutants.py --runs $(MUTANTS) $(ARGS)

# scripts without .py, too: a name that changed breaks them unseen otherwise
BENCHMARKS = $(wildcard benchmarks/*.py) $(shell grep -lI '^\#!.*python' $(filter-out %.py,$(wildcard benchmarks/*)) 2>/dev/null)
lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	MYPYPATH=tests $(BIN)/mypy --scripts-are-modules $(BENCHMARKS)

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/make_reference.py

# the versions that `make` installs, with hashes, for all Pythons and platforms; ARGS=--upgrade takes newer ones
lock: $(VENV)/installed-dev
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile $(LOCK) $(ARGS) pyproject.toml --output-file requirements.txt
	$(BIN)/uv pip compile $(LOCK) $(ARGS) --extra dev --constraints requirements.txt pyproject.toml --output-file requirements-dev.txt
	$(BIN)/uv pip compile $(LOCK) $(ARGS) docs/requirements.in --output-file docs/requirements.txt
LOCK := --quiet --universal --python-version 3.11 --no-annotate --generate-hashes --custom-compile-command 'make lock'

# for another architecture: DOCKER='docker buildx' ARGS='--platform linux/amd64,linux/arm64 --push' IMAGE=...
DOCKER ?= docker
IMAGE ?= kubeloop:$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' kubeloop/__init__.py)
image:
	$(DOCKER) build --tag $(IMAGE) $(ARGS) .

# wheel, sdist, the plugin for krew and checksums in dist/, and a tag; refuses a dirty work tree and a changelog of another version
release: $(VENV)/installed-dev
	$(BIN)/python tests/support/development/release.py $(URL)

# the site in site/, with the reference of the code; fails at a dead link
docs: $(VENV)/installed-dev $(VENV)-docs/installed
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build  # --quiet would not fail at a dead link

$(VENV)-docs/installed: docs/requirements.txt
	@$(PYTHON) kubeloop/python_version.py
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/pip install --quiet --require-hashes --requirement docs/requirements.txt
	touch $@

# on all cores; pip uses one. Examples of invalid syntax in a package are not errors
COMPILE = $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true

$(VENV)/installed: requirements.txt pyproject.toml
	@$(PYTHON) kubeloop/python_version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	$(COMPILE)
	touch $@

$(VENV)/installed-dev: requirements-dev.txt pyproject.toml
	@$(PYTHON) kubeloop/python_version.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --requirement requirements-dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(COMPILE)
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) $(VENV)-docs site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

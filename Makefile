# kubeloop: `make up` shows it, `make test` checks it. Both need Python 3.11+ and nothing else.
PYTHON ?= python3
FILE ?= deploy/examples/web.yaml
VENV := .venv
BIN := $(VENV)/bin

.PHONY: up test lint format clean

up: $(VENV)/installed
	$(BIN)/kubeloop up -f $(FILE) $(ARGS)

test: $(VENV)/installed-dev
	$(BIN)/pytest -n 2 $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

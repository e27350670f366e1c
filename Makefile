# `make test` and `make demo` are all a fresh machine needs: both set up .venv first.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: test demo lint clean

# Tests start processes beside each other, and threads that spin while they wait would slow them all.
test: export OMP_WAIT_POLICY = PASSIVE
test: lint
	$(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/tembed demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache

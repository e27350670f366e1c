# `make test` and `make demo` are all that a fresh machine needs: both set up .venv first, and `make test`
# also finds or installs a C compiler and a browser (tests/setup.sh). The demo needs only the extra `lab`.

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
LAB := .venv/.lab
DEV := .venv/.dev
DOCS := .venv/.docs
# Each worker takes whole files, in the order that conftest.py chooses. Many tests start more processes: every
# process has one thread, which sleeps while it waits.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: test check lint demo docs judge clean mutants campaign

# The whole suite.
test: lint
	tests/setup.sh compiler browser
	$(PYTEST)

# The inner loop, in a minute and a half on two idle cores: every test that starts no process, browser or cluster and is
# not slow itself.
check: lint
	tests/setup.sh compiler
	$(PYTEST) -m "not process and not browser and not cluster and not slow"

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A hundred planted bugs of seed 1 and the tests nearest to each: about an hour. The result: results/mutants.md.
mutants: $(DEV)
	tests/setup.sh compiler browser
	PYTHONPATH=tests $(BIN)/python tests/campaign/mutants.py

# Every failing call and every power cut, some minutes: results/power-cuts.md. 5,000 mutated files, some minutes:
# results/mutated-files.md. 300 kills of seed 0, some hours: results/campaign.md. The last two, and the planted bugs,
# continue where they were interrupted.
campaign: $(DEV)
	tests/setup.sh compiler
	PYTHONPATH=tests $(BIN)/python tests/campaign/power_cuts.py
	PYTHONPATH=tests $(BIN)/python tests/campaign/mutated_files.py
	PYTHONPATH=tests $(BIN)/python tests/campaign/kills.py

# The maps of rn26-embed beside their rivals, three seeds of each network: 30 to 40 minutes. Runs are kept in runs/judge.
judge: $(LAB)
	$(BIN)/tembed grid benchmarks/judge.toml --out runs/judge
	$(BIN)/tembed judge runs/judge/rn26-embed-parts-* --out runs/judge/report \
		--rivals $$(ls -d runs/judge/*-parts-* | grep -v /rn26-embed-parts-)

demo: $(LAB)
	$(BIN)/tembed demo

# The site, in docs/_build/html. A warning is an error: a broken link, a missing reference, a cell that fails.
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -b html -W --keep-going -q docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# One environment for all: an extra is installed when it is first needed. `dev` and `docs` contain `lab`.
$(LAB) $(DEV) $(DOCS): .venv/.%: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[$*]'
	touch $@ $(LAB)

clean:
	rm -rf .venv docs/_build .pytest_cache .mypy_cache .ruff_cache

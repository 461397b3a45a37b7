.DEFAULT_GOAL := help
PYTHON ?= python3
MINUTES ?= 3
MESSAGES ?= 20000
# The tests mostly wait for processes: more of them at once than there are processors.
PARALLEL ?= 5
# So many failures, or fewer, are run once more, alone: what passes then has failed for want of time.
AGAIN ?= 0
BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
# The versions that everybody develops with; users get what pyproject.toml allows.
LOCK := tests/requirements.lock
PRODUCT := .venv/.product
PYTEST := $(BIN)/python -m pytest
CHOSEN = $(if $(SELECT),-m '$(SELECT)') $(TESTS)
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

.PHONY: help run test check format docs lock lint types imports sizes wheel-check bench walk soak soak-cluster screenshot clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Not compiled before it is imported: compiling all of it takes a third of the time.
$(PRODUCT): pyproject.toml
	@echo "Installing into .venv; this happens once and takes a minute." >&2
	@test -x $(BIN)/pip || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is missing, or not Python 3.11 or newer: install one, then \`make run PYTHON=python3.12\`" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv || { \
	  echo "The environment could not be made (Debian, Ubuntu: apt-get install python3-venv); then try again" >&2; exit 1; }
	@$(PIP) --no-compile -e .
	@touch $@

$(READY): $(PRODUCT) $(LOCK)
	@echo "Installing what the tests need into .venv." >&2
	@$(PIP) -c $(LOCK) -e '.[dev]'
	@touch $@

# Once for all test processes, each of which would do it when there is nothing yet; what fails here fails in the test.
$(COMPILED): $(READY)
	@$(PYTEST) --collect-only -q $(TESTS) >/dev/null; touch $@

run: $(PRODUCT) ## try it: the demo workspace in your browser, no account needed
	@$(BIN)/codebutler demo

test: $(COMPILED) ## run the whole test suite, PARALLEL (5) files at once; of it TESTS (paths), or what is marked SELECT
	$(PYTEST) --cache-clear -n $(PARALLEL) --dist loadfile --no-loadscope-reorder --durations=25 $(CHOSEN) || { test $$? = 1 && \
	  test "$$(grep -c ': true' .pytest_cache/v/cache/lastfailed)" -le $(AGAIN) && \
	  echo "Running what failed once more, alone." && $(PYTEST) --last-failed $(CHOSEN); }

check: $(READY) lint types imports sizes test wheel-check ## everything that decides whether a change lands

format: $(READY) ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: $(READY) ## write into the documentation what it takes from the code
	$(BIN)/python -m tests.unit.docs.written

lint: $(READY) ## format check and lint
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

lock: $(PRODUCT) ## renew the versions that everybody develops with
	@$(PIP) uv
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --extra dev --no-emit-index-url --no-header \
	  --no-annotate -o $(LOCK) pyproject.toml

types: $(READY) ## mypy, strict
	$(BIN)/mypy

imports: $(READY) ## the direction of imports
	$(BIN)/lint-imports

sizes: ## no source file over 400 lines, no test file over 500
	@git ls-files -co --exclude-standard '*.py' '*.js' '*.css' | xargs wc -l | awk '$$2 != "total" { \
	  limit = ($$2 ~ /^tests\//) ? 500 : 400; if ($$1 > limit) { print $$2 ": " $$1 " lines, the limit is " limit; bad = 1 } } \
	  END { exit bad }'

wheel-check: $(READY) ## build the wheel and try it in a fresh environment
	$(BIN)/python tests/wheel/check.py

bench: $(READY) ## measure; prints ratios against limits of the same run and writes docs/reference/performance.md
	$(BIN)/python -m bench --page docs/reference/performance.md

walk: $(READY) ## count the functions, files and rooms on the way of one message; V=-v prints the way
	$(BIN)/python -m bench walk $(V)

soak: $(READY) ## kill at every passage of every point, then at random for MINUTES (3); then hold the cost of MESSAGES (20000)
	$(BIN)/python -m pytest -q tests/e2e/test_kill_points.py --all-passages
	$(BIN)/python -m tests.soak --minutes $(MINUTES)
	$(BIN)/python -m tests.soak.endurance --messages $(MESSAGES)

soak-cluster: $(READY) ## send MESSAGES (10000) through random deaths of gateways, hosts and NATS servers, and judge what became of them
	$(BIN)/python -m tests.nodefaults --messages $(or $(MESSAGES),10000)

screenshot: $(READY) ## take the pictures of the README and the docs anew
	CODEBUTLER_SCREENSHOT=docs/images $(BIN)/python -m pytest -q -n 0 tests/e2e/test_page.py tests/integration/dashboard/test_acts.py -k "newcomer or decided_by_everybody"

clean: ## remove what was built
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

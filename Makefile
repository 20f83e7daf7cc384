# Two commands for a newcomer: `make run` and `make test`. Each sets up what it needs first, and only what is missing.

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
BENCH ?=

# A Python that was named is used as it is; otherwise a newer one on PATH may stand in for one that is too old.
EXACT := $(if $(filter file,$(origin PYTHON)),,--exact)
SETUP = $(PYTHON) -c "" 2>/dev/null || { echo "stackscope: $(PYTHON) was not found, or does not run. Install Python 3.11 or newer." >&2; exit 1; }; $(PYTHON) scripts/setup

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: setup ## Set up, measure the machine once, then open the live screen on the bundled models (ARGS="--workload chat")
	@$(BIN)/stackscope calibrate --if-missing || true
	@$(BIN)/stackscope live $(ARGS)

.PHONY: test
test: setup-dev ## Set up, then run the tests, the real engine on the bundled models included
	@$(BIN)/python -m pytest -m "not gemma and not slow" $(ARGS)

.PHONY: check
check: setup-dev ## Format, lint, types, architecture and the fast tests
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -m "not engine and not gemma and not slow" $(ARGS)

.PHONY: engine
engine: setup-dev ## The tests of the real engine on the bundled models
	@$(BIN)/python -m pytest -m engine $(ARGS)

.PHONY: gemma
gemma: setup-dev ## The tests of the real engine on Gemma 3 270M
	@$(BIN)/python -m pytest -m gemma $(ARGS)

.PHONY: real
real: setup-dev ## Every test of the real engine that `make test` leaves out
	@$(BIN)/python -m pytest -m "gemma or slow" $(ARGS)

.PHONY: bench
bench: setup-dev ## The benchmarks that have a goal, or one of them (BENCH=name of one in benchmarks/)
	@$(BIN)/python -m benchmarks$(if $(BENCH),.$(BENCH)) $(ARGS)

.PHONY: screenshots
screenshots: setup-dev ## Take the pictures of README and guide anew, from the recordings in profiles/
	@$(BIN)/python scripts/screenshots.py $(ARGS)

.PHONY: setup
setup:
	@$(SETUP) run $(EXACT)

.PHONY: setup-dev
setup-dev:
	@$(SETUP) dev $(EXACT)

.PHONY: clean
clean: ## Delete the environment and all caches, but keep the built library
	rm -rf .venv .build/environment-is-ours .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find stackscope tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Delete the built library too: the next set-up compiles it again
	rm -rf .build

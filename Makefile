# Every target that needs Python makes the locked environment first; a second run costs nothing.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(READY) ## Make the locked environment in .venv

$(READY): requirements.txt pyproject.toml
	@scripts/make_venv $(PYTHON) $(VENV)
	@touch $@

test: setup ## All tests: unit, integration and e2e on a real Kubernetes (the first run builds it)
	$(BIN)/pytest
	@scripts/test_other_python

unit: setup ## Unit tests only: seconds, no cluster
	$(BIN)/pytest tests/unit

check: setup ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fmt: setup ## Format and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write anew what is generated: the lock, the Go modules
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --group dev -o requirements.txt pyproject.toml
	$(BIN)/python scripts/pin_modules.py

verify: check ## Check, and that what is generated is up to date
	$(MAKE) generate
	git diff --exit-code -- requirements.txt src/instaslice/local/modules

bench-placement: setup ## What one placement decision costs at 10 to 100,000 GPUs
	$(BIN)/python bench/placement.py

bench-orders: setup ## How many arrival orders of valid layouts get stuck, by policy
	$(BIN)/python bench/orders.py

bench-policies: setup ## Every policy in every regime, on held-out mixes (minutes)
	$(BIN)/python bench/policies.py

bench-simulate: setup ## Ten thousand GPUs and a million pods: seconds and memory
	$(BIN)/python bench/simulate.py

.PHONY: help setup test unit check fmt generate verify bench-placement bench-orders bench-policies bench-simulate

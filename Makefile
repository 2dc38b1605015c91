# `make` alone says what there is. Everything is installed into .venv, without root; but for a
# Chromium, if the tests find none.

.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
FIND_JAVA := $(BIN)/python -m tidemark.pipeline.java

# Tests start hundreds of Python processes. Where this is set, as in many a container, each of them
# would compile all of Tidemark for itself.
unexport PYTHONDONTWRITEBYTECODE

# How many tests run at once: many of them wait for a process more than they work.
JOBS ?= 5

# The seed and length of a torture run: `make torture SEED=7 N=300`.
SEED ?= 1
N ?= 200

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install everything needed to work on Tidemark
	@scripts/venv dev

.PHONY: run
run: ## Set up and start Tidemark with sample traffic on 127.0.0.1:8787
	@scripts/venv runtime
	@$(FIND_JAVA) --quiet || scripts/venv java || true
	@test -e tidemark.yaml || $(BIN)/tidemark init
	@exec $(BIN)/tidemark up --demo

.PHONY: test
test: setup java ## Set up, check and run every test
# What takes longest comes first.
	@$(MAKE) --jobs=3 --output-sync=target classes prometheus types jars postgres collect lint imports
	@exec $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Else each process that runs tests would compile for itself what all of them load.
.PHONY: collect
collect: setup ## Find all tests, without running them
	@$(BIN)/pytest --collect-only -q >/dev/null

.PHONY: postgres
postgres: setup ## Find a PostgreSQL for the tests, or install one
	@$(BIN)/python -m tests.services.postgres_binaries --quiet || scripts/venv postgres || true
	@$(BIN)/python -m tests.services.postgres_binaries

.PHONY: java
java: setup ## Find a Java for Spark, or install one
	@$(FIND_JAVA) --quiet || scripts/venv java || true
	@$(FIND_JAVA)

.PHONY: jars
jars: setup java ## Bring Kafka, and Spark's connector to it, from Maven
	@$(BIN)/python scripts/jars kafka
	@$(BIN)/python scripts/jars connector

.PHONY: kafka
kafka: jars ## Start a Kafka to try things out with, on 127.0.0.1:9092
	@exec $(BIN)/python -m tests.services.kafka $(ARGS)

.PHONY: classes
classes: java ## Keep Spark's classes in a form in which it starts in half the time
	@$(BIN)/python -m tidemark.app.class_archive --quiet

.PHONY: browser
browser: setup ## Find a Chromium for the tests, or install one (Debian, as root)
	@$(BIN)/python -m tests.services.browser --quiet || \
		{ apt-get -qq update && apt-get -qq install --yes chromium >/dev/null; } || true
	@$(BIN)/python -m tests.services.browser

# After the browser: apt does one thing at a time.
.PHONY: prometheus
prometheus: browser ## Find a Prometheus for the tests, or unpack one (Debian)
	@$(BIN)/python -m tests.services.prometheus --quiet || scripts/debian prometheus || true
	@$(BIN)/python -m tests.services.prometheus

.PHONY: lint
lint: setup ## Check style and formatting
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

.PHONY: format
format: setup ## Put the code into shape
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: types
types: setup ## Check types
	@$(BIN)/mypy

.PHONY: imports
imports: setup ## Check that the flow is one-way
	@$(BIN)/lint-imports --no-logo

.PHONY: lock
lock: setup ## Pin the dependencies anew (ARGS=--upgrade takes the newest)
	@scripts/lock $(ARGS)

.PHONY: reference
reference: setup ## Write the pages of docs/reference that are made from the code
	@$(BIN)/python -m tidemark.config.reference docs/reference

.PHONY: torture
torture: torture-ledger torture-pipeline torture-live torture-mirror torture-order ## All that follow, N each

.PHONY: torture-ledger
torture-ledger: setup postgres ## Kill API processes at N random moments chosen by SEED
	@exec $(BIN)/python -m tests.crash.torture --seed $(SEED) --count $(N) $(ARGS)

.PHONY: torture-pipeline
torture-pipeline: setup postgres jars ## Kill the pipeline at N random moments chosen by SEED
	@exec $(BIN)/python -m tests.crash.pipeline_torture --seed $(SEED) --count $(N) $(ARGS)

.PHONY: torture-live
torture-live: setup postgres ## Kill servers with subscribers and triggers at N random moments
	@exec $(BIN)/python -m tests.crash.live_torture --seed $(SEED) --count $(N) $(ARGS)

.PHONY: torture-mirror
torture-mirror: setup postgres jars ## Kill the mirror or its broker at N random moments
	@exec $(BIN)/python -m tests.crash.mirror_torture --seed $(SEED) --count $(N) $(ARGS)

.PHONY: torture-order
torture-order: setup postgres java jars ## Kill all that follows a ledger at N random moments, and compare
	@exec $(BIN)/python -m tests.crash.order_torture --seed $(SEED) --count $(N) $(ARGS)

.PHONY: bench-try
bench-try: setup java postgres jars ## Try that every benchmark runs, with next to no work
	@exec $(BIN)/pytest tests/benchmarks

.PHONY: bench-ingest
bench-ingest: setup postgres ## Measure ingest against the limits of this machine
	@exec $(BIN)/python -m benchmarks.ingest $(ARGS)

.PHONY: bench-pipeline
bench-pipeline: setup java postgres ## Measure the pipeline beside plain Spark and DuckDB
	@exec $(BIN)/python -m benchmarks.pipeline $(ARGS)

.PHONY: bench-live
bench-live: setup postgres ## Measure subscriptions and webhooks, from the engine to the sockets
	@exec $(BIN)/python -m benchmarks.live $(ARGS)

.PHONY: bench-mirror
bench-mirror: setup java postgres jars ## Measure the mirror beside a plain producer of Kafka
	@exec $(BIN)/python -m benchmarks.mirror $(ARGS)

.PHONY: clean
clean: ## Remove .venv and everything that was made by running things here
	@rm -rf .venv build dist .hypothesis .schemathesis .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

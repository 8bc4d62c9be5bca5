# `make` alone prints this file's help: the contributor's guide.
#
# A fresh clone needs Python 3.11 or later, Java 17 or later and the network; everything else comes from
# requirements/*.lock into .venv. PYTHON=... names a Python, ARGS=... is passed on to the program.

BIN  := .venv/bin
ARGS ?=
# Processes of `make test`: one more than the cores of a small machine, since many tests wait more than they work.
WORKERS ?= 3
# Tests start hundreds of Python processes; without kept bytecode, each compiles its imports again.
unexport PYTHONDONTWRITEBYTECODE
# Find Java (or install a small one into .venv/java), then run a command with it.
WITH_JAVA = JAVA_HOME="$$($(BIN)/python scripts/find_java.py --fallback .venv/java)" && export JAVA_HOME &&
COMPILE = $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --no-annotate \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
# Tests that need nothing but this process; without the long ones of them.
ALONE = not spark and not airflow and not emulator and not cluster
QUICK = $(ALONE) and not law and not slow

.DEFAULT_GOAL := help
.PHONY: help setup emulators oldest-spark delta-spark older-delta-spark classes demo torture test-matrix bench bench-discovery bench-formats bench-freshness bench-registration bench-profile newcomers pictures quick test test-unit test-spark test-airflow test-emulators fmt lint types imports docs generate golden lock size audit dist ci clean other-servers providers iceberg-spark yarn

help:
	@echo 'airflow-provider-cloudfiles: files landing in storage go into tables'
	@echo
	@echo 'See it'
	@echo '  make demo          files arrive, Airflow notices, Spark puts them into a Delta table'
	@echo '  make bench         measure it against the file source of Spark'
	@echo '  make bench-discovery  the same for finding files'
	@echo '  make bench-formats    the same for each format, and for inference'
	@echo '  make bench-freshness  from an object to its row: queries, watchers and DAGs'
	@echo '  make bench-registration  Parquet files that are registered, beside copies of them'
	@echo '  make bench-profile    CPU seconds of each part of a run, by groups of functions'
	@echo
	@echo 'Change it'
	@echo '  make setup         .venv from requirements/dev.lock (done by every other target, once)'
	@echo '  make fmt           format the code and fix what can be fixed'
	@echo '  make lint          ruff and codespell'
	@echo '  make types         mypy --strict'
	@echo '  make imports       import-linter: the import contracts of the packages'
	@echo '  make docs          the documentation as a site, in build/site; warnings are errors'
	@echo '  make quick         lint and the short tests, after each change: under a minute'
	@echo '  make test-unit     the tests without Spark, Airflow and emulators, laws too: minutes'
	@echo '  make test-spark    the tests with a Spark session'
	@echo '  make test-airflow  the tests with Airflow'
	@echo '  make test-emulators  the tests with emulators of the clouds'
	@echo '  make oldest-spark  PySpark 3.5.0 beside the installed one, for the tests that run with both'
	@echo "  make delta-spark   the tests with Delta's own implementation, of Maven and another PySpark"
	@echo "  make older-delta-spark  the same with Delta 3.3 on Spark 3.5"
	@echo "  make other-servers  the tests with other people's servers of S3 and SQS, and Hadoop's S3A"
	@echo "  make providers     the tests with the hooks of Airflow's providers of the clouds"
	@echo "  make iceberg-spark  the same with Iceberg's runtime and a REST catalog"
	@echo "  make yarn          the tests with a real YARN: a ResourceManager and a NodeManager of Hadoop"
	@echo '  make torture       random schedules of arrivals, runs and kills: each row once? (ARGS="--help")'
	@echo '  make test-matrix   a part of the tests with each supported Python, Airflow and Spark (ARGS="--help")'
	@echo '  make test          lint, types, imports and every test: what has to pass'
	@echo
	@echo 'Keep it'
	@echo '  make generate      the parts of docs/ that are made from the code: options, errors, CLI, layers, decisions'
	@echo '  make golden        the golden bytes of what the package writes today (tests/golden)'
	@echo '  make lock          requirements/* from pyproject.toml (UPGRADE=1: the newest versions)'
	@echo '  make newcomers     what four newcomers do with the wheel, timed (docs/reference/newcomers.md)'
	@echo '  make pictures      the pictures of the UI in docs/how-to/pictures, of real runs, with a browser'
	@echo '  make size          code lines by folder, modules, classes, and the modules that a small run executes'
	@echo '  make audit         known vulnerabilities of what is pinned (asks api.osv.dev)'
	@echo '  make dist          the wheel and the source archive, in dist/ (REPOSITORY=https://... for its links)'
	@echo '  make ci            what CI runs: make test'
	@echo '  make clean         remove everything that is not source'
	@echo
	@echo 'ARGS are passed on: make test-unit ARGS="-k ledger -x"'
	@echo 'Laws try a part of their examples, others each time: make test-unit EXAMPLES=all tries all'

setup: .venv/.synced

.venv/.synced: requirements/dev.lock requirements/bootstrap.lock pyproject.toml scripts/setup.sh scripts/find_python.sh
	@sh scripts/setup.sh

# Emulators are Python packages in the lock, but for one that needs an environment of its own, and for
# Azure's, which needs Node. Without Node, the tests on Azure are skipped with that reason.
emulators: .venv/emulators/.synced

.venv/emulators/.synced: .venv/.synced scripts/emulators.sh requirements/emulators.lock
	@sh scripts/emulators.sh

# Beside .venv's own: tests put it in front of PYTHONPATH.
oldest-spark: .venv/oldest-spark/.synced

# Jars of Delta's and of Iceberg's own are fetched by Spark, into the same folder.
delta-spark older-delta-spark: %: .venv/%/.synced
	@$(WITH_JAVA) DELTA_RELEASE=$@ $(BIN)/python -m pytest tests/delta_spark $(ARGS)

iceberg-spark: .venv/iceberg-spark/.synced
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/iceberg_spark $(ARGS)

# What a store promises, over each of them; and what is about single ones.
OVER_SERVERS = tests/emulated/storage/test_storage_behaviors.py tests/emulated/storage/test_versions.py
QUEUES = tests/emulated/discovery/test_notifications_aws.py
other-servers: emulators .venv/servers/.synced
	@$(WITH_JAVA) OTHER_SERVERS=yes $(BIN)/python -m pytest $(OVER_SERVERS) $(ARGS)
	@$(WITH_JAVA) AWS_SERVER=moto $(BIN)/python -m pytest tests/emulated/storage/test_s3.py $(QUEUES) $(ARGS)
	@$(WITH_JAVA) AWS_SERVER=elasticmq $(BIN)/python -m pytest $(QUEUES) -k 'not file_is and not are_found' $(ARGS)
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/other_servers $(ARGS)

.venv/servers/.synced: .venv/.synced scripts/other_servers.sh scripts/ivy.sh requirements/other-servers.lock
	@$(WITH_JAVA) sh scripts/other_servers.sh

yarn: emulators .venv/yarn/.synced
	@$(WITH_JAVA) $(BIN)/python -m pytest tests/yarn $(ARGS)

.venv/yarn/.synced: .venv/.synced scripts/yarn.sh scripts/ivy.sh requirements/yarn.lock
	@$(WITH_JAVA) sh scripts/yarn.sh

.venv/%-spark/.synced: .venv/.synced requirements/%-spark.lock
	@rm -rf .venv/$*-spark
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target .venv/$*-spark \
		--require-hashes -r requirements/$*-spark.lock
	@touch $@

# Airflow's providers of the clouds beside .venv's own packages, which have most of what they need.
providers: .venv/providers/.synced emulators
	@$(WITH_JAVA) PYTHONPATH=$(CURDIR)/.venv/providers $(BIN)/python -m pytest tests/with_providers $(ARGS)

.venv/providers/.synced: .venv/.synced requirements/providers.lock
	@rm -rf .venv/providers
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target .venv/providers --no-deps \
		--require-hashes -r requirements/providers.lock
	@touch $@

demo: setup
	@$(WITH_JAVA) $(BIN)/python -m demo $(ARGS)

bench: setup
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

test: classes lint types imports emulators oldest-spark
	@$(WITH_JAVA) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Spark's classes for the JVMs of the tests, in the background: the checks before the tests use one core.
classes: setup
	@$(WITH_JAVA) (setsid $(BIN)/python -m tests.support.jvm_classes >/dev/null 2>&1 &)

quick: lint
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m '$(QUICK)' $(ARGS)

test-unit: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m '$(ALONE)' $(ARGS)

test-spark: setup
	@$(WITH_JAVA) $(BIN)/python -m pytest -m spark $(ARGS)

test-airflow: setup
	@$(WITH_JAVA) $(BIN)/python -m pytest -m airflow $(ARGS)

test-emulators: emulators
	@$(WITH_JAVA) $(BIN)/python -m pytest -n 2 --dist worksteal -m 'emulator and not spark' $(ARGS)

# One schedule again: make torture ARGS="--seed 42 --schedules 1 --stores s3"
torture: emulators
	@$(WITH_JAVA) $(BIN)/python -m torture $(ARGS)

# Not part of `make test`: environments of 1.6 GB each, and half an hour. What has passed is not run again.
test-matrix: setup
	@$(WITH_JAVA) $(BIN)/python -m matrix $(ARGS)

bench-discovery: setup
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.discovery $(ARGS)

bench-formats: setup
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.formats $(ARGS)

bench-registration: setup
	@$(BIN)/python -m benchmarks.registration $(ARGS)

bench-freshness: setup emulators
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.freshness $(ARGS)

bench-profile: setup
	@$(BIN)/python -m benchmarks.profile $(ARGS)

fmt: setup
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports --no-cache

# Without the network: docs/decisions/0066-documentation-site.md.
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo 'Open build/site/index.html'

generate: setup
	@for each in docs/generate_*.py; do $(BIN)/python $$each; done

golden: setup
	@$(BIN)/python -m tests.golden.write

# A wheel, a new environment, and what the pages say; the times stand on docs/reference/newcomers.md.
newcomers: setup
	@$(WITH_JAVA) $(BIN)/python scripts/newcomers.py

pictures: emulators
	@$(WITH_JAVA) $(BIN)/python scripts/pictures/take.py

# Written without the addresses packages come from: docs/decisions/0001-lock-without-hosts.md.
lock:
	@test -x $(BIN)/uv || sh scripts/setup.sh
	$(COMPILE) --generate-hashes --group bootstrap -o requirements/bootstrap.lock
	$(COMPILE) --generate-hashes --group emulators -o requirements/emulators.lock
	$(COMPILE) --generate-hashes --group oldest-spark -o requirements/oldest-spark.lock
	$(COMPILE) --generate-hashes --group delta-spark -o requirements/delta-spark.lock
	$(COMPILE) --generate-hashes --group older-delta-spark -o requirements/older-delta-spark.lock
	$(COMPILE) --generate-hashes --group other-servers -o requirements/other-servers.lock
	$(COMPILE) --generate-hashes --group iceberg-spark -o requirements/iceberg-spark.lock
	$(COMPILE) --generate-hashes --group java -o requirements/java.lock
	$(COMPILE) --generate-hashes --group dist -o requirements/dist.lock
	$(COMPILE) --extra all pyproject.toml -o requirements/constraints.txt
	$(COMPILE) --generate-hashes --no-deps --group providers \
		-c requirements/constraints.txt -o requirements/providers.lock
	$(COMPILE) --generate-hashes --group yarn --extra delta --extra aws \
		-c requirements/constraints.txt pyproject.toml -o requirements/yarn.lock
	$(COMPILE) --generate-hashes --extra connect --extra delta \
		-c requirements/constraints.txt pyproject.toml -o requirements/connect.lock
	$(COMPILE) --generate-hashes --extra all --group dev \
		-c requirements/constraints.txt pyproject.toml -o requirements/dev.lock

size: setup
	@$(BIN)/python scripts/size.py

# Not part of `make test`: what is known of a version changes without a change here.
audit: setup
	@$(BIN)/python scripts/audit.py

# In an environment of its own, of eight packages. REPOSITORY: the address that the metadata links to.
REPOSITORY ?=
dist:
	@CLOUDFILES_REPOSITORY="$(REPOSITORY)" sh scripts/dist.sh $(ARGS)

ci: test

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

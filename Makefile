# Every target installs what it lacks. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help flaky dashboard-docs mutants queue-walks served-modules attacks autoscaling chaos chaos-processes power-cuts ecosystem package upgrade sbom docs site recording venv up down images install uninstall status doctor demo test quick rights lint types contracts unit processes training compile controlplane engine e2e experiment experiment-docs walks crds lock simulation-docs simulation-quick training-docs update version

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCAL  := PYTHONPATH=deploy/local $(BIN)/python -m tdcs_local
TIERS  := $(if $(DEEP),TDCS_DEEP=1 )$(BIN)/python tests/tiers.py

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

venv: $(VENV)/.ready ## the Python environment, from the lock
$(VENV)/.ready: locks/development.txt pyproject.toml labs/pyproject.toml training/pyproject.toml
	@deploy/local/venv.sh $(PYTHON) $(VENV)

up: venv ## the local cluster: kind, one control plane and three workers with fake GPUs
	@$(LOCAL) up

down: venv ## remove the local cluster and all that `make up` started
	@$(LOCAL) down

images: venv ## build the project's images and load them into the local cluster
	@$(LOCAL) images

install: venv ## install or upgrade TDCS on the local cluster from this checkout
	@$(LOCAL) install

uninstall: venv ## remove TDCS from the local cluster: its jobs, datasets and caches, then the chart
	@$(LOCAL) uninstall

status: venv ## what of the local cluster is there
	@$(LOCAL) status

doctor: venv ## check this machine for what the local cluster needs
	@$(LOCAL) doctor

demo: venv ## from nothing to three training jobs on one dataset, placed by their data; prints what happened
	@$(LOCAL) demo

EXPERIMENT ?= .local/experiment/results.json
experiment: venv ## four ways to read a bucket behind a slow link, with 1, 2 and 4 jobs, next to what was predicted: half an hour
	@$(LOCAL) experiment --results $(EXPERIMENT)

experiment-docs: venv ## docs/experiment.md and its picture, from the results of the last `make experiment`
	@$(LOCAL) experiment-page --results $(EXPERIMENT)

dashboard-docs: venv ## docs/images/dashboard.svg: the panels of the Grafana dashboard, drawn from what a real Prometheus answers
	@TDCS_DASHBOARD_PICTURE=$(CURDIR)/docs/images/dashboard.svg $(BIN)/python -m pytest -q -n0 tests/controlplane/observability/test_monitoring.py

test: venv ## all tiers: lint, types, contracts, unit, processes, training, compile, controlplane, engine, e2e; AGAIN=1 tries failed tests with real servers once more, DEEP=1 runs those that take minutes, too
	@$(TIERS) $(if $(AGAIN),--again)

quick: venv ## the quick tiers: lint, types, contracts, unit
	@$(TIERS) lint types contracts unit

CHAOS_SECONDS ?= 3600
CHAOS_SEED ?= 1
chaos: venv ## everything on the local cluster fails at random while jobs run and objects change, and every byte is compared: CHAOS_SECONDS=3600 CHAOS_SEED=1
	@$(LOCAL) up
	@$(LOCAL) images tdcs alluxio store toolbox
	@TDCS_CHAOS_SECONDS=$(CHAOS_SECONDS) TDCS_CHAOS_SEED=$(CHAOS_SEED) TDCS_CHAOS_DISKS=1 PYTHONPATH=deploy/local $(BIN)/python -m pytest -q -s -n0 \
	  -o timeout_func_only=true e2e/chaos

chaos-processes: venv ## the same in small, without a cluster: processes of a cache are killed and paused: CHAOS_SECONDS=3600 CHAOS_SEED=1
	@TDCS_CHAOS_SECONDS=$(CHAOS_SECONDS) TDCS_CHAOS_SEED=$(CHAOS_SEED) PYTHONPATH=deploy/local $(BIN)/python -m pytest -q -s -n0 \
	  -o timeout_func_only=true tests/engine/test_chaos.py

power-cuts: venv ## cut the power of a disk at random moments of a load, and compare what is left, as root: CUTS=200 CUTS_SEED=1
	@TDCS_POWER_CUTS=$(or $(CUTS),200) TDCS_POWER_SEED=$(or $(CUTS_SEED),1) $(BIN)/python -m pytest -q -n0 -o timeout_func_only=true \
	  tests/processes/agent/power

lint types contracts unit processes training compile controlplane engine e2e: venv
	@$(TIERS) $@

attacks: venv ## the part of e2e that attacks as a tenant, each attack refused with a reason (minutes); those on processes are in the unit tier
	@$(LOCAL) up
	@$(LOCAL) images tdcs alluxio store toolbox
	@PYTHONPATH=deploy/local $(BIN)/python -m pytest -q -n0 -o timeout_func_only=true e2e/attacks

rights: venv ## controlplane and e2e under an audit log: the rights that the chart grants, next to those that are used
	@TDCS_DEEP=1 $(TIERS) --rights controlplane e2e

WALKS ?= 200
WALKS_FIRST ?= 0
walks: venv ## random walks over a shared cache with operators that die at random writes, about five seconds each: WALKS=200 WALKS_FIRST=0
	@TDCS_SHARING_WALKS=$(WALKS) TDCS_SHARING_FIRST=$(WALKS_FIRST) $(BIN)/python -m pytest -q -s -n0 \
	  tests/unit/control/dataset/grants/test_random_sharing.py

queue-walks: venv ## random walks of the queue of jobs with users, nodes, Kueue and a mortal operator, about a second each: WALKS=1000 SEED=0
	@$(BIN)/python -m tests.unit.control.job.queue.queue_walks --walks $(if $(filter command line environment,$(origin WALKS)),$(WALKS),1000) --seed $(SEED)

RUNS ?= 300
BASE ?= main
flaky: venv ## run the unit tests of what changed since BASE=main, or FLAKY_TESTS="...", RUNS=300 times in processes of their own, and name those that fail in some
	@$(BIN)/python tests/flaky.py --runs $(RUNS) --base $(BASE) $(FLAKY_TESTS)

MUTANTS := .local/mutants
$(MUTANTS)/.ready: locks/mutants.txt
	@echo "environment of mutmut in $(MUTANTS)/venv, from locks/mutants.txt: about a minute"
	@$(PYTHON) -m venv --clear $(MUTANTS)/venv
	@$(MUTANTS)/venv/bin/python -m pip install -q --retries 10 --disable-pip-version-check --require-hashes -r locks/mutants.txt
	@touch $@

mutants: $(MUTANTS)/.ready ## changes of the read path's decisions that no unit test notices, by mutmut on a copy: MODULES="tdcs.node.extents ..." MUTANT_TESTS=tests/unit/node MINUTES=30
	@$(MUTANTS)/venv/bin/python tests/mutants.py $(if $(MUTANT_TESTS),--tests "$(MUTANT_TESTS)") --minutes $(or $(MINUTES),30) \
	  $(if $(filter command line environment,$(origin MODULES)),$(MODULES))

MODULES ?= 200
SEED ?= 0
served-modules: venv ## random modules over parameter servers that hold random tensors back, each next to one process: MODULES=200 SEED=0
	@$(LOCAL) torch --results=/tmp -- python3 -m tests.training.parameter_server.served --modules $(MODULES) --seed $(SEED)

crds: venv ## regenerate crds/, the chart's fields of the cache, the references of resources, metrics and roles, and the tests in failure-modes.md and threat-model.md, and measurements/, from code and results
	@$(BIN)/python -m tests.support.generators.pod_fields
	@$(BIN)/python -m tests.support.generators.failure_modes
	@$(BIN)/python -m tests.support.generators.threats
	@$(BIN)/python -m tests.support.generators.decisions
	@$(BIN)/python -m bench.measurements
	@$(BIN)/tdcs crds --output crds
	@$(BIN)/python -m tests.support.generators.chart_schema
	@$(BIN)/tdcs resources --output docs/reference/resources.md
	@$(BIN)/tdcs metrics --output docs/reference/metrics.md
	@$(BIN)/tdcs roles --output docs/reference/roles.md --alluxio deploy/local/alluxio/names/io/tdcs/trust/rights.txt

ecosystem: venv ## tests with other projects (Kueue, JobSet, Kubeflow Trainer, cert-manager), fetched and built (half an hour): on a control plane, which `make test` does, too, where they are built, then on the local cluster
	@TDCS_ECOSYSTEM=1 PYTHONPATH=deploy/local $(BIN)/python -m pytest -q tests/controlplane/ecosystem
	@$(LOCAL) up
	@$(LOCAL) images tdcs alluxio store toolbox train-tensorflow
	@TDCS_ECOSYSTEM=1 PYTHONPATH=deploy/local $(BIN)/python -m pytest -q -s -n0 -o timeout_func_only=true e2e/ecosystem

autoscaling: venv ## the cache scaled by a HorizontalPodAutoscaler, with a real Prometheus and prometheus-adapter (built in minutes): on a control plane, then on the local cluster
	@TDCS_ECOSYSTEM=1 PYTHONPATH=deploy/local $(BIN)/python -m pytest -q tests/controlplane/data/test_cache_autoscaler.py
	@$(LOCAL) up
	@$(LOCAL) images tdcs alluxio store toolbox
	@TDCS_ECOSYSTEM=1 PYTHONPATH=deploy/local $(BIN)/python -m pytest -q -s -n0 -o timeout_func_only=true e2e/install/test_autoscaling.py

package: venv ## the files of a release into .local/release: chart, images as OCI layouts, SBOMs, krew's plugin, notes, sums; RELEASE_URL=https://... of its files, SIGN_KEY=FILE signs the sums
	@$(LOCAL) package --url "$(RELEASE_URL)" $(if $(SIGN_KEY),--sign-key "$(SIGN_KEY)")

upgrade: venv ## install the last release on the local cluster, run jobs, upgrade to this checkout, and compare what is left: RELEASE=TAG
	@$(LOCAL) up
	@$(LOCAL) images tdcs alluxio store toolbox
	@folder=$$($(LOCAL) last-release --of "$(RELEASE)") && TDCS_DEEP=1 TDCS_RELEASE=$$folder PYTHONPATH=deploy/local \
	  $(BIN)/python -m pytest -q -s -n0 -o timeout_func_only=true e2e/install/test_release_upgrade.py

sbom: venv ## what is in the images, as CycloneDX, into .local/sbom: Debian's packages, Python distributions and their libraries, jars, Go modules; IMAGES="REFERENCE..." of others, too
	@$(LOCAL) sbom $(addprefix --image ,$(IMAGES))

docs: venv ## build the documentation into .local/docs
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs .local/docs && echo "open .local/docs/index.html"

recording: venv ## docs/images/first-job.svg: a terminal in which a Dataset and a job are applied, recorded on the local cluster after `make demo`
	@$(LOCAL) recording

site: venv ## build the documentation of every release (tags vX.Y.Z) and of this checkout into .local/site, with a list of versions
	@$(BIN)/python docs/build_site.py .local/site

# Each lock is bounded by the one before it, so that environments agree on versions.
UV_COMPILE = $(BIN)/uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-package tdcs-train \
	--custom-compile-command "make lock" $(LOCK_FLAGS)
# Debian trixie has them next to its PyTorch, and hf-xet is for downloads.
IN_TRIXIE = certifi charset-normalizer filelock fsspec hf-xet idna numpy packaging pyyaml requests typing-extensions urllib3
lock: venv ## renew locks/ from pyproject.toml and training/pyproject.toml; LOCK_FLAGS=--upgrade for the newest versions
	@$(UV_COMPILE) --universal pyproject.toml -o locks/runtime.txt
	@$(UV_COMPILE) --universal pyproject.toml training/pyproject.toml --group test --group docs --group lint --group release \
	  -c locks/runtime.txt -o locks/development.txt
	@$(UV_COMPILE) --universal pyproject.toml training/pyproject.toml --group test --group mutants -c locks/development.txt -o locks/mutants.txt
	@$(UV_COMPILE) --universal training/pyproject.toml --extra compile --extra images -o locks/compile.txt
	@$(UV_COMPILE) --universal training/pyproject.toml --extra compile --extra images --group pyproject.toml:compile \
	  -c locks/compile.txt -o locks/compile-tests.txt
	@$(UV_COMPILE) --python-platform x86_64-manylinux_2_36 --no-annotate --group pyproject.toml:tensorflow -o locks/train-tensorflow.txt
	@$(subst 3.11,3.13,$(UV_COMPILE)) --python-platform x86_64-manylinux_2_36 --no-annotate $(addprefix --no-emit-package ,$(IN_TRIXIE)) \
	  --group pyproject.toml:transformers -o locks/transformers.txt

VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' operator/tdcs/__init__.py)
version: ## write the version of operator/tdcs/__init__.py into the chart, tdcs-train and the labs
	@sed -i -E 's/^((v|appV)ersion: ).*/\1$(VERSION)/' charts/tdcs/Chart.yaml
	@sed -i -E 's/^(version = ").*/\1$(VERSION)"/' labs/pyproject.toml
	@sed -i -E 's/^(__version__ = ").*/\1$(VERSION)"/' training/tdcs_train/__init__.py
	@echo "the version is $(VERSION)"

update: venv ## newer versions of what is pinned (Python, Go, npm, Maven) into its files, with what changelogs call breaking; UPDATE="python go npm maven"
	@$(LOCAL) update $(UPDATE)

TRACE ?= ../shared/data/philly-2017-09-to-11.csv
simulation-docs: venv ## rerun the simulator's sweep and write docs/simulation.md; about an hour of processor time; TRACE=FILE.csv
	@rm -f bench/results/simulation.jsonl
	@$(BIN)/python bench/simulation/matrix.py --trace $(TRACE) --results bench/results/simulation.jsonl
	@$(BIN)/python -m bench.simulation.page

simulation-quick: venv ## the first part of the sweep, about eight minutes of processor time, and its bars as JSON; TRACE=FILE.csv
	@mkdir -p .local && rm -f .local/simulation.jsonl
	@$(BIN)/python bench/simulation/matrix.py --quick --trace $(TRACE) --results .local/simulation.jsonl
	@$(BIN)/python bench/simulation/matrix.py --summary --trace $(TRACE) --results .local/simulation.jsonl

PROFILES ?= ../shared/data/pipedream
training-docs: venv ## rerun the benchmarks of tdcs-train and write docs/training-results.md; half an hour, as root; PROFILES=FOLDER TENSORFLOW=PYTHON
	@$(BIN)/python -m bench.training.plans --profiles $(PROFILES)
	@$(BIN)/python -m bench.training.orders --profiles $(PROFILES)
	@$(BIN)/python -m bench.training.actors
	@$(BIN)/python -m bench.training.classes
	@$(BIN)/python -m bench.training.loader $(if $(TENSORFLOW),--tensorflow=$(TENSORFLOW))
	@for name in links bubbles digits transfers; do PYTHONPATH=deploy/local $(BIN)/python -m bench.training.$$name || exit 1; done
	@$(BIN)/python -m bench.training.page

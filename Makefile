# Ringmaster's front door: every verb is one line that calls the program doing the work.
# `make` alone prints the help. Variables are listed there too.

.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
INSTALL := requirements/install.sh
FAB := $(BIN)/fab
# A role alone doesn't show where the modules and plugins beside the playbooks are; linting has no inventory.
LINT_PLAYBOOKS := ANSIBLE_INVENTORY_UNPARSED_FAILED=0 PATH="$$PWD/$(BIN):$$PATH" ANSIBLE_LIBRARY=playbooks/library ANSIBLE_ACTION_PLUGINS=playbooks/action_plugins ANSIBLE_FILTER_PLUGINS=playbooks/filter_plugins $(BIN)/ansible-lint -q --nocolor

# What users may set. Every byte must arrive: make would expand `$` in a value when it exports it (and run a
# `$(shell …)` in it), so none is exported as it is; each goes to the recipes as RM_<name>, taken with $(value).
#: NODES         how many nodes, in the inventory's order; default 2
#: GPUS          per node: all (default), a count, or device ids such as 0,2
#: RANKS         processes per node; default: one for each GPU; 1: for scripts that start their own
#: SCRIPT        your own Python file; default: the bundled trainer
#: ARGS          arguments for the script, quoted as in a shell; ARGS=--help lists the trainer's
#: DATA          your own copy of the data set, instead of fetching it
#: NAME          the job's name; default: the time; status, logs, stop: which job; default: the one that runs
#: RESUME        a job to continue from (latest: the newest), with its script and arguments unless given
#: DRY_RUN       1: print the plan and the exact commands, start nothing
#: DETACH        1: start and return; make logs follows the job, make stop stops it
#: SECRETS       a file of KEY=value lines, given to the script and seen nowhere else
#: LAUNCH_STYLE  1: the script parses --local-rank; 0: it does not; default: look into it
#: INVENTORY     default: inventory/hosts.yml if there is one, else inventory/local.yml (this machine)
#: LIMIT         only these hosts of the inventory (an Ansible pattern)
#: CHECK         provision, reset: 1: show what would be done, with differences, and change nothing
#: TRUST         1: pin host keys that are seen for the first time without asking
#: TAGS          provision, verify, reset: only these roles, such as firewall,docker_engine
#: NCCL_DEBUG    provision: NCCL's messages in every job: WARN, INFO, …; default: none
#: BASE          image: the image to build on; default: debian:bookworm-slim
#: CUDA          image: 12: for drivers older than 580; default: the newest
#: REQUIREMENTS  image: a requirements.txt of what your scripts need besides
#: KEEP_PACKAGES reset: 1: leave the packages that provisioning installed
#: ENGINE, UNEQUAL, REGISTRY  lab: 1: nodes with the Docker engine; that differ; an image registry beside them
#: PURGE         lab-down: 1: also the Docker engine, if the lab installed it
#: ONLY, QUICK   bench: input, step, stream, recipe, scaling, report, gpu, first-step (default: these), provision,
#:               launch, image-delivery; pages: draw docs/performance.md anew from its JSON; 1: five minutes, not 25
#: LAB           test: required fails where a test's needs can't be met, instead of skipping it
#: PYTHON        which Python .venv is made from; default: the first that is 3.11 or newer
VARIABLES := NODES GPUS RANKS SCRIPT ARGS DATA NAME RESUME DRY_RUN DETACH SECRETS LAUNCH_STYLE INVENTORY LIMIT CHECK TRUST TAGS NCCL_DEBUG BASE CUDA REQUIREMENTS KEEP_PACKAGES ENGINE UNEQUAL REGISTRY PURGE ONLY QUICK LAB PYTHON
# (NCCL_DEBUG in the environment stays there, as jobs on this machine have it from there.)
unexport $(filter-out NCCL_DEBUG,$(VARIABLES))
$(foreach name,$(VARIABLES),$(eval export RM_$(name) = $$(value $(name))))
MAKEOVERRIDES :=
# Some systems have a NAME (WSL) or CUDA of their own in the environment: only those given to make are ours.
$(foreach name,NAME CUDA BASE,$(if $(filter command line,$(origin $(name))),,$(eval $(name) :=)))
# One in the environment is for the jobs started here, not to be written to every node.
ifneq ($(origin NCCL_DEBUG),command line)
  RM_NCCL_DEBUG :=
endif

given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
unknown := $(filter-out $(VARIABLES) MAKEOVERRIDES,$(given))
ifneq ($(unknown),)
  $(error there is no variable '$(firstword $(unknown))'; known: $(VARIABLES))
endif

##@ Prepare
.PHONY: provision
provision: control ## prepare every node of the inventory for training; a second run changes nothing
	@exec $(FAB) provision --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT" --tags="$$RM_TAGS" --check="$$RM_CHECK" --trust="$$RM_TRUST" --nccl-debug="$$RM_NCCL_DEBUG"

.PHONY: image
image: control ## build the training image on the first node, and bring it to all of them (docs/image.md)
	@exec $(FAB) image --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT" --base="$$RM_BASE" --cuda="$$RM_CUDA" --requirements="$$RM_REQUIREMENTS"

.PHONY: verify
verify: control ## prove that every node is as provisioned, one line per node; changes nothing
	@exec $(FAB) verify --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT" --tags="$$RM_TAGS" --trust="$$RM_TRUST"

.PHONY: reset
reset: control ## take back exactly what provisioning added
	@exec $(FAB) reset --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT" --tags="$$RM_TAGS" --check="$$RM_CHECK" --trust="$$RM_TRUST" --keep-packages="$$RM_KEEP_PACKAGES"

##@ Train
.PHONY: train
train: control ## run a job on NODES nodes, follow it, end with its result
	@exec $(FAB) train --nodes="$$RM_NODES" --gpus="$$RM_GPUS" --ranks="$$RM_RANKS" --script="$$RM_SCRIPT" --args="$$RM_ARGS" --data="$$RM_DATA" --name="$$RM_NAME" --resume="$$RM_RESUME" --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT" --launch-style="$$RM_LAUNCH_STYLE" --secrets="$$RM_SECRETS" --detach="$$RM_DETACH" --dry-run="$$RM_DRY_RUN"

.PHONY: status
status: control ## the jobs on the nodes: state, age, step
	@exec $(FAB) status --name="$$RM_NAME" --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT"

.PHONY: logs
logs: control ## follow a job (NAME) to its end and bring its results home; Ctrl-C leaves it running
	@exec $(FAB) logs --name="$$RM_NAME" --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT"

.PHONY: stop
stop: control ## stop a job (NAME) everywhere, with a checkpoint, and prove that nothing of it is left
	@exec $(FAB) stop --name="$$RM_NAME" --inventory="$$RM_INVENTORY" --limit="$$RM_LIMIT"

.PHONY: bench
bench: everything ## measure, and write docs/performance.md: ONLY=step,recipe chooses, QUICK=1 shortens
	@exec $(FAB) bench --only="$$RM_ONLY" --quick="$$RM_QUICK" --inventory="$$RM_INVENTORY"

##@ Rehearse
.PHONY: lab
lab: control ## a cluster of NODES container nodes on this machine, with GPUS stand-in GPUs each (docs/lab.md)
	@exec $(BIN)/python -m lab up --nodes="$$RM_NODES" --gpus="$$RM_GPUS" --engine="$$RM_ENGINE" --unequal="$$RM_UNEQUAL" --registry="$$RM_REGISTRY"

.PHONY: lab-down
lab-down: control ## remove every lab of this checkout again
	@exec $(BIN)/python -m lab down --purge="$$RM_PURGE"

##@ Develop
.PHONY: test
test: everything ## all tests; LAB=required fails where a part of them can't be run
	@RINGMASTER_LAB="$$RM_LAB" $(BIN)/python -m pytest

.PHONY: lint
lint: everything ## all linters
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/yamllint --strict . && $(LINT_PLAYBOOKS) && $(BIN)/shellcheck requirements/install.sh docker/install .ci/run lab/node_files/start-node lab/node_files/link-stand-ins lab/node_files/dmesg && $(BIN)/hadolint docker/Dockerfile

.PHONY: clean
clean: ## remove what make made here: .venv, caches, fetched data (runs/ is yours and stays)
	@if [ -d .lab ]; then { PYTHON="$$RM_PYTHON" $(INSTALL) control && $(BIN)/python -m lab down --all; } || { echo "ringmaster: nothing was cleaned, as the lab (.lab) could not be removed: mend what stands above (a broken .venv: rm -rf .venv), then try again" >&2; exit 1; }; fi
	@rm -rf .venv data .mypy_cache .pytest_cache .ruff_cache .hypothesis && find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@if [ -d runs ]; then echo "kept: runs/ (your results); remove it yourself if you want"; fi

##@ Help
.PHONY: help
help: ## this list
	@echo 'Ringmaster: one PyTorch training cluster from ordinary GPU machines.  make <target> [VARIABLE=value …]'
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile
	@awk 'BEGIN { print "\nVariables" } sub(/^#: /, "  ")' Makefile

# What a target needs is installed when it is first used; afterwards this costs a file comparison.
.PHONY: control
control:
	@PYTHON="$$RM_PYTHON" $(INSTALL) control

.PHONY: everything
everything:
	@PYTHON="$$RM_PYTHON" $(INSTALL) control trainer dev

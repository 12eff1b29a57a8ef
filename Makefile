# Every target that needs Python creates the locked environment first; a second run costs nothing.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# By topic, in the order of this file.
help:
	@awk -F':.*## ' '/^##@ /{print "\n" substr($$0, 5)} /^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '$(BENCHES)' | fold -sw 100 | sed 's/^/                   /'

##@ Try it

setup: $(READY) ## Create the locked environment in .venv

$(READY): requirements.txt pyproject.toml
	@scripts/make_venv $(PYTHON) $(VENV)
	@touch $@

demo: setup ## Pods wait for slices, run and end on a real Kubernetes with emulated GPUs (DOWNLOAD=1: no first build)
	@$(BIN)/instaslice demo $(if $(DOWNLOAD),--download) $(ARGS)

up: setup ## Start a local cluster (ARGS="--nodes 4 --real-node")
	@$(BIN)/instaslice up $(ARGS)

down: setup ## Remove it (ARGS=NAME for one other than the default)
	@$(BIN)/instaslice down $(ARGS)

##@ Install it

# The image (docs/image.md). BASE is any image with Python 3.11 or later.
image: setup ## Build the container image with docker, podman or buildah, without a registry too (IMG=name BASE=image)
	@$(BIN)/python scripts/image build $(or $(IMG),instaslice:dev) $(if $(BASE),--base $(BASE))

image-multiarch: setup ## Build it for amd64 and arm64 (IMG=registry/name:tag)
	@$(BIN)/python scripts/image build $(IMG) $(if $(BASE),--base $(BASE)) --platforms linux/amd64,linux/arm64

image-archive: setup ## Write it to a file for `ctr images import` (ARCHIVE=path), and print its name
	@$(BIN)/python scripts/image archive $(or $(ARCHIVE),out/instaslice.tar)

push: setup ## Push it (IMG=registry/name:tag)
	@$(BIN)/python scripts/image push $(IMG)

sbom: setup ## Write what is in the image, from the lock, as SPDX (SBOM=path)
	@$(BIN)/python scripts/write_sbom.py $(or $(SBOM),out/instaslice.spdx.json)

sign: sbom ## Sign a pushed image and attach its SBOM with cosign, keyless (IMG=registry/name@sha256:…)
	cosign sign --yes $(IMG)
	cosign attest --yes --type spdxjson --predicate $(or $(SBOM),out/instaslice.spdx.json) $(IMG)

# Helm of the machine, or the one that is built; the cluster is that of the kubeconfig.
KUBECTL ?= kubectl
HELM    = $$($(BIN)/python -m instaslice.local.helm)
RELEASE = instaslice --namespace instaslice-system
# The values of repository, tag and digest, or nothing: the colon before a port of a registry is none before a tag.
IMG_REPOSITORY = ([^@:[:space:]]+(:[0-9]+/[^@:[:space:]]+)?)
IMG_TAG = ([^:/@[:space:]]+)
IMG_DIGEST = (sha256:[0-9a-f]{64})
IMG_VALUES = --set image.repository=\1 --set-string image.tag
IMAGE = $(shell echo '$(IMG)' | sed -nE -e 's|^$(IMG_REPOSITORY):$(IMG_TAG)$$|$(IMG_VALUES)=\3 --set image.digest=|p' \
	-e 's|^$(IMG_REPOSITORY)(:$(IMG_TAG))?@$(IMG_DIGEST)$$|$(IMG_VALUES)=\4 --set image.digest=\5|p')

# Values of earlier calls stay, but for those of the image; --reset-values in ARGS forgets them.
deploy: setup ## Install or upgrade InstaSlice in the cluster of your kubeconfig (IMG=repository:tag, or @digest; ARGS="--set …")
	$(if $(IMAGE),,$(error IMG=$(IMG): say which image, with its tag or digest: make deploy IMG=repository:tag or IMG=repository@sha256:…))
	$(HELM) upgrade --install $(RELEASE) charts/instaslice --reset-then-reuse-values --create-namespace --take-ownership --wait \
		--set namespace.create=true $(IMAGE) $(ARGS)

undeploy: setup ## Remove it and its namespace (CRDS=1: all Instaslice objects too; FORCE=1: though pods hold slices)
	@$(if $(FORCE),,$(BIN)/instaslice drained || { echo 'To remove InstaSlice without asking who holds slices: make undeploy FORCE=1' >&2; exit 1; })
	$(HELM) uninstall $(RELEASE) --ignore-not-found --wait $(if $(FORCE),--no-hooks)
	$(KUBECTL) delete namespace instaslice-system --ignore-not-found
	$(if $(CRDS),$(KUBECTL) delete customresourcedefinition instaslices.gpu.das.com --ignore-not-found)
	$(if $(CRDS),,@echo 'The definition and the Instaslice objects stay; CRDS=1 removes them.')

##@ Change it

check: setup ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fmt: setup ## Format, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup ## Write what is generated: CONTRIBUTING.md lists it
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --group dev -o requirements.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --constraint requirements.txt -o requirements-runtime.txt pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 --constraint requirements.txt --group build -o requirements-build.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --python-version 3.11 -o bench/requirements.txt bench/requirements.in
	$(BIN)/python scripts/pin_modules.py
	$(BIN)/python scripts/write_chart.py
	$(BIN)/python scripts/write_values.py
	$(BIN)/python scripts/write_protos.py
	$(BIN)/python scripts/write_metrics.py
	$(BIN)/python scripts/write_reference.py

verify: check ## Check, and compare what is generated
	$(MAKE) generate
	git diff --exit-code -- requirements.txt requirements-runtime.txt requirements-build.txt bench/requirements.txt src/instaslice/local/modules charts/instaslice/files charts/instaslice/values.schema.json src/instaslice/agent/kubelet docs/metrics.md docs/values.md docs/reference

programs: setup ## Build what tests and demo start (about 10 minutes, once)
	@$(BIN)/instaslice fetch --real-node --kueue --helm $(if $(INSTASLICE_KUBERNETES),--kubernetes $(INSTASLICE_KUBERNETES))

# Side by side, see tests/blocks.py; use 1 on a single core.
LANES ?= 2
export INSTASLICE_KUBERNETES

test: setup programs ## All tests: unit, integration and e2e on a real Kubernetes (the first run builds it)
	$(BIN)/pytest -n $(LANES) --durations=15

unit: setup ## Unit tests only: minutes, no cluster
	$(BIN)/pytest tests/unit

mutants: setup ## Break the code in 100 small ways, and print those that no unit test notices (ARGS="--package kube --seed 7")
	@$(BIN)/python scripts/mutants.py $(ARGS)

verdicts: setup programs ## 1,000 random pods in a random cluster: kube-scheduler and InstaSlice agree (a few minutes)
	INSTASLICE_VERDICTS=1000 $(BIN)/pytest -s tests/integration/controller/test_same_verdict_in_random_clusters.py

picture: setup programs ## Draw docs/demo.svg from a run of the demo
	@$(BIN)/python scripts/draw_demo.py

##@ On a real GPU

test-gpu: ## Tests on a real, idle GPU, which they partition and leave as it was (INSTASLICE_TEST_GPU=0)
	@[ -d .carry ] || $(MAKE) --no-print-directory setup
	@PYTHON=$(PYTHON) scripts/gpu_check test

bench-gpu: ## What our driver adds to bare NVML on a real GPU, and what watching it costs
	@[ -d .carry ] || $(MAKE) --no-print-directory setup
	@PYTHON=$(PYTHON) scripts/gpu_check bench

##@ Benchmarks

BENCHES := bench-up bench-kube bench-placement bench-orders bench-policies bench-simulate bench-burst bench-calls bench-shapes bench-scrape bench-footprint

bench: $(BENCHES) ## All benchmarks, minutes each; or one:

# How long a warm `instaslice up` takes
bench-up: setup
	@$(BIN)/python bench/up.py

# CPU per event of our Kubernetes client, kopf and the official one
bench-kube: setup
	@[ -e .venv-bench/.ready ] && [ .venv-bench/.ready -nt bench/requirements.txt ] || \
		{ scripts/make_venv $(PYTHON) .venv-bench bench/requirements.txt && touch .venv-bench/.ready; }
	@$(BIN)/python bench/kube/run.py

# What one placement decision costs at 10 to 100,000 GPUs
bench-placement: setup
	@$(BIN)/python bench/placement.py

# How many arrival orders of valid layouts get stuck, by policy
bench-orders: setup
	@$(BIN)/python bench/orders.py

# Every policy in every regime, on held-out mixes
bench-policies: setup
	@$(BIN)/python bench/policies.py

# Ten thousand GPUs and a million pods: seconds and memory
bench-simulate: setup
	@$(BIN)/python bench/simulate.py

# Pods per second through the gate in a burst of 1,000, beside the bare loop
bench-burst: setup
	@$(BIN)/python bench/burst.py

# API calls per pod, on 1, 10 and 100 nodes
bench-calls: setup
	@$(BIN)/python bench/calls.py

# What 3,500 waiting pods of different shapes cost other pods
bench-shapes: setup
	@$(BIN)/python bench/shapes.py

# What one scrape costs the controller at 100 to 10,000 GPUs full of slices
bench-scrape: setup
	@$(BIN)/python bench/scrape.py

# Resident memory of our processes in the image, idle and with 1,000 pods (needs root)
bench-footprint: setup programs
	@$(BIN)/python bench/footprint.py

.PHONY: deploy undeploy image image-multiarch image-archive push sbom sign test-gpu bench-gpu help setup programs demo picture up down test unit mutants verdicts check fmt generate verify bench $(BENCHES)

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO   ?= go
BIN  := bin/gpumeter
# What `make run` starts, and where it keeps its data.
DATA ?= ./data
ARGS ?= --simulate 4 --simulate-history 24h --prices deploy/prices.example.yaml
# What `make test` and `make bench` look at.
PKG       ?= ./...
TESTFLAGS ?=
BENCH     ?= .
# How long `make soak` storms, and with which seed (none: a new one).
SOAK ?= 10m
SEED ?=

# The embedded ClickHouse comes as an npm package. GPUMETER_ENGINE_LIB names a
# library that is somewhere else; then nothing is installed.
ENGINE_STAMP := node_modules/.engine-installed
ENGINE_LIB   := $(or $(GPUMETER_ENGINE_LIB),$(wildcard node_modules/@chdb/lib-*/libchdb.*))

# The dashboard: built by Vite, embedded by web/ui.go.
UI           := web/ui
UI_INSTALLED := $(UI)/node_modules/.installed
UI_BUILT     := $(UI)/dist/index.html
UI_SOURCES   := $(shell find $(UI)/src $(UI)/public $(UI)/scripts -type f ! -name schema.d.ts) $(wildcard $(UI)/*.json $(UI)/*.ts $(UI)/*.html)

# What the browser tests need: a driver from npm, and a Chromium.
BROWSER          := test/browser
BROWSER_INSTALLED := $(BROWSER)/node_modules/.installed
export GPUMETER_CHROMIUM ?= $(or $(shell command -v chromium || command -v google-chrome),/usr/bin/chromium)

.PHONY: help engine page test-browser browser screenshots build run test soak size mutants bench fmt clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

ifdef GPUMETER_ENGINE_LIB
engine:
	@test -f "$$GPUMETER_ENGINE_LIB" || { echo "GPUMETER_ENGINE_LIB is $$GPUMETER_ENGINE_LIB and no file is there" >&2; exit 1; }
else
engine: $(ENGINE_STAMP) ## install the embedded ClickHouse (566 MB, once)
endif

# npm counts a package that could not be had as optional, so look for the file.
$(ENGINE_STAMP): package.json package-lock.json .npmrc $(if $(ENGINE_LIB),,FORCE)
	npm ci
	@ls node_modules/@chdb/lib-*/libchdb.* >/dev/null 2>&1 || { \
		echo "npm installed no ClickHouse library: there is one for linux (x64, arm64, glibc) and darwin (x64, arm64), and this is $$(uname -sm)" >&2; exit 1; }
	@touch $@

FORCE:

$(UI_INSTALLED): $(UI)/package.json $(UI)/package-lock.json $(UI)/.npmrc
	cd $(UI) && npm ci
	@touch $@

# Half a page must not look like a built one.
$(UI_BUILT): $(UI_INSTALLED) $(UI_SOURCES)
	cd $(UI) && npm run --silent build || { rm -f dist/index.html; exit 1; }

page: $(UI_BUILT) ## build the dashboard

$(BROWSER_INSTALLED): $(BROWSER)/package.json $(BROWSER)/package-lock.json $(BROWSER)/.npmrc
	cd $(BROWSER) && npm ci
	@touch $@

browser: $(BROWSER_INSTALLED) ## install what the browser tests need: npm packages, and a Chromium on Debian as root
	@test -x "$$GPUMETER_CHROMIUM" || { \
		if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ] && [ "$$GPUMETER_CHROMIUM" = /usr/bin/chromium ]; then \
			apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; \
		else \
			echo "there is no browser at $$GPUMETER_CHROMIUM: install Chromium, or name one in GPUMETER_CHROMIUM" >&2; exit 1; \
		fi; }

# The program that it starts goes with the recipe; its data and its log stay below DIR.
screenshots: engine build browser ## pictures of every page of a simulated fleet (DIR=tmp/screenshots)
	$(BROWSER)/screenshots.sh "$(abspath $(or $(DIR),tmp/screenshots))"

build: page ## build bin/gpumeter with the dashboard in it
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/gpumeter

run: engine build ## start everything on this machine (DATA=./data ARGS="...")
	exec $(BIN) up --data $(DATA) $(ARGS)

# -p 2: packages start engines of their own, and two of them at a time are
# enough for a small machine.
test: engine page ## vet, then all tests with the race detector (PKG=./... TESTFLAGS=)
	cd $(UI) && npm test --silent
	$(GO) vet $(PKG)
	$(GO) build -o bin/testsum ./internal/testkit/cmd/testsum
	$(GO) test -json -race -shuffle=on -count=1 -p 2 -timeout 30m $(TESTFLAGS) $(PKG) | bin/testsum

# In a target of its own until every one of them has passed many times on a busy
# machine: each waits for a real browser.
test-browser: engine page browser ## the tests of the dashboard in a headless Chromium
	$(GO) vet -tags browser ./test/browser
	$(GO) build -o bin/testsum ./internal/testkit/cmd/testsum
	$(GO) test -tags browser -json -count=1 -timeout 40m $(TESTFLAGS) ./test/browser | bin/testsum

# The test binary is run by itself, so that Ctrl-C is its own: the first one ends
# the run after its checks. Every wait in it has a limit, the whole has none.
soak: engine ## random load and faults against a model (SOAK=10m SEED=n)
	$(GO) test -c -o bin/soak.test ./test/soak
	cd test/soak && SOAK="$(SOAK)" SEED="$(SEED)" exec ../../bin/soak.test -test.v -test.run '^TestSoak$$' -test.timeout 0

# 10.8 million events, and a million instances in a day. Minutes, and some GiB in
# TMPDIR.
size: engine ## the large-data checks in full, with their time and memory
	GPUMETER_SIZE=full $(GO) test -count=1 -v -timeout 90m ./test/size

mutants: engine ## break the code one place at a time: which tests notice?
	$(GO) run ./internal/testkit/cmd/mutants -md docs/mutants.md test/mutants.txt

bench: engine ## all benchmarks (PKG=./... BENCH=.)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 -timeout 30m $(TESTFLAGS) $(PKG)

fmt: ## format the Go code
	$(GO) fmt ./...

clean: ## remove what was built; keeps data and the installed engine
	rm -rf bin
	find $(UI)/dist -mindepth 1 ! -name placeholder.txt -delete
	find . -path ./node_modules -prune -o -name '*.test' -type f -print -o -name '*.out' -type f -print | xargs -r rm -f

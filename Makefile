# The commands of this tree. `make` alone lists them.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET_DIR)/release
QUICK := $(TARGET_DIR)/quick
# The programs that the tests build: with the checks of a debug build, and made anyway.
TESTED := $(TARGET_DIR)/debug
XTASK := $(CARGO) run --quiet --locked --package xtask --
# A part that hangs is ended after so many minutes, and named: several times what it takes on two slow cores.
WITHIN := ./.ci/within
FUZZ_SECONDS ?= 60
# None named: all of them.
FUZZ_TARGETS ?=

# Seconds of each part of `make test`.
export MAILRACE_TEST_TIMES := $(abspath $(TARGET_DIR))/test-times

.DEFAULT_GOAL := help
.PHONY: help run test times setup fmt tidy rfc licences clippy lint tested unit clients interop oracle crash-short crash cluster-short cluster cluster-scaling deb image package bench bench-accept bench-relay bench-filtered bench-filtered-long bench-list fuzz

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(QUICK)/mailrace ## Build the program, show a relay under a storm and a kill -9, and leave it up on 127.0.0.1:2525
	$(QUICK)/mailrace demo

test: times setup lint unit clients interop oracle crash-short cluster-short package ## Run every check: lints, tests, RFC marks, licences, real clients and servers, sendmail's answers, short rigs of crashes and of a cluster, the Debian package
	@awk '{ printf "%-12s %5d s\n", $$1, $$2; all += $$2 } END { printf "%-12s %5d s\n", "all parts", all }' "$$MAILRACE_TEST_TIMES"

times:
	@mkdir -p $(TARGET_DIR) && rm -f "$$MAILRACE_TEST_TIMES"

setup: ## Install the programs the checks use that are not Rust (as root on Debian)
	@$(WITHIN) 30 setup ./.ci/setup

lint: fmt tidy rfc licences clippy ## Run the checks that only read: formatting, tidy, RFC marks, licences, clippy

fmt:
	$(CARGO) fmt --all --check

tidy:
	@$(WITHIN) 20 tidy $(XTASK) tidy

rfc:
	@$(XTASK) rfc-check

licences:
	$(XTASK) licences

clippy:
	$(WITHIN) 60 clippy $(CARGO) clippy --workspace --all-targets --features mailrace-bench/rigs --locked -- -D warnings
	$(WITHIN) 30 clippy $(CARGO) clippy --package mailrace-bench --all-targets --locked -- -D warnings

tested:
	@$(WITHIN) 90 unit-build $(CARGO) test --no-run --workspace --features mailrace-bench/rigs --locked

unit: tested ## Run the tests of all crates, documentation examples included
	@$(WITHIN) 120 unit $(XTASK) test-run
	@$(WITHIN) 30 examples $(CARGO) test --doc --workspace --features mailrace-bench/rigs --locked --quiet

$(QUICK)/mailrace: FORCE
	@$(WITHIN) 90 build $(CARGO) build --profile quick --locked --package mailrace
$(QUICK)/mailrace-bench: FORCE
	@$(WITHIN) 90 build $(CARGO) build --profile quick --locked --package mailrace-bench --features rigs
$(RELEASE)/mailrace: FORCE
	$(CARGO) build --release --locked --package mailrace
$(RELEASE)/mailrace-bench: FORCE
	$(CARGO) build --release --locked --package mailrace-bench --features rigs
.PHONY: FORCE
FORCE:

clients: setup tested ## Have every real client that is installed send to the server, and look for its mail; run list managers beside it
	@$(WITHIN) 40 clients ./bench/clients/against-mailrace.sh $(TESTED)/mailrace
	@$(WITHIN) 25 lists ./bench/lists/against-mailrace.py $(TESTED)/mailrace

interop: setup tested ## Relay to and from every other mail server that is installed, and compare each octet
	@$(WITHIN) 50 interop ./bench/interop/against-peers.py $(TESTED)/mailrace
	@$(WITHIN) 15 milters ./bench/interop/against-milters.py $(TESTED)/mailrace

oracle: setup ## Ask the real sendmail again what its recorded answers are (bench/oracle)
	@$(WITHIN) 25 oracle ./bench/oracle/sendmail install || echo "oracle: sendmail is not asked again"
	@$(WITHIN) 25 oracle ./bench/oracle/record --check

crash-short: tested ## Cut the power and kill the process a few times; no acknowledged message may be lost
	$(WITHIN) 40 crash-short $(TESTED)/mailrace-bench crash --short
	$(WITHIN) 15 crash-filters $(TESTED)/mailrace-bench crash --short --only relay --filters after

crash: setup $(QUICK)/mailrace $(QUICK)/mailrace-bench ## The same, a thousand times
	$(QUICK)/mailrace-bench crash

cluster-short: setup tested ## Kill, stop, cut off and drain nodes of a cluster behind HAProxy under a storm; no acknowledged message may be lost
	@$(WITHIN) 30 cluster-short ./bench/cluster/faults.py $(TESTED)/mailrace --short

# Another seed: make cluster CLUSTER_SEED=7
CLUSTER_SEED ?= 1
cluster: setup tested ## The same with every fault: full disks, lost stores, power cuts, split and slow networks, several at once, bad settings and engines, a directory that is away (most of an hour)
	./bench/cluster/faults.py $(TESTED)/mailrace --seed $(CLUSTER_SEED)
	./bench/cluster/bad_input.py $(TESTED)/mailrace
	./bench/cluster/ldap.py $(TESTED)/mailrace

# Rounds and seconds of a sample: make cluster-scaling CLUSTER_SCALING="--rounds 3 --seconds 5"
CLUSTER_SCALING ?=
cluster-scaling: $(RELEASE)/mailrace ## Measure what a node more brings, with a part of one core for each, and beside HAProxy (as root; an hour)
	./bench/cluster/scaling.py $(RELEASE)/mailrace --json $(RELEASE)/cluster-scaling.json $(CLUSTER_SCALING)
	./bench/cluster/scaling.py $(RELEASE)/mailrace --through haproxy --json $(RELEASE)/cluster-haproxy.json $(CLUSTER_SCALING)

deb: $(RELEASE)/mailrace ## Build the Debian package into target/deb
	@./packaging/deb/build $(RELEASE)/mailrace "$$($(CARGO) pkgid --package mailrace | sed 's/.*[@#]//')" $(TARGET_DIR)/deb

image: $(RELEASE)/mailrace ## Build the OCI image with podman, buildah or docker
	@./packaging/oci/build $(RELEASE)/mailrace "$$($(CARGO) pkgid --package mailrace | sed 's/.*[@#]//')"

package: setup tested ## Install, use, upgrade, remove and purge the Debian package in a fresh Debian root; build and run the image
	@rm -rf $(TARGET_DIR)/debian-root
	@KEEP_ROOT=$(TARGET_DIR)/debian-root $(WITHIN) 25 package ./packaging/deb/in-clean-root $(TESTED)/mailrace
	@$(WITHIN) 25 image ./packaging/oci/in-buildah $(TESTED)/mailrace $(TARGET_DIR)/debian-root
	@rm -rf $(TARGET_DIR)/debian-root

bench: bench-accept bench-relay bench-filtered bench-list ## Measure accepting, relaying, scanners and lists beside other servers

bench-accept: $(RELEASE)/mailrace $(RELEASE)/mailrace-bench
	@./bench/peers/peer install || echo "bench: other servers are left out"
	$(RELEASE)/mailrace-bench accept

bench-relay: $(RELEASE)/mailrace $(RELEASE)/mailrace-bench
	@./bench/peers/peer install || echo "bench: other servers are left out"
	$(RELEASE)/mailrace-bench relay

bench-filtered: $(RELEASE)/mailrace $(RELEASE)/mailrace-bench ## Measure scanners before and after the 250 beside Postfix (two minutes)
	@./bench/peers/peer install postfix || echo "bench: other servers are left out"
	$(RELEASE)/mailrace-bench filtered --sessions 20 --seconds 12 --scanners clamd
	$(RELEASE)/mailrace-bench filtered --sessions 20 --seconds 12 --scanners distant --contenders mailrace,mailrace-after

# A line each minute. The time is that of each contender; mail that waits at the end is waited for as long again.
FILTERED_SECONDS ?= 1800
FILTERED_CONTENDERS ?= mailrace-after
bench-filtered-long: $(RELEASE)/mailrace $(RELEASE)/mailrace-bench ## Have SpamAssassin and ClamAV asked after the 250 for half an hour, to see whether intake collapses
	$(RELEASE)/mailrace-bench filtered --sessions 20 --seconds $(FILTERED_SECONDS) --drain $(FILTERED_SECONDS) \
	  --scanners spamd,clamd --contenders $(FILTERED_CONTENDERS)

bench-list: $(RELEASE)/mailrace $(RELEASE)/mailrace-bench ## Measure lists on a simulated internet with dead, hung and slow hosts (as root; half an hour to an hour)
	@./bench/peers/peer install postfix exim sendmail || echo "bench: other servers are left out"
	$(RELEASE)/mailrace-bench list

fuzz: ## Fuzz every decoder for FUZZ_SECONDS (60) each, or FUZZ_TARGETS, and sum up; needs nightly and cargo-fuzz
	@$(XTASK) fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Makefile - the front of the build. The work is in meson.build and in tools/; each target here is
# what a person, a test machine and the clean room all run. `make check` is the one that counts.
#
#   make                  build/cove, one file; build/cove-guest for other machines
#   make demo             what it looks like, in a minute
#   make check            lint, unit tests, fuzz seeds, escapes, a minute of faults, end to end, the core again under ASan:
#                         about a quarter of an hour on two processors
#   make check-full       every compiler, build type, sanitizer and SDK line; GROUP=tsan: one group of them (tools/check)
#   make asan tsan fuzz   one kind of test alone; FUZZ_SECONDS=60 for each fuzz target
#   make faults           a thousand kills, spoilt files, reboots and more, 20,000 sandboxes: what is promised holds (as root)
#   make lint format      static analysis; lay out the source
#   make install          PREFIX=/usr/local DESTDIR=
#   make bench measure cleanroom deps clean

PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 60

.PHONY: all deps demo check check-full bench asan tsan fuzz faults lint format install cleanroom measure clean

all:
	@tools/deps build
	@tools/build release program

deps:
	@tools/deps check

demo: all
	@tools/deps sdk
	@tools/demo

check check-full:
	@tools/deps packages
	@tools/check $(if $(filter check-full,$@),--full $(GROUP))

asan tsan: deps
	@tools/check --only $@

fuzz: deps
	@tools/fuzz $(FUZZ_SECONDS)

faults: deps
	@tools/build release
	@COVE_FAULTS_LONG=1 tools/faults build

lint: deps
	@tools/lint

format: deps
	@tools/lint --fix format

bench: all
	@tools/deps bench
	@tools/build release
	@tools/build release bench
	@tests/bench/run

install: all
	@tools/build install "$(PREFIX)" "$(DESTDIR)"

cleanroom:
	@tools/deps cleanroom
	@tools/cleanroom

measure:
	@tools/measure

clean:
	rm -rf build build-*

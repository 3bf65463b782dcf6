# A thin front of CMake: the few words a person types. Everything real is in CMakeLists.txt.
BUILD     ?= build
SANITIZE  ?= build-sanitize
PREFIX    ?= /usr/local
CMAKE     ?= cmake
JOBS      ?= $(shell nproc 2>/dev/null || echo 2)
GENERATOR := $(if $(shell command -v ninja 2>/dev/null),-G Ninja,)

.PHONY: all demo test bench install sanitize clang fuzz fuzz-short format deps clean

all: $(BUILD)/CMakeCache.txt
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

$(BUILD)/CMakeCache.txt: | deps
	@$(CMAKE) -S . -B $(BUILD) $(GENERATOR) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

# Installs what is missing of the Debian packages the build and the tests need.
deps:
	@sh scripts/deps.sh

# The command alone: the tests need not be built to see it at work.
demo: deps $(BUILD)/CMakeCache.txt
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target dsmoe
	@sh scripts/demo.sh $(BUILD)/dsmoe

test: deps all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: all
	@bench/layer.py $(BUILD)/dsmoe
	@bench/train.py $(BUILD)/dsmoe

# The same tests under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize: deps
	@$(CMAKE) -S . -B $(SANITIZE) $(GENERATOR) -DDSMOE_SANITIZE=ON
	@$(CMAKE) --build $(SANITIZE) -j $(JOBS)
	@cd $(SANITIZE) && ctest --output-on-failure -j $(JOBS)

# A second opinion on warnings.
clang: deps
	@$(CMAKE) -S . -B build-clang $(GENERATOR) -DCMAKE_C_COMPILER=clang -DDSMOE_WERROR=ON
	@$(CMAKE) --build build-clang -j $(JOBS)

# Every parser of foreign files against whatever libFuzzer can think of, that many seconds each.
FUZZ_SECONDS ?= 600
fuzz:
	@sh scripts/deps.sh clang libclang-rt-dev
	@$(CMAKE) -S . -B build-fuzz $(GENERATOR) -DCMAKE_C_COMPILER=clang -DDSMOE_FUZZ=ON
	@$(CMAKE) --build build-fuzz -j $(JOBS)
	@sh fuzz/run.sh build-fuzz $(FUZZ_SECONDS)

fuzz-short:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=5

install: all
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) $(SANITIZE) build-clang build-fuzz

# A thin wrapper around CMake, for the few commands that people type. The build itself is in CMakeLists.txt.
BUILD     ?= build
SANITIZE  ?= build-sanitize
TSAN      ?= build-tsan
CLANG     ?= build-clang
FUZZ      ?= build-fuzz
PREFIX    ?= /usr/local
CMAKE     ?= cmake
JOBS      ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE

deps      := @sh scripts/deps.sh
configure := @sh scripts/configure.sh
build     := @$(CMAKE) --build
ctest     := @ctest --output-on-failure -j $(JOBS) --test-dir

.PHONY: all configure demo test test-web test-mpi bench install sanitize tsan clang fuzz fuzz-short format clean

# What is installed, and no more: tests are built by make test.
all: configure
	$(build) $(BUILD) -j $(JOBS) --target dsmoe --target shared --target archive --target plugins

configure:
	$(deps) build
	$(configure) $(BUILD) -DDSMOE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX)

demo: configure
	$(build) $(BUILD) -j $(JOBS) --target dsmoe
	@sh scripts/demo.sh $(BUILD)/dsmoe

# The tests run with asserts; what is released is built beside them and tested too.
test: configure
	$(deps) test
	@$(CMAKE) -S . -B $(BUILD) -DDSMOE_TESTS=ON
	$(build) $(BUILD) -j $(JOBS)
	$(ctest) $(BUILD)

# The page in a browser, and the server under the official client.
test-web: all
	$(deps) web
	@sh scripts/test_web.sh $(BUILD)/dsmoe

# The same training on several ranks under mpirun.
test-mpi: configure
	$(deps) test mpi
	@$(CMAKE) -S . -B $(BUILD) -DDSMOE_TESTS=ON
	$(build) $(BUILD) -j $(JOBS) --target dsmoe --target dsmoe_mpi --target test_mpi
	@sh scripts/test_mpi.sh $(BUILD)

bench: all
	@bench/layer.py $(BUILD)/dsmoe
	@bench/train.py $(BUILD)/dsmoe

# The same tests under AddressSanitizer and UndefinedBehaviorSanitizer.
sanitize:
	$(deps) build test
	$(configure) $(SANITIZE) -DDSMOE_SANITIZE=address
	$(build) $(SANITIZE) -j $(JOBS)
	$(ctest) $(SANITIZE)

# The tests that use threads, under ThreadSanitizer.
tsan:
	$(deps) build test
	$(configure) $(TSAN) -DDSMOE_SANITIZE=thread
	$(build) $(TSAN) -j $(JOBS) --target tests_with_threads
	$(ctest) $(TSAN) -L threads

# A second compiler: its warnings are errors, and its code passes the tests of every module.
clang:
	$(deps) build test clang
	$(configure) $(CLANG) -DCMAKE_C_COMPILER=clang -DDSMOE_WERROR=ON
	$(build) $(CLANG) -j $(JOBS)
	$(ctest) $(CLANG) -L module

# Every parser of foreign files against whatever libFuzzer can think of, that many seconds each.
FUZZ_SECONDS ?= 600
fuzz:
	$(deps) build fuzz
	$(configure) $(FUZZ) -DCMAKE_C_COMPILER=clang -DDSMOE_FUZZ=ON
	$(build) $(FUZZ) -j $(JOBS)
	@sh fuzz/run.sh $(FUZZ) $(FUZZ_SECONDS)

fuzz-short:
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=3

install: all
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	@rm -rf $(BUILD) $(SANITIZE) $(TSAN) $(CLANG) $(FUZZ)

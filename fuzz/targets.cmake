# Fuzz targets: they use libFuzzer, so they need clang. The library is compiled for them under the sanitizers, with
# asserts. CMakeLists.txt includes this file, so that its sources keep their own flags.
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "fuzzing needs clang: configure with -DCMAKE_C_COMPILER=clang")
endif()

add_library(fuzz_options INTERFACE)
target_link_libraries(fuzz_options INTERFACE dsmoe_options dsmoe_needs)
target_compile_options(fuzz_options INTERFACE -O1 -g -UNDEBUG -fno-omit-frame-pointer
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)

# Kernels read no files, and clang takes minutes to instrument all their accesses, so they are compiled as released.
set(kernels ${sources})
list(FILTER kernels INCLUDE REGEX "/src/kernels/")
list(FILTER sources EXCLUDE REGEX "/src/kernels/")
add_library(fuzz_kernels STATIC ${kernels})
target_link_libraries(fuzz_kernels PRIVATE dsmoe_options)

file(GLOB requests CONFIGURE_DEPENDS src/serve/request*.c)
add_library(fuzzed STATIC ${sources} ${requests} src/serve/client_events.c src/cli/json_line.c src/cli/common.c)
target_link_libraries(fuzzed PRIVATE fuzz_options PUBLIC fuzz_kernels)

foreach(name safetensors gguf index config tokenizer documents dialogue settings json_line imatrix
  data_cache metrics request client_events adapter_config tasks expert_choice)
  add_executable(fuzz_${name} fuzz/fuzz_${name}.c)
  target_link_libraries(fuzz_${name} PRIVATE fuzz_options fuzzed)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
endforeach()
target_link_options(fuzz_data_cache PRIVATE -Wl,--wrap=hash_bytes_as)

# Included by CMake at every project() of the inference library's build.
# llama-cpp-python forces the "common" library on, which Stackscope never loads and which is half of the build. Turning
# off its option needs a variable of the directory itself, because the binding overwrites the cached one.
set(LLAMA_BUILD_COMMON OFF)

# With some GCC, what ggml does on processors with AMX crashes: tile-config.h says why.
if(PROJECT_NAME STREQUAL "ggml" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/tile-config.h\">")
endif()

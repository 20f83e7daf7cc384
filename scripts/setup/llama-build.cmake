# Included by CMake at every project() of the inference library's build.
# llama-cpp-python forces the "common" library on, which Stackscope never loads and which is half of the build. Turning
# off its option needs a variable of the directory itself, because the binding overwrites the cached one.
set(LLAMA_BUILD_COMMON OFF)

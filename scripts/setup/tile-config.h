/* Put before every C++ file of ggml, on GCC: see llama-build.cmake.

   GCC's own `_tile_loadconfig` tells the compiler that it reads 8 bytes, where the instruction reads 64 (GCC bug 114098,
   mended in 11.5, 12.4, 13.3 and 14.1). What ggml puts into the other 56 is then left out as never read, and on
   processors with AMX the first product with quantised weights ends in SIGSEGV. */
#if defined(__AMX_TILE__) && defined(__cplusplus) && !defined(STACKSCOPE_TILE_CONFIG)
#define STACKSCOPE_TILE_CONFIG
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))
#endif

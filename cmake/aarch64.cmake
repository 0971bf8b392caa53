# Debian's cross compiler. ONESIDED_CROSS_ROOT is a root folder of an arm64 Debian with libssl-dev, libpython3-dev and
# libgtest-dev (tools/commands/roots.py makes it): what is linked comes from there. Without it the core compiles, and
# nothing is linked. fmt's and spdlog's headers are the build machine's own.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONESIDED_CROSS_ROOT)

# The build machine's multiarch folder, which CMake does not search for another processor.
execute_process(COMMAND gcc -print-multiarch OUTPUT_VARIABLE build_multiarch OUTPUT_STRIP_TRAILING_WHITESPACE)
set(fmt_DIR /usr/lib/${build_multiarch}/cmake/fmt CACHE PATH "")
set(spdlog_DIR /usr/lib/${build_multiarch}/cmake/spdlog CACHE PATH "")
set(OPENSSL_INCLUDE_DIR /usr/include CACHE PATH "")
if(ONESIDED_CROSS_ROOT)
  set(cross_libraries ${ONESIDED_CROSS_ROOT}/usr/lib/aarch64-linux-gnu)
  set(OPENSSL_CRYPTO_LIBRARY ${cross_libraries}/libcrypto.a CACHE FILEPATH "")
  set(GTest_DIR ${cross_libraries}/cmake/GTest CACHE PATH "")
  file(GLOB cross_python ${ONESIDED_CROSS_ROOT}/usr/include/python3.*)
  set(Python_INCLUDE_DIR ${cross_python} CACHE PATH "")
  set(cross_include ${ONESIDED_CROSS_ROOT}/usr/include)
else()
  set(OPENSSL_CRYPTO_LIBRARY /usr/lib/${build_multiarch}/libcrypto.so CACHE FILEPATH "")
  set(cross_include /usr/include/${build_multiarch})
endif()
# openssl/configuration.h and Python's pyconfig.h lie there. Last in the search, so that everything else is the compiler's.
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${cross_include} -idirafter ${cross_include}/aarch64-linux-gnu")

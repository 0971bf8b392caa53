# Debian's cross compiler, to prove that the core compiles for aarch64; nothing is linked. fmt and spdlog are headers
# only, of OpenSSL only headers are used, so the build machine's own packages serve.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# The build machine's multiarch folder, which CMake does not search for another processor.
execute_process(COMMAND gcc -print-multiarch OUTPUT_VARIABLE build_multiarch OUTPUT_STRIP_TRAILING_WHITESPACE)
set(fmt_DIR /usr/lib/${build_multiarch}/cmake/fmt CACHE PATH "")
set(spdlog_DIR /usr/lib/${build_multiarch}/cmake/spdlog CACHE PATH "")
set(OPENSSL_INCLUDE_DIR /usr/include CACHE PATH "")
set(OPENSSL_CRYPTO_LIBRARY /usr/lib/${build_multiarch}/libcrypto.so CACHE FILEPATH "")
# openssl/configuration.h lies there. Last in the search, so that everything else is aarch64's.
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include/${build_multiarch}")

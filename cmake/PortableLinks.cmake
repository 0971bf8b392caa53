# Libraries that load on every system with glibc 2.28 or newer, whatever the build machine has: what ./do wheel packs.
#
# ONESIDED_GLIBC_STUBS names a folder with stand-ins of glibc's libraries: the symbols of 2.28 and no code. The linker
# takes versions from them, so a newer function is an undefined symbol here and not a failure on the user's machine.
# libstdc++ stays shared, because torch's is in the same process and two of them would not know each other's exceptions;
# what g++ 12 asks of it beyond gcc 8's is in portable/later_symbols.cc. fmt and libcrypto are linked statically.
set(ONESIDED_GLIBC_STUBS "" CACHE PATH "Folder with stand-ins of an old glibc, see cmake/PortableLinks.cmake; empty: the machine's own")

macro(onesided_portable_links)
  set(later_symbols ${CMAKE_BINARY_DIR}/portable/later_symbols.o)
  set(later_symbols_source ${CMAKE_SOURCE_DIR}/cmake/portable/later_symbols.cc)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/portable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${later_symbols_source})
  # Now and not as a target: it has to stand behind every other library of every link, also CMake's own tests.
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -fPIC -Wall -Wextra -ffunction-sections -fdata-sections -c ${later_symbols_source} -o ${later_symbols}
    COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${CMAKE_BINARY_DIR}/portable/liblater_symbols.a)
  execute_process(COMMAND ${CMAKE_AR} rcs ${CMAKE_BINARY_DIR}/portable/liblater_symbols.a ${later_symbols} COMMAND_ERROR_IS_FATAL ANY)
  foreach(kind SHARED MODULE)
    string(APPEND CMAKE_${kind}_LINKER_FLAGS " -L${ONESIDED_GLIBC_STUBS} -Wl,--exclude-libs,libonesided_fmt.a:libcrypto.a:liblater_symbols.a:libc_nonshared.a -Wl,--gc-sections -Wl,-s")
  endforeach()
  string(APPEND CMAKE_SHARED_LINKER_FLAGS " -Wl,--no-undefined")
  # A library of 2018 has its threads, clocks and loader in libraries beside libc.
  string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " ${CMAKE_BINARY_DIR}/portable/liblater_symbols.a -lpthread -ldl -lrt")

  add_library(onesided_fmt STATIC ${CMAKE_SOURCE_DIR}/cmake/portable/fmt_library.cc)
  add_library(fmt::fmt ALIAS onesided_fmt)
  add_library(onesided_fmt_header_only INTERFACE)
  target_compile_definitions(onesided_fmt_header_only INTERFACE FMT_HEADER_ONLY=1)
  add_library(fmt::fmt-header-only ALIAS onesided_fmt_header_only)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
endmacro()

# Declares a module (a folder under src/onesided): its sources are what lies in the folder, its
# unit tests are the *_test.cc beside them, and it may use only the modules it names.

# Warnings and sanitizers for every target of ours.
function(onesided_target_defaults target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${target} PRIVATE -Wthread-safety -Werror=thread-safety)
  endif()
  if(ONESIDED_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${ONESIDED_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${ONESIDED_SANITIZE})
  endif()
endfunction()

# onesided_module(memory DEPENDS device [LINK lib...]): static library onesided_memory; tests onesided_memory_<name>.
function(onesided_module name)
  cmake_parse_arguments(MODULE "" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(onesided_${name} STATIC ${sources})
    set(scope PUBLIC)
    onesided_target_defaults(onesided_${name})
  else()
    add_library(onesided_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(onesided_${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  list(TRANSFORM MODULE_DEPENDS PREPEND onesided_)
  target_link_libraries(onesided_${name} ${scope} ${MODULE_DEPENDS} ${MODULE_LINK})
  if(ONESIDED_BUILD_TESTS)
    foreach(test ${tests})
      get_filename_component(stem ${test} NAME_WE)
      onesided_test(onesided_${name}_${stem} SOURCES ${test} LINK onesided_${name})
      if(NOT TARGET onesided_unit_tests)
        add_custom_target(onesided_unit_tests)
      endif()
      add_dependencies(onesided_unit_tests onesided_${name}_${stem})
    endforeach()
  endif()
endfunction()

# onesided_test(name SOURCES ... LINK ...): one GoogleTest program, one ctest entry.
function(onesided_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  onesided_target_defaults(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # a quarter less to compile; what they test is -O3
  target_link_libraries(${name} PRIVATE ${TEST_LINK} GTest::gmock GTest::gtest_main Threads::Threads)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT})
endfunction()

# Where a library or module goes: FOLDER is relative to the Python package. In place for development, installed by pip.
# The target onesided_package builds them all.
function(onesided_package_target target folder)
  if(ONESIDED_INPLACE)
    set_target_properties(${target} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/python/onesided/${folder}
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/python/onesided/${folder})
  endif()
  if(NOT TARGET onesided_package)
    add_custom_target(onesided_package)
  endif()
  add_dependencies(onesided_package ${target})
  install(TARGETS ${target}
    LIBRARY DESTINATION onesided/${folder} COMPONENT python
    RUNTIME DESTINATION onesided/${folder} COMPONENT python)
endfunction()

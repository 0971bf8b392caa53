# Which torch and torch_npu the libraries over them are built for. ONESIDED_TORCH_FOLDERS lists folders that each hold
# torch/ and torch_npu/ as their wheels unpack: a site-packages, or wheels of another processor that were only unpacked.
# One build serves all of them. Empty: what the Python in use has. `./do matrix --folders` prints the list of its cache.
set(ONESIDED_TORCH_FOLDERS "" CACHE STRING "Folders with torch/ and torch_npu/ to build for; empty: those of the Python in use")

# The version that a package's version.py states, without the local part: 2.10.0.post4. Empty: there is none.
function(onesided_stated_version package_folder result)
  set(version "")
  if(EXISTS ${package_folder}/version.py)
    file(STRINGS ${package_folder}/version.py line REGEX "^__version__ = ")
    string(REGEX REPLACE "^__version__ = ['\"]([0-9a-z.]+).*" "\\1" version "${line}")
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# "2.10" of 2.10.0.post4: what is built for one minor version of torch loads in no other.
function(onesided_minor_version version result)
  string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" minor "${version}")
  set(${result} "${minor}" PARENT_SCOPE)
endfunction()

# Asked of the files, not by importing: torch_npu does not import where no Ascend runtime is.
function(onesided_torch_folders result)
  set(folders ${ONESIDED_TORCH_FOLDERS})
  if(NOT folders)
    find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util as u, pathlib as p; s = u.find_spec('torch'); print(p.Path(s.origin).parents[1] if s else '')"
      OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE folders ERROR_QUIET)
  endif()
  foreach(folder ${folders})
    if(NOT EXISTS ${folder}/torch/version.py)
      message(FATAL_ERROR "ONESIDED_TORCH_FOLDERS: ${folder} holds no torch/version.py; give the folder that holds torch/")
    endif()
  endforeach()
  set(${result} "${folders}" PARENT_SCOPE)
endfunction()

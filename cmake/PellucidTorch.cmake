# pellucid::torch: LibTorch of the torch wheel, as a target of our own.
#
# Not find_package(Torch): that puts the wheel's include folder first, where its old copies of fmt, pybind11 and
# protobuf shadow the system's, and wants a CUDA toolkit for CUDA wheels. Found through PELLUCID_TORCH_DIR (the
# folder that holds include/ and lib/) or else the Python that has torch. The installed package includes this file too.
set(PELLUCID_TORCH_VERSION 2.13.0)
set(PELLUCID_TORCH_DIR "" CACHE PATH "The folder of the torch package: holds include/ and lib/")

# What was found by itself the last time is looked for again: a pip build's torch lies in a folder that vanishes.
if(NOT PELLUCID_TORCH_DIR OR "${PELLUCID_TORCH_DIR}" STREQUAL "${PELLUCID_TORCH_FOUND}")
  unset(PELLUCID_TORCH_DIR CACHE)
  set(PELLUCID_TORCH_DIR "" CACHE PATH "The folder of the torch package: holds include/ and lib/")
  set(python_candidates "${Python_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python" python3)
  foreach(python IN LISTS python_candidates)
    if(NOT python)
      continue()
    endif()
    # find_spec, not import: importing torch takes seconds.
    execute_process(
      COMMAND ${python} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND EXISTS "${found}/lib/libtorch_cpu.so")
      set(PELLUCID_TORCH_DIR "${found}" CACHE PATH "The folder of the torch package" FORCE)
      set(PELLUCID_TORCH_FOUND "${found}" CACHE INTERNAL "PELLUCID_TORCH_DIR as found without being told")
      break()
    endif()
  endforeach()
endif()
if(NOT EXISTS "${PELLUCID_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR
    "pellucid: no LibTorch found. Install it (pip install torch==${PELLUCID_TORCH_VERSION}) or pass "
    "-DPELLUCID_TORCH_DIR=/path/to/torch, the folder that holds include/ and lib/.")
endif()

# C++ interfaces of torch change with every release.
file(STRINGS "${PELLUCID_TORCH_DIR}/version.py" found REGEX "^__version__")
if(NOT found MATCHES "['\"]${PELLUCID_TORCH_VERSION}([+'\"]|$)")
  message(FATAL_ERROR
    "pellucid: ${PELLUCID_TORCH_DIR} is not torch ${PELLUCID_TORCH_VERSION} (${found}). Point PELLUCID_TORCH_DIR to "
    "that version, or install it: pip install torch==${PELLUCID_TORCH_VERSION}.")
endif()

if(NOT TARGET pellucid::torch)
  add_library(pellucid::torch INTERFACE IMPORTED GLOBAL)
  # -idirafter: the system's headers win over the wheel's copies.
  target_compile_options(pellucid::torch INTERFACE
    "SHELL:-idirafter ${PELLUCID_TORCH_DIR}/include"
    "SHELL:-idirafter ${PELLUCID_TORCH_DIR}/include/torch/csrc/api/include")
  # The guards stop the 11-second headers from creeping in: ATen/ops/<op>.h only.
  target_compile_definitions(pellucid::torch INTERFACE AT_PER_OPERATOR_HEADERS _GLIBCXX_USE_CXX11_ABI=1)
  set(torch_libraries
    ${PELLUCID_TORCH_DIR}/lib/libtorch.so ${PELLUCID_TORCH_DIR}/lib/libtorch_cpu.so
    ${PELLUCID_TORCH_DIR}/lib/libc10.so)
  if(EXISTS ${PELLUCID_TORCH_DIR}/lib/libtorch_cuda.so)
    list(APPEND torch_libraries ${PELLUCID_TORCH_DIR}/lib/libtorch_cuda.so ${PELLUCID_TORCH_DIR}/lib/libc10_cuda.so)
  endif()
  # By full path: CMake puts their folder into the run path of everything built here. --no-as-needed: libtorch_cuda
  # registers its kernels when it is loaded; nothing refers to it by name.
  target_link_libraries(pellucid::torch INTERFACE -Wl,--no-as-needed ${torch_libraries})
endif()

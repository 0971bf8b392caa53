// The buffer protocol where the stable ABI of Python 3.10 is asked for. Python 3.11 made it part of the stable ABI as
// it had been since 3.3; 3.10 has the same structure and functions, and hides them.
#pragma once

#include <nanobind/nanobind.h>

#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030B0000
// Names and order are Python's: docs.python.org/3/c-api/buffer.html.
struct Py_buffer {
  void* buf;
  PyObject* obj;
  Py_ssize_t len;
  Py_ssize_t itemsize;
  int readonly;
  int ndim;
  char* format;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  Py_ssize_t* suboffsets;
  void* internal;
};

extern "C" {
int PyObject_CheckBuffer(PyObject* object);
int PyObject_GetBuffer(PyObject* object, Py_buffer* view, int flags);
int PyBuffer_IsContiguous(const Py_buffer* view, char order);
int PyBuffer_FillInfo(Py_buffer* view, PyObject* owner, void* memory, Py_ssize_t nbytes, int readonly, int flags);
void PyBuffer_Release(Py_buffer* view);
}

inline constexpr int PyBUF_SIMPLE = 0;
inline constexpr int PyBUF_WRITABLE = 1;
inline constexpr int PyBUF_FORMAT = 4;
inline constexpr int PyBUF_ND = 8;
inline constexpr int PyBUF_STRIDES = 0x10 | PyBUF_ND;
inline constexpr int PyBUF_C_CONTIGUOUS = 0x20 | PyBUF_STRIDES;
inline constexpr int PyBUF_INDIRECT = 0x100 | PyBUF_STRIDES;
inline constexpr int PyBUF_STRIDED_RO = PyBUF_STRIDES;
inline constexpr int PyBUF_FULL_RO = PyBUF_INDIRECT | PyBUF_FORMAT;
#endif

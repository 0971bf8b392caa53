// The items of a transfer as Python arguments: a list of tuples, an array without a Python object per item, or items
// bound to descriptors.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "buffer_protocol.h"
#include "onesided/engine/remote_regions.h"

namespace onesided::python {

// The memory of an array argument. Requires the GIL; keeps the memory alive.
class ArrayView {
 public:
  ArrayView() = default;
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;
  ~ArrayView() {
    if (is_open_) PyBuffer_Release(&buffer_);
  }
  // False, without an exception: the object has no memory of this kind (PyBUF_...). `bytes` are not an array.
  bool open(nanobind::handle object, int kind);
  const Py_buffer* operator->() const { return &buffer_; }

 private:
  Py_buffer buffer_{};
  bool is_open_ = false;
};

// The items of one call. An array is not copied: it is kept alive and must not change during the call.
class ItemsArgument {
 public:
  // [(local, remote, nbytes), ...], an N x 3 array of 64-bit integers, or BoundItems. Raises EngineError PARAM_INVALID.
  explicit ItemsArgument(nanobind::handle descs);
  const TransferList& list() const { return list_; }

 private:
  ArrayView array_;
  std::vector<TransferItem> items_;
  TransferList list_;
};

// Rows of `columns` 64-bit integers from a list of tuples or an array, row by row in one vector. `what` names them in
// errors. Raises EngineError PARAM_INVALID.
std::vector<std::uint64_t> rows_of(nanobind::handle rows, std::size_t columns, const char* what);

}  // namespace onesided::python

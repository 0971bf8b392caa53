// Why: what to move comes as a list of tuples, as an array without a Python object per item, or bound to descriptors.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "onesided/engine/remote_regions.h"

namespace onesided::python {

// The items of one call. An array is not copied: it is kept alive and must not change meanwhile.
class ItemsArgument {
 public:
  // [(local, remote, nbytes), ...], an N x 3 array of 64-bit integers, or BoundItems. Raises EngineError PARAM_INVALID.
  explicit ItemsArgument(nanobind::handle descs);
  ItemsArgument(const ItemsArgument&) = delete;
  ItemsArgument& operator=(const ItemsArgument&) = delete;
  ~ItemsArgument();
  const TransferList& list() const { return list_; }

 private:
  Py_buffer buffer_{};
  bool has_buffer_ = false;
  std::vector<TransferItem> items_;
  TransferList list_;
};

// Rows of `columns` 64-bit integers from a list of tuples or an array, row by row in one vector. `what` names them in
// errors. Raises EngineError PARAM_INVALID.
std::vector<std::uint64_t> rows_of(nanobind::handle rows, std::size_t columns, const char* what);

}  // namespace onesided::python

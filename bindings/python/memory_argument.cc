#include "memory_argument.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <string>

#include "buffer_protocol.h"
#include "errors.h"

namespace nb = nanobind;

namespace onesided::python {
namespace {

MemType type_of(nb::handle type) {
  if (MemType value{}; nb::try_cast(type, value)) return value;
  if (std::string name; nb::try_cast(type, name)) {
    if (name == "host") return MemType::kHost;
    if (name == "device") return MemType::kDevice;
    raise_invalid(fmt::format("memory type \"{}\": expected \"host\" or \"device\"", name));
  }
  raise_invalid("the memory type must be \"host\", \"device\" or a MemType");
}

std::uint64_t word_of(nb::handle value, const char* what) {
  std::uint64_t word = 0;
  if (nb::try_cast(value, word)) return word;
  const auto index = nb::steal(PyNumber_Index(value.ptr()));
  PyErr_Clear();
  if (index.is_valid() && nb::try_cast(index, word)) return word;
  raise_invalid(fmt::format("{} must be an integer from 0 to 2^64 - 1", what));
}

MemoryArgument of_tensor(nb::handle tensor) {
  if (!nb::cast<bool>(tensor.attr("is_contiguous")()))
    raise_invalid(
        "the tensor is not contiguous, so its bytes are not one range; register tensor.contiguous(), or its storage");
  const auto device = nb::cast<std::string>(tensor.attr("device").attr("type"));
  if (device != "cpu" && device != "npu")
    raise_invalid(fmt::format("a tensor on {}: only cpu and npu memory can be registered", device));
  return {nb::cast<std::uint64_t>(tensor.attr("data_ptr")()), nb::cast<std::uint64_t>(tensor.attr("nbytes")),
          device == "cpu" ? MemType::kHost : MemType::kDevice, nb::borrow(tensor)};
}

MemoryArgument of_object(nb::handle memory) {
  if (nb::hasattr(memory, "data_ptr")) return of_tensor(memory);
  if (nb::hasattr(memory, "addr") && nb::hasattr(memory, "nbytes"))
    return {word_of(memory.attr("addr"), "addr"), word_of(memory.attr("nbytes"), "nbytes"), MemType::kHost,
            nb::borrow(memory)};
  // Holding a view prevents resizable objects (bytearray, array.array) from moving their memory.
  auto view = nb::steal(PyMemoryView_FromObject(memory.ptr()));
  PyErr_Clear();
  if (!view.is_valid())
    raise_invalid("memory to register is (addr, nbytes), a tensor, or an object with the buffer protocol");
  Py_buffer buffer;
  if (PyObject_GetBuffer(view.ptr(), &buffer, PyBUF_FULL_RO) != 0) throw nb::python_error();
  const bool is_one_range = PyBuffer_IsContiguous(&buffer, 'C') != 0;
  const auto address = reinterpret_cast<std::uint64_t>(buffer.buf);
  const auto nbytes = static_cast<std::uint64_t>(buffer.len);
  PyBuffer_Release(&buffer);  // the view holds the memory from here on
  if (!is_one_range) raise_invalid("the array is not contiguous, so its bytes are not one range");
  return {address, nbytes, MemType::kHost, std::move(view)};
}

}  // namespace

MemoryArgument MemoryArgument::from(nb::handle memory, nb::handle nbytes, nb::handle type) {
  if (!nbytes.is_none())
    return {word_of(memory, "addr"), word_of(nbytes, "nbytes"), type.is_none() ? MemType::kHost : type_of(type),
            nb::none()};
  if (PyLong_Check(memory.ptr())) raise_invalid("an address requires nbytes");
  auto argument = of_object(memory);
  if (!type.is_none() && type_of(type) != argument.type)
    raise_invalid(fmt::format("that memory is {}", argument.type == MemType::kHost ? "\"host\"" : "\"device\""));
  return argument;
}

void RegisteredObjects::keep(const MemHandle& handle, nb::object owner) {
  if (!owner.is_none()) owners_[number_of(handle)].push_back(std::move(owner));
}

void RegisteredObjects::let_go(const MemHandle& handle) {
  const auto at = owners_.find(number_of(handle));
  if (at == owners_.end()) return;
  const auto last = std::move(at->second.back());
  at->second.pop_back();
  if (at->second.empty()) owners_.erase(at);
}

}  // namespace onesided::python

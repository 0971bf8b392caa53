// The only place that makes exceptions: an Error of the core becomes onesided.EngineError with its status.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>
#include <utility>

#include "onesided/base/result.h"

namespace onesided::python {

// Carries an Error through nanobind to Python.
class RaisedError : public std::exception {
 public:
  explicit RaisedError(Error error) : error_(std::move(error)) {}
  const Error& error() const { return error_; }
  const char* what() const noexcept override { return error_.text().c_str(); }

 private:
  Error error_;
};

// Raises EngineError PARAM_INVALID. May be called with or without the GIL.
[[noreturn]] inline void raise_invalid(std::string text) {
  throw RaisedError(Error(Status::kParamInvalid, std::move(text)));
}

// Returns the value, or raises EngineError. May be called with or without the GIL.
template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw RaisedError(result.error());
  return std::move(result).value();
}
inline void unwrap(const Result<void>& result) {
  if (!result.ok()) throw RaisedError(result.error());
}

// An EngineError that is not raised, for errors that are returned as values.
nanobind::object make_engine_error(const Error& error);
// Binds Status, EngineError and their translation. Must be called before all other bindings.
void bind_errors(nanobind::module_& module);

}  // namespace onesided::python

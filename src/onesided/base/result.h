// Result<T>: a T or an Error. Expected failures are values that must be checked; the core does not use exceptions (only
// the bindings raise them).
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "onesided/base/check.h"
#include "onesided/base/status.h"

namespace onesided {

// Either a T or an Error. A value. Reading the wrong one is a broken invariant and stops the process with the error.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: `return value;`
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: `return Error{...};`

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& value() const& {
    ONESIDED_CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).to_string());
    return std::get<0>(state_);
  }
  T& value() & {
    ONESIDED_CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).to_string());
    return std::get<0>(state_);
  }
  T&& value() && {
    ONESIDED_CHECK(ok(), "value() of a failed Result: {}", std::get<1>(state_).to_string());
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  const Error& error() const {
    ONESIDED_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }
  Status status() const { return ok() ? Status::kSuccess : error().status(); }

 private:
  std::variant<T, Error> state_;
};

// Success without a value, or an Error. A value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: `return Error{...};`

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    ONESIDED_CHECK(!ok(), "error() of a Result that succeeded");
    return *error_;
  }
  Status status() const { return ok() ? Status::kSuccess : error_->status(); }

 private:
  std::optional<Error> error_;
};

}  // namespace onesided

// Returns from the function with the error of `expression` (a Result), if it failed.
#define ONESIDED_TRY(expression)                                                        \
  do {                                                                                  \
    if (auto try_result_ = (expression); !try_result_.ok()) return try_result_.error(); \
  } while (false)

// Defines `name` from the value of `expression` (a Result<T>), or returns from the function with its error.
#define ONESIDED_TRY_ASSIGN(name, expression)                                                                      \
  auto ONESIDED_TRY_CONCAT(try_result_, __LINE__) = (expression);                                                  \
  if (!ONESIDED_TRY_CONCAT(try_result_, __LINE__).ok()) return ONESIDED_TRY_CONCAT(try_result_, __LINE__).error(); \
  auto name = std::move(ONESIDED_TRY_CONCAT(try_result_, __LINE__)).value()
#define ONESIDED_TRY_CONCAT(a, b) ONESIDED_TRY_CONCAT_INNER(a, b)
#define ONESIDED_TRY_CONCAT_INNER(a, b) a##b

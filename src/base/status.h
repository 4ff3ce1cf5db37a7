#pragma once

#include <optional>
#include <string>
#include <utility>

namespace eaglet {

/// Kinds of expected failure. The command layer turns a kind into an exit code (apps/exit_code.h).
enum class StatusCode {
  kOk,
  kUsage,            // a flag or an argument is wrong
  kInvalidArgument,  // a value that reached us is out of its range, shapes differ
  kConfig,           // a recipe or a model configuration is wrong or unknown
  kNotFound,         // a file or a named thing is missing
  kDataLoss,         // a file is truncated, corrupt, or not what its name says
  kNoSpace,          // disk or memory full
  kPermission,       // not allowed to read or write there
  kBusy,             // somebody else uses it: try later
  kUnavailable,      // a service does not answer
  kNumeric,          // a number is not finite
  kInterrupted,      // a signal asked us to stop; what was done is kept
  kInternal,         // our own bug
};

/// An expected failure: what happened, where, and what to do. Empty strings are left out when printed.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string what, std::string where = {}, std::string todo = {})
      : code_(code), what_(std::move(what)), where_(std::move(where)), todo_(std::move(todo)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& what() const { return what_; }
  const std::string& where() const { return where_; }
  const std::string& todo() const { return todo_; }

  /// "error: what\n  where: ...\n  do:    ..." without a final newline.
  std::string message() const;

  /// The same failure with a place put in front of the place it already names ("outer: inner").
  Status at(const std::string& place) const;
  /// The same failure with an advice, kept only when it has none yet.
  Status advise(const std::string& todo) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string what_, where_, todo_;
};

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace eaglet

#define EAGLET_CONCAT_INNER(a, b) a##b
#define EAGLET_CONCAT(a, b) EAGLET_CONCAT_INNER(a, b)

/// Leaves the function with the Status when `expression` failed.
#define EAGLET_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                            \
    if (::eaglet::Status eaglet_status = (expression); !eaglet_status.ok()) return eaglet_status; \
  } while (0)

/// EAGLET_ASSIGN_OR_RETURN(auto x, f()): x is f()'s value, or the function is left with f()'s Status.
#define EAGLET_ASSIGN_OR_RETURN(declaration, expression) \
  EAGLET_ASSIGN_OR_RETURN_INNER(EAGLET_CONCAT(eaglet_result_, __LINE__), declaration, expression)
#define EAGLET_ASSIGN_OR_RETURN_INNER(name, declaration, expression) \
  auto name = (expression);                                          \
  if (!name.ok()) return name.status();                              \
  declaration = std::move(*name)

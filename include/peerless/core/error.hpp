// The one error language: an errc, the native code, the rank concerned and where it was raised.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <peerless/core/errc.hpp>

PEERLESS_BEGIN_NAMESPACE

// Where an error was raised. A stand-in for std::source_location, which some supported compilers lack.
struct source_location {
  const char* file = "";
  const char* function = "";
  unsigned line = 0;

  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           unsigned line = __builtin_LINE()) {
    return {file, function, line};
  }
};

// Thrown by every function that can fail and is not said to be noexcept.
class error : public std::exception {
 public:
  // `message` says what happened and, where it can, what to do about it. `rank` is the rank that the error is about
  // (-1: none in particular); `native_code` is errno, a cudaError_t or an ncclResult_t by code (0: none).
  explicit error(errc code, std::string message, int rank = -1, int native_code = 0,
                 source_location where = source_location::current())
      : code_(code), rank_(rank), native_code_(native_code), where_(where), message_(std::move(message)) {
    what_ = "peerless: ";
    what_ += peerless::describe(code_);
    what_ += ": ";
    what_ += message_;
  }

  // The whole text: the code's phrase and the message.
  const char* what() const noexcept override { return what_.c_str(); }
  errc code() const noexcept { return code_; }
  int rank() const noexcept { return rank_; }
  int native_code() const noexcept { return native_code_; }
  const source_location& where() const noexcept { return where_; }
  // The message without the code's phrase.
  const std::string& message() const noexcept { return message_; }

 private:
  errc code_;
  int rank_;
  int native_code_;
  source_location where_;
  std::string message_;
  std::string what_;
};

PEERLESS_END_NAMESPACE

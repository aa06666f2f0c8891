// SPDX-License-Identifier: MIT
// What is said on the standard error while a test looks.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <unistd.h>

/// Takes the standard error for as long as it stands, or until `text()`.
class standard_error {
 public:
  standard_error() : kept_(::dup(STDERR_FILENO)), file_(std::tmpfile()) {
    std::fflush(stderr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~standard_error() {
    give_back();
    std::fclose(file_);
  }
  standard_error(const standard_error&) = delete;
  standard_error& operator=(const standard_error&) = delete;

  /// What was said; the standard error is the program's again.
  [[nodiscard]] std::string text() {
    give_back();
    std::string said;
    char buffer[4'096];
    std::rewind(file_);
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file_)) said.append(buffer, n);
    return said;
  }

 private:
  void give_back() {
    if (kept_ < 0) return;
    std::fflush(stderr);
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
    kept_ = -1;
  }

  int kept_;
  std::FILE* file_;
};

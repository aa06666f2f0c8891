// SPDX-License-Identifier: MIT
// Files of a test's own.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

/// A directory of its own, gone at the end.
class temporary_directory {
 public:
  temporary_directory() {
    const char* root = std::getenv("TMPDIR");
    path_ = std::string(root != nullptr ? root : "/tmp") + "/tidemark_test_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~temporary_directory() {
    for (const std::string& f : files_) ::unlink(f.c_str());
    ::rmdir(path_.c_str());
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

[[nodiscard]] inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

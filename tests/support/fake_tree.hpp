// SPDX-License-Identifier: MIT
// A /proc and /sys of a test's own, in which files may lie, end early and change between two reads.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <tidemark/sys/detail/system_file_linux.hpp>

#include "files.hpp"

/// The library reads it for as long as it stands.
class fake_tree {
 public:
  fake_tree() { tidemark::detail::os::use_system_root(place_.path().c_str()); }
  ~fake_tree() {
    tidemark::detail::os::use_system_root("");
    remove_all("");
  }
  fake_tree(const fake_tree&) = delete;
  fake_tree& operator=(const fake_tree&) = delete;

  void put(const std::string& path, const std::string& text) const {
    const std::string whole = place_.path() + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    std::ofstream(whole, std::ios::binary) << text;
  }
  void link(const std::string& path, const std::string& to) const {
    put(path, "");
    std::filesystem::remove(place_.path() + path);
    std::filesystem::create_symlink(to, place_.path() + path);
  }
  void remove_all(const std::string& path) const {
    std::error_code failed;
    std::filesystem::remove_all(place_.path() + path, failed);
  }
  [[nodiscard]] std::string path(const std::string& inside) const { return place_.path() + inside; }

 private:
  temporary_directory place_;
};

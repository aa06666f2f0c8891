// SPDX-License-Identifier: MIT
// A folder that stands for /sys and /proc while it lives.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include <tidemark/sys/detail/system_file_linux.hpp>

#include "files.hpp"

class fake_tree {
 public:
  fake_tree() : path_(folder_.path() + "/root") {
    std::filesystem::create_directories(path_);
    tidemark::detail::os::use_system_root(path_.c_str());
  }
  ~fake_tree() {
    tidemark::detail::os::use_system_root("");
    std::filesystem::remove_all(path_);
  }
  fake_tree(const fake_tree&) = delete;
  fake_tree& operator=(const fake_tree&) = delete;

  void write(const std::string& file, const std::string& text) const {
    folder_of(file);
    std::ofstream(path_ + file, std::ios::binary) << text;
  }
  void link(const std::string& file, const std::string& to) const {
    folder_of(file);
    std::filesystem::create_symlink(to, path_ + file);
  }
  void remove(const std::string& file) const { std::filesystem::remove_all(path_ + file); }

  /// The numbers of processes are the host's.
  void be_outermost() const { link("/proc/self/ns/pid", "pid:[4026531836]"); }
  void be_container() const { link("/proc/self/ns/pid", "pid:[4026532281]"); }

 private:
  void folder_of(const std::string& file) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
  }

  temporary_directory folder_;
  std::string path_;
};

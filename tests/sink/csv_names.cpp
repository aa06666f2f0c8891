// SPDX-License-Identifier: MIT
// Writes the rows of names that csv_check.py made up, for it to read back. Usage: csv_names NAMES ROWS
// NAMES has a name per line, in hexadecimal digits.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

namespace {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ifstream names(argv[1]);
  const std::string path = argv[2];
  tidemark::csv_sink by_hand(path);
  const auto attached = tidemark::attach(std::make_shared<tidemark::csv_sink>(path));
  for (std::string line; std::getline(names, line);) {
    const std::string name = from_hex(line);
    const std::string file = name.substr(0, name.find('\0'));
    // In a record made by hand the name is everywhere, and whole.
    tidemark::scope_record r;
    r.name = r.path = name;
    r.where = tidemark::location::current(file.c_str(), 1, "");
    r.owned_bytes = tidemark::reading<std::int64_t>::absent(name);
    r.meters.push_back({name, tidemark::reading<tidemark::window_usage>::absent(name), name});
    by_hand.on_scope(r);
    // In a scope's it may be shortened, in its path escaped.
    const tidemark::scope s(name);
  }
  return tidemark::self().dropped_records == 0 ? 0 : 1;
}

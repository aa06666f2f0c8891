// SPDX-License-Identifier: MIT
#include <tidemark/testing/baseline.hpp>

#include <cerrno>
#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.hpp"
#include "files.hpp"
#include "test.hpp"

using tidemark::location;
using tidemark::window_usage;
using tidemark::detail::checks::baseline_judgement;
using tidemark::detail::checks::judge_baseline;
using tidemark::testing::baseline_options;

namespace {
bool folders_have_locks = true;
}

// A file system that locks no folder, as NFS.
extern "C" int flock(int fd, int operation) noexcept {
  struct stat found = {};
  if (!folders_have_locks && ::fstat(fd, &found) == 0 && S_ISDIR(found.st_mode)) {
    errno = EBADF;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

namespace {

/// An environment variable with a value, or without one, for as long as it stands.
class variable {
 public:
  variable(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    if (value != nullptr) {
      ::setenv(name, value, 1);
    } else {
      ::unsetenv(name);
    }
  }
  ~variable() {
    if (had_) {
      ::setenv(name_, before_.c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

const char* const update_variable = "TIDEMARK_UPDATE_BASELINES";

window_usage usage_of(std::int64_t growth, std::uint64_t allocations, std::uint64_t bytes) {
  window_usage u;
  u.entry_bytes = 1'000;
  u.exit_bytes = 1'000;
  u.peak_bytes = 1'000 + growth;
  u.allocations = allocations;
  u.allocated_bytes = bytes;
  return u;
}

baseline_judgement compare(const std::string& file, std::string_view name, const window_usage& u,
                           double tolerance = 0.0) {
  const variable off(update_variable, nullptr);
  return judge_baseline(name, u, {file, tolerance}, location::current());
}
baseline_judgement update(const std::string& file, std::string_view name, const window_usage& u) {
  const variable on(update_variable, "1");
  return judge_baseline(name, u, {file, 0.0}, location::current());
}

void write_file(const std::string& path, std::string_view text) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  REQUIRE(f != nullptr);
  REQUIRE(std::fwrite(text.data(), 1, text.size(), f) == text.size());
  REQUIRE(std::fclose(f) == 0);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* d = ::opendir(folder.c_str());
  REQUIRE(d != nullptr);
  while (const dirent* e = ::readdir(d)) {
    const std::string name = e->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(d);
  return names;
}

/// In a child, as a user who is not root: what `f` returns.
template <class F>
int in_child(F f, bool as_nobody = false) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_root = ::geteuid() == 0;
    const bool is_ready = !as_nobody || !is_root || (::setegid(65'534) == 0 && ::seteuid(65'534) == 0);
    ::_exit(is_ready ? f() : 99);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct stat status_of(const std::string& path) {
  struct stat s = {};
  REQUIRE(::lstat(path.c_str(), &s) == 0);
  return s;
}

/// Puts a line into a file where the advice says, as a person would.
void add_as_advised(const std::string& file, const std::string& advice) {
  std::string text = content(file);
  const std::string line = advice.substr(advice.rfind('\n') + 1) + '\n';
  const std::size_t before = advice.find("before that of '");
  if (before != std::string::npos) {
    const std::size_t from = before + std::string_view("before that of '").size();
    const std::string next = advice.substr(from, advice.find("':", from) - from);
    text.insert(text.find("  \"" + next + '"'), line);
  } else if (has(advice, "a comma behind the line before it")) {
    text.insert(text.size() - 3, ",");
    text.insert(text.size() - 2, line);
  } else {
    REQUIRE(has(advice, "between the braces"));
    text = "{\n" + line + "}\n";
  }
  write_file(file, text);
}

const char* const two_entries =
    "{\n"
    "  \"tokenizer/encode\": {\"peak_growth_bytes\": 1024, \"allocations\": 3, \"allocated_bytes\": 2048},\n"
    "  \"tokenizer/train\": {\"peak_growth_bytes\": 65536, \"allocations\": 10, \"allocated_bytes\": 99999, "
    "\"tolerance\": 0.1}\n"
    "}\n";

}  // namespace

TEST_CASE("figures that equal the baseline pass, and one more or one less of any fails") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  const baseline_judgement same = compare(file, "tokenizer/encode", usage_of(1'024, 3, 2'048));
  CHECK(same.ok);
  CHECK(same.expected == "peak +1.0 KiB (1,024 bytes), 3 allocations, 2.0 KiB (2,048 bytes) allocated, exactly");
  CHECK(same.measured == "peak +1.0 KiB (1,024 bytes), 3 allocations, 2.0 KiB (2,048 bytes) allocated");
  CHECK(same.advice.empty());
  for (const int by : {-1, 1}) {
    CAPTURE(by);
    const auto one = static_cast<std::uint64_t>(by);  // wraps, as it should
    const auto peak = compare(file, "tokenizer/encode", usage_of(1'024 + by, 3, 2'048));
    const auto count = compare(file, "tokenizer/encode", usage_of(1'024, 3 + one, 2'048));
    const auto bytes = compare(file, "tokenizer/encode", usage_of(1'024, 3, 2'048 + one));
    const std::string way = by > 0 ? " more than " : " less than ";
    CHECK_FALSE(peak.ok);
    CHECK(has(peak.advice, "peak growth: 1 byte (0.1 %)" + way + "1,024, the baseline"));
    CHECK_FALSE(has(peak.advice, "allocations: "));
    CHECK_FALSE(count.ok);
    CHECK(has(count.advice, "allocations: 1 (33.3 %)" + way + "3, the baseline"));
    CHECK_FALSE(bytes.ok);
    CHECK(has(bytes.advice, "allocated: 1 byte (less than 0.1 %)" + way + "2,048, the baseline"));
    for (const auto& j : {peak, count, bytes}) {
      CHECK(has(j.advice, "so that it cannot creep back") == (by < 0));
      CHECK(has(j.advice, "Worse than the baseline") == (by > 0));
      CHECK(has(j.advice, "TIDEMARK_UPDATE_BASELINES=1"));
      CHECK(has(j.advice, file));
    }
  }
  const auto mixed = compare(file, "tokenizer/encode", usage_of(2'048, 2, 2'048));
  CHECK(has(mixed.advice, "peak growth: 1,024 bytes (100.0 %) more"));
  CHECK(has(mixed.advice, "allocations: 1 (33.3 %) less"));
  CHECK(has(mixed.advice, "Worse than the baseline in one figure, better in another"));
}

TEST_CASE("the sentence of figures counts one of a thing as one") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  CHECK(update(file, "a", usage_of(1, 1, 1)).measured == "peak +1 byte, 1 allocation, 1 byte allocated");
  CHECK(update(file, "a", usage_of(0, 0, 1'023)).measured == "peak +0 bytes, 0 allocations, 1,023 bytes allocated");
  CHECK(update(file, "a", usage_of(67'108'864, 12, 83'886'080)).measured ==
        "peak +64.0 MiB (67,108,864 bytes), 12 allocations, 80.0 MiB (83,886,080 bytes) allocated");
}

TEST_CASE("a tolerance is a decimal fraction of the baseline, both ends included") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  struct {
    double tolerance;
    std::uint64_t baseline, least, most;
  } const rows[] = {{0.05, 100, 95, 105},    {0.29, 100, 71, 129},
                    {0.35, 100, 65, 135},    {0.07, 100, 93, 107},
                    {0.1, 10, 9, 11},        {0.1, 9, 9, 9},
                    {0.5, 1, 1, 1},          {1, 7, 0, 14},
                    {1.1, 10, 0, 21},        {0.3, 10, 7, 13},
                    {1e-3, 1000, 999, 1001}, {1e300, 5, 0, 1'000'000},
                    {0.05, 0, 0, 0},         {1e-300, 1000, 1000, 1000},
                    {0.999, 1000, 1, 1999}};
  for (const auto& row : rows) {
    CAPTURE(row.tolerance);
    CAPTURE(row.baseline);
    REQUIRE(update(file, "a", usage_of(1, row.baseline, 1)).ok);
    CHECK(compare(file, "a", usage_of(1, row.least, 1), row.tolerance).ok);
    CHECK(compare(file, "a", usage_of(1, row.most, 1), row.tolerance).ok);
    if (row.least > 0) CHECK_FALSE(compare(file, "a", usage_of(1, row.least - 1, 1), row.tolerance).ok);
    if (row.most < 1'000'000) CHECK_FALSE(compare(file, "a", usage_of(1, row.most + 1, 1), row.tolerance).ok);
  }
}

TEST_CASE("a tolerance is exact for figures of any size") {
  __extension__ using wide = unsigned __int128;
  namespace checks = tidemark::detail::checks;
  dice d(7);
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t thousandths = d.below(1'200);
    const std::uint64_t whole = d.below(3) == 0 ? (std::uint64_t{1} << 63) - d.below(1'000)
                                                : (d.below(1U << 31) << d.below(32)) + d.below(1'000);
    const auto edge = static_cast<std::uint64_t>(wide{whole} * thousandths / 1'000);
    for (const std::uint64_t off : {edge - 1, edge, edge + 1, d.below(1U << 31)}) {
      const bool expected = wide{off} * 1'000 <= wide{whole} * thousandths;
      const checks::decimal limit = checks::decimal_of(static_cast<double>(thousandths) / 1'000);
      if (checks::is_within(off, whole, limit) == expected) continue;
      CAPTURE(thousandths);
      CAPTURE(whole);
      CAPTURE(off);
      FAIL_CHECK("the model says otherwise");
    }
  }
}

TEST_CASE("a double is read as the shortest decimal that stands for it") {
  namespace checks = tidemark::detail::checks;
  dice d(11);
  for (int i = 0; i < 5'000; ++i) {
    const double number = static_cast<double>(d.below(1U << 31)) / static_cast<double>(1 + d.below(1'000'000));
    const checks::decimal text = checks::decimal_of(number);
    const std::string again = "0." + text.digits + 'e' + std::to_string(text.point);
    CHECK(std::strtod(again.c_str(), nullptr) == number);
    CHECK(text.digits.size() <= 17);
  }
  CHECK(checks::decimal_of(0.05).digits == "5");
  CHECK(checks::decimal_of(0.05).point == -1);
  CHECK(checks::decimal_of(125.5).digits == "1255");
  CHECK(checks::decimal_of(125.5).point == 3);
  CHECK(checks::decimal_of(0.0).digits.empty());
  CHECK(checks::decimal_of(-0.0).digits.empty());
  CHECK(checks::decimal_of(5e-324).digits == "5");
  CHECK(checks::percent(checks::decimal_of(0.05)) == "5 %");
  CHECK(checks::percent(checks::decimal_of(0.125)) == "12.5 %");
  CHECK(checks::percent(checks::decimal_of(0.0005)) == "0.05 %");
  CHECK(checks::percent(checks::decimal_of(2)) == "200 %");
  CHECK(checks::percent(checks::decimal_of(0)) == "0 %");
}

TEST_CASE("a locale with a decimal comma changes nothing") {
  const char* set = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"}) {
    if (set == nullptr) set = std::setlocale(LC_ALL, name);
  }
  if (set == nullptr) MESSAGE("no such locale here: checked in this one only");
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  CHECK(update(file, "a", usage_of(100, 100, 100)).ok);
  CHECK(compare(file, "a", usage_of(105, 105, 105), 0.05).ok);
  CHECK_FALSE(compare(file, "a", usage_of(106, 105, 105), 0.05).ok);
  CHECK(compare(file, "a", usage_of(112, 100, 100), 0.125).ok);
  CHECK_FALSE(compare(file, "a", usage_of(113, 100, 100), 0.125).ok);
  write_file(file, R"({"a": {"peak_growth_bytes": 100, "allocations": 1, "allocated_bytes": 1, "tolerance": 0.05}})");
  CHECK(compare(file, "a", usage_of(105, 1, 1)).ok);
  CHECK_FALSE(compare(file, "a", usage_of(106, 1, 1)).ok);
  std::setlocale(LC_ALL, "C");
}

TEST_CASE("an entry's own tolerance wins over the check's, both ways") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  const auto close = compare(file, "tokenizer/train", usage_of(65'536, 11, 99'999));
  CHECK(close.ok);
  CHECK(has(close.expected, "each within 10 %"));
  CHECK_FALSE(compare(file, "tokenizer/train", usage_of(65'536, 12, 99'999), 0.5).ok);
  const auto far = compare(file, "tokenizer/train", usage_of(65'536, 12, 99'999), 0.5);
  CHECK(has(far.advice, "\"allocations\": 12, \"allocated_bytes\": 99999, \"tolerance\": 0.1}"));
}

TEST_CASE("a figure of 2^63 is kept and compared exactly") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const std::uint64_t most = std::uint64_t{1} << 63;
  window_usage u = usage_of(0, most, most);
  u.entry_bytes = -1;
  u.peak_bytes = std::numeric_limits<std::int64_t>::max();  // grew by 2^63
  REQUIRE(update(file, "a", u).ok);
  CHECK(has(content(file), R"({"peak_growth_bytes": 9223372036854775808, "allocations": 9223372036854775808)"));
  CHECK(compare(file, "a", u).ok);
  CHECK(has(compare(file, "a", u).measured, "peak +8.0 EiB (9,223,372,036,854,775,808 bytes)"));
  --u.allocations;
  CHECK_FALSE(compare(file, "a", u).ok);
  CHECK(compare(file, "a", u, 1e-18).ok);
  CHECK_FALSE(compare(file, "a", u, 1e-19).ok);
  CHECK_FALSE(compare(file, "a", usage_of(-1, most, most), 1.0).ok);  // no growth at all
  u.allocations = most + 1;
  CHECK_FALSE(compare(file, "a", u, 1.0).ok);
  const std::string before = content(file);
  CHECK_FALSE(update(file, "a", u).ok);
  CHECK(content(file) == before);
}

TEST_CASE("allocations that nobody counted are no figures, in any mode") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, R"({"a": {"peak_growth_bytes": 5, "allocations": 0, "allocated_bytes": 0}})");
  const std::string before = content(file);
  window_usage u = usage_of(5, 0, 0);
  u.counts_events = false;
  CHECK_FALSE(compare(file, "a", u, 1.0).ok);
  CHECK_FALSE(update(file, "a", u).ok);
  CHECK(content(file) == before);
}

TEST_CASE("a peak that is known within a bound says so where it fails") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  window_usage u = usage_of(1'000, 3, 2'048);
  u.error_bound_bytes = 262'144;
  CHECK(has(compare(file, "tokenizer/encode", u).advice, "to within 256.0 KiB (262,144 bytes) only"));
  u = usage_of(1'024, 4, 2'048);
  u.error_bound_bytes = 262'144;
  CHECK_FALSE(has(compare(file, "tokenizer/encode", u).advice, "to within"));
}

TEST_CASE("a missing entry fails, and the line that it prints makes it pass where it says to put it") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, "{}\n");
  for (const char* name : {"m", "a", "z", "n", "Z", "zz"}) {
    const window_usage u = usage_of(10 + name[0], 2, 30);
    const baseline_judgement missing = compare(file, name, u, 1.0);
    CHECK_FALSE(missing.ok);
    CHECK(has(missing.advice, file));
    CHECK(has(missing.advice, "has no entry of this name"));
    add_as_advised(file, missing.advice);
    CHECK(compare(file, name, u).ok);
    const std::string by_hand = content(file);
    CHECK(update(file, name, u).ok);
    CHECK(content(file) == by_hand);
  }
}

TEST_CASE("a missing file fails, and what it prints is the file to make") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const window_usage u = usage_of(10, 2, 30);
  const baseline_judgement missing = compare(file, "a", u, 1.0);
  CHECK_FALSE(missing.ok);
  CHECK(names_in(folder.path()).empty());
  CHECK(has(missing.advice, "There is no file '" + file + '\''));
  const std::size_t open = missing.advice.find("\n{\n");
  REQUIRE(open != std::string::npos);
  write_file(file, missing.advice.substr(open + 1) + '\n');
  CHECK(compare(file, "a", u).ok);
  const std::string by_hand = content(file);
  CHECK(update(file, "a", u).ok);
  CHECK(content(file) == by_hand);
  CHECK(has(compare("no_such_folder/b.json", "a", u).advice, "from the folder that the program runs in"));
  CHECK(has(update("no_such_folder/b.json", "a", u).advice, "from the folder that the program runs in"));
  CHECK_FALSE(has(missing.advice, "from the folder that the program runs in"));
}

TEST_CASE("the line of a failed comparison is the line that an update writes") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  for (const char* name : {"tokenizer/encode", "tokenizer/train"}) {
    write_file(file, two_entries);
    const window_usage u = usage_of(1, 1, 1);
    const std::string advice = compare(file, name, u).advice;
    const std::string line = advice.substr(advice.rfind('\n') + 1);
    CHECK_FALSE(has(content(file), line));
    CHECK(update(file, name, u).ok);
    CHECK(has(content(file), '\n' + line + '\n'));
  }
}

TEST_CASE("a text that is no file of baselines fails with the place and the reason") {
  const std::string good = R"({"peak_growth_bytes": 1, "allocations": 2, "allocated_bytes": 3)";
  const std::string entry = "{\n  \"a\": " + good;
  struct {
    std::string text;
    const char* says;
  } const rows[] = {
      {"", "line 1, column 1: the file is empty"},
      {" \n\t\n", "line 1, column 1: the file is empty"},
      {"\xEF\xBB\xBF{}", "byte order mark"},
      {"[]", "line 1, column 1: expected '{', found '['"},
      {"{", "line 1, column 2: expected the name of an entry in double quotes, found the end of the file"},
      {"{,}", "line 1, column 2: expected the name of an entry"},
      {"{'a': 1}", "line 1, column 2: expected the name of an entry in double quotes, found '''"},
      {"{\"a\" 1}", "line 1, column 6: expected ':' after the name of an entry, found '1'"},
      {"{\"a\": 1}", "line 1, column 7: expected '{', where the figures of an entry begin, found '1'"},
      {"{\"a\": null}", "found 'n'"},
      {"{\"\": " + good + "}}", "line 1, column 2: the name of an entry is empty"},
      {entry + "},\n}\n", "line 3, column 1: expected the name of an entry in double quotes, found '}'"},
      {entry + "}\n  \"b\": " + good + "}\n}\n", "line 3, column 3: expected ',' or '}' after an entry, found '\"'"},
      {entry + "},\n  \"a\": " + good + "}\n}\n", "line 3, column 3: there are two entries of the name \"a\""},
      {entry + "},\n  \"\\u0061\": " + good + "}\n}\n", "line 3, column 3: there are two entries of the name \"a\""},
      {entry + "}}x", "expected the end of the file, found 'x'"},
      {entry + "}}{}", "expected the end of the file, found '{'"},
      {entry + std::string("}}\0", 3), "expected the end of the file, found '\\x00'"},
      {entry + ", \"tolerance\": -0.1}}", "line 2, column 86: the tolerance is negative"},
      {entry + ", \"tolerance\": .1}}", "expected a number of zero or more"},
      {entry + ", \"tolerance\": 1.}}", "expected a number of zero or more"},
      {entry + ", \"tolerance\": 0.1e}}", "expected a number of zero or more"},
      {entry + ", \"tolerance\": 01}}", "expected a number of zero or more"},
      {entry + ", \"tolerance\": 0.1x}}", "expected ',' or '}' after a figure, found 'x'"},
      {entry + ", \"tolerance\": 0,1}}", "the name of a figure in double quotes, found '1'"},
      {entry + ", \"tolerance\": \"0.1\"}}", "expected a number of zero or more: 0.05 is 5 %, found '\"'"},
      {entry + ", \"tolerance\": NaN}}", "found 'N'"},
      {entry + ", \"tolerance\": Infinity}}", "found 'I'"},
      {entry + ", \"tolerance\": 1e999999999999999999999}}", "the tolerance is too large"},
      {entry + ", \"tolerance\": 1e400}}", "the tolerance is too large"},
      {entry + ", \"toleranse\": 0.1}}", "line 2, column 73: no figure is called \"toleranse\"; an entry has \"peak_"},
      {entry + ", \"Tolerance\": 0.1}}", "no figure is called \"Tolerance\""},
      {entry + ", \"allocations\": 2}}", "the entry has \"allocations\" twice"},
      {entry + ",}}", "the name of a figure in double quotes, found '}'"},
      {"{\"a\": {}}", "line 1, column 8: the entry \"a\" lacks \"peak_growth_bytes\""},
      {R"({"a": {"peak_growth_bytes": 1, "allocations": 2}})", "lacks \"allocated_bytes\""},
      {R"({"a": {"peak_growth_bytes": 1, "allocated_bytes": 2}})", "lacks \"allocations\""},
      {R"({"a": {"peak_growth_bytes": -1}})", "column 29: the figure is negative"},
      {R"({"a": {"peak_growth_bytes": 1.5}})", "without a fraction or an exponent"},
      {R"({"a": {"peak_growth_bytes": 1.0}})", "without a fraction or an exponent"},
      {R"({"a": {"peak_growth_bytes": 1e3}})", "without a fraction or an exponent"},
      {R"({"a": {"peak_growth_bytes": 012}})", "does not begin with 0"},
      {R"({"a": {"peak_growth_bytes": +1}})", "expected a whole number, found '+'"},
      {R"({"a": {"peak_growth_bytes": "1"}})", "expected a whole number, found '\"'"},
      {R"({"a": {"peak_growth_bytes": true}})", "expected a whole number, found 't'"},
      {R"({"a": {"peak_growth_bytes": 9223372036854775809}})", "the figure is larger than 2^63"},
      {R"({"a": {"peak_growth_bytes": 18446744073709551617}})", "the figure is larger than 2^63"},
      {R"({"a": {"peak_growth_bytes": 99999999999999999999999999}})", "the figure is larger than 2^63"},
      {"{\"a", "line 1, column 2: the string that begins here does not end"},
      {"{\"a\\", "the backslash begins none of JSON's escapes"},
      {"{\"a\\x\": 1}", "line 1, column 4: the backslash begins none of JSON's escapes"},
      {"{\"a\\u12\": 1}", "the backslash begins none of JSON's escapes"},
      {"{\"a\\u12g4\": 1}", "the backslash begins none of JSON's escapes"},
      {"{\"\\ud800\": 1}", "a lone surrogate"},
      {"{\"\\ud800\\u0041\": 1}", "a lone surrogate"},
      {"{\"\\ud800x\": 1}", "a lone surrogate"},
      {"{\"\\udc00\": 1}", "a lone surrogate"},
      {"{\"a\nb\": 1}", "controls are written as \\n or \\u000a, found '\\n'"},
      {"{\"a\xFF\": 1}", "line 1, column 4: expected UTF-8, found the byte 0xff"},
      {"{\"\xED\xA0\x80\": 1}", "expected UTF-8, found the byte 0xed"},
      {"{\"\xC3\xA9\xE2\x82\xAC\" 1}", "line 1, column 7: expected ':'"},
      {"// a comment\n{}", "line 1, column 1: expected '{', found '/'"},
      {"<<<<<<< HEAD\n{}", "line 1, column 1: expected '{', found '<'"},
  };
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  for (const auto& row : rows) {
    CAPTURE(row.text);
    write_file(file, row.text);
    const baseline_judgement j = compare(file, "a", usage_of(1, 2, 3), 1e9);
    CHECK_FALSE(j.ok);
    CHECK_MESSAGE(has(j.advice, row.says), j.advice);
    CHECK(has(j.advice, file));
    const auto before = status_of(file).st_ino;
    const baseline_judgement u = update(file, "b", usage_of(1, 2, 3));
    CHECK_FALSE(u.ok);
    CHECK(has(u.advice, row.says));
    CHECK(content(file) == row.text);
    CHECK(status_of(file).st_ino == before);
  }
  CHECK(names_in(folder.path()).size() == 1);
}

TEST_CASE("white space and escapes that JSON allows are read") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(
      file,
      "\r\n\t {\r\n\"a\\u002Fb\\/c\\ud83c\\uDF0a\\b\\f\\n\\r\\t\\\"\\\\\\u0000\\u00e9\\u20AC\"\t: {\"allocations\" :2 ,"
      "\n\"allocated_bytes\":3,\"peak_growth_bytes\":0, \"tolerance\": 1.0E+1}  }  \n\n");
  std::string name = "a/b/c\xF0\x9F\x8C\x8A\b\f\n\r\t\"\\";
  name += '\0';
  name += "\xC3\xA9\xE2\x82\xAC";
  CHECK(compare(file, name, usage_of(0, 2, 3)).ok);
  CHECK(compare(file, name, usage_of(0, 22, 33)).ok);
  CHECK_FALSE(compare(file, name, usage_of(0, 23, 33)).ok);
}

TEST_CASE("a file that was cut short anywhere fails") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const std::string whole = two_entries;
  for (std::size_t n = 0; n + 1 < whole.size(); ++n) {
    write_file(file, whole.substr(0, n));
    const baseline_judgement j = compare(file, "tokenizer/encode", usage_of(1'024, 3, 2'048), 1e9);
    if (!j.ok && has(j.advice, "line ")) continue;
    CAPTURE(n);
    FAIL_CHECK("it passed, or said no line");
  }
}

TEST_CASE("a file with any bytes changed is read or refused, and what is read survives an update") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const std::string whole = two_entries;
  dice d(3);
  constexpr std::string_view likely = "{}[]\",:\\u0123456789eE+-. \n\t\xC3\x80";
  int read = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::string text = whole;
    for (std::uint64_t n = 1 + d.below(3); n > 0; --n) {
      const char c = d.below(2) == 0 ? static_cast<char>(d.below(256)) : likely[d.below(likely.size())];
      const std::size_t at = d.below(text.size());
      if (d.below(3) == 0) {
        text.erase(at, 1);
      } else if (d.below(2) == 0) {
        text.insert(at, 1, c);
      } else {
        text[at] = c;
      }
    }
    tidemark::detail::checks::baseline_entries entries;
    tidemark::detail::checks::baseline_parser parser(text);
    if (!parser.parse(entries)) {
      CHECK(parser.error().compare(0, 5, "line ") == 0);
      continue;
    }
    ++read;
    const std::string once = tidemark::detail::checks::baseline_text(entries);
    tidemark::detail::checks::baseline_entries again;
    tidemark::detail::checks::baseline_parser second(once);
    REQUIRE(second.parse(again));
    CHECK(again.size() == entries.size());
    CHECK(tidemark::detail::checks::baseline_text(again) == once);
  }
  CHECK(read > 100);
}

TEST_CASE("names with quotes, backslashes, controls and any UTF-8 come back as they were") {
  std::vector<std::string> names = {" ",
                                    "\"",
                                    "\\",
                                    "\\u0041",
                                    "\r\n",
                                    "\x7F",
                                    "\xE2\x80\xA8",
                                    "\xE2\x80\xA9",
                                    "\xC2\x85",
                                    "\xEF\xBB\xBF",
                                    "\xC3\xA9",
                                    "\xF0\x9F\x8C\x8A",
                                    "\xF4\x8F\xBF\xBF",
                                    "a/b",
                                    "</script>",
                                    "{\"a\":1}",
                                    "e\xCC\x81"};
  names.emplace_back("\0", 1);
  names.emplace_back("a\0b", 3);
  for (int c = 1; c < 0x20; ++c) names.emplace_back(1, static_cast<char>(c));
  for (const char c : {'x', '"', '\\', '\n'}) names.emplace_back(20'000, c);
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  std::int64_t n = 0;
  for (const std::string& name : names) REQUIRE(update(file, name, usage_of(++n, 1, 1)).ok);
  n = 0;
  for (const std::string& name : names) CHECK(compare(file, name, usage_of(++n, 1, 1)).ok);
  // A line per entry, and each is what the others' order says: sorted by the bytes of the names.
  const std::string text = content(file);
  std::size_t lines = 0;
  for (const char c : text) lines += c == '\n' ? 1 : 0;
  tidemark::detail::checks::baseline_entries entries;
  tidemark::detail::checks::baseline_parser parser(text);
  REQUIRE(parser.parse(entries));
  CHECK(lines == entries.size() + 2);
  CHECK(tidemark::detail::checks::baseline_text(entries) == text);
  for (const std::string& name : names) {
    const baseline_judgement j = compare(folder.path() + "/none.json", name, usage_of(1, 1, 1));
    CHECK_FALSE(has(j.expected, "\n"));
  }
}

TEST_CASE("a file is the same whatever the order of its updates, sorted by bytes") {
  temporary_directory folder;
  std::vector<std::string> names = {"b", "a", "Z", "\xC3\xA9", "a/b", "aa", "a b", "0"};
  std::string first;
  for (int i = 0; i < 8; ++i) {
    const std::string file = folder.file("b" + std::to_string(i) + ".json");
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string& name = names[(k * 3 + static_cast<std::size_t>(i)) % names.size()];
      REQUIRE(update(file, name, usage_of(1, name.size(), 3)).ok);
    }
    if (first.empty()) first = content(file);
    CHECK(content(file) == first);
  }
  std::size_t at = 0;
  for (const char* name : {"0", "Z", "a", "a b", "a/b", "aa", "b", "\xC3\xA9"}) {
    const std::size_t next = first.find("\n  \"" + std::string(name) + "\": {");
    REQUIRE(next != std::string::npos);
    CHECK(next >= at);
    at = next;
  }
}

TEST_CASE("an update writes this text, and keeps other entries and every tolerance as written") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  CHECK(update(file, "tokenizer/encode", usage_of(1'024, 3, 2'048)).ok);
  CHECK(content(file) ==
        "{\n  \"tokenizer/encode\": {\"peak_growth_bytes\": 1024, \"allocations\": 3, \"allocated_bytes\": 2048}\n}\n");
  write_file(file, two_entries);
  CHECK(update(file, "tokenizer/encode", usage_of(1, 2, 3)).ok);
  std::string expected = two_entries;
  const std::string_view old = R"("peak_growth_bytes": 1024, "allocations": 3, "allocated_bytes": 2048)";
  expected.replace(expected.find(old), old.size(), R"("peak_growth_bytes": 1, "allocations": 2, "allocated_bytes": 3)");
  CHECK(content(file) == expected);
  write_file(file,
             R"({"b":{"tolerance":1.50e-1,"allocations":1,"allocated_bytes":1,"peak_growth_bytes":1},
                 "a":{"tolerance":0.10,"allocations":1,"allocated_bytes":1,"peak_growth_bytes":1}})");
  CHECK(update(file, "b", usage_of(7, 8, 9)).ok);
  CHECK(content(file) ==
        "{\n"
        "  \"a\": {\"peak_growth_bytes\": 1, \"allocations\": 1, \"allocated_bytes\": 1, \"tolerance\": 0.10},\n"
        "  \"b\": {\"peak_growth_bytes\": 7, \"allocations\": 8, \"allocated_bytes\": 9, \"tolerance\": 1.50e-1}\n"
        "}\n");
}

TEST_CASE("only a variable that is set to something but 0 updates") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  for (const char* off : {static_cast<const char*>(nullptr), "", "0"}) {
    const variable v(update_variable, off);
    CHECK_FALSE(judge_baseline("a", usage_of(1, 1, 1), {file, 0.0}, location::current()).ok);
    CHECK(names_in(folder.path()).empty());
  }
  for (const char* on : {"1", "yes", "00", " "}) {
    const variable v(update_variable, on);
    CHECK(judge_baseline("a", usage_of(1, 1, 1), {file, 0.0}, location::current()).ok);
    CHECK(::unlink(file.c_str()) == 0);
  }
}

TEST_CASE("an update that changes nothing does not touch the file") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  const timespec long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), long_ago, 0) == 0);
  const struct stat before = status_of(file);
  const baseline_judgement j = update(file, "tokenizer/encode", usage_of(1'024, 3, 2'048));
  CHECK(j.ok);
  CHECK(has(j.advice, "already"));
  CHECK(status_of(file).st_ino == before.st_ino);
  CHECK(status_of(file).st_mtim.tv_sec == 1'000'000'000);
  CHECK(update(file, "tokenizer/encode", usage_of(1'024, 3, 2'049)).ok);
  CHECK(status_of(file).st_mtim.tv_sec != 1'000'000'000);
}

TEST_CASE("an update keeps the mode of a file, and gives a new one what the umask leaves") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const mode_t mask = ::umask(027);
  CHECK(update(file, "a", usage_of(1, 1, 1)).ok);
  CHECK((status_of(file).st_mode & 07777) == 0640);
  for (const mode_t mode : {mode_t{0600}, mode_t{0664}, mode_t{0755}, mode_t{0666}}) {
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    CHECK(update(file, "a", usage_of(static_cast<std::int64_t>(mode), 1, 1)).ok);
    CHECK((status_of(file).st_mode & 07777) == mode);
  }
  ::umask(mask);
}

TEST_CASE("an update goes to where a symbolic link leads, and the link stays") {
  temporary_directory folder;
  const std::string inner = folder.path() + "/inner";
  REQUIRE(::mkdir(inner.c_str(), 0777) == 0);
  const std::string link = folder.file("link.json");
  const std::string second = folder.file("second.json");
  REQUIRE(::symlink("inner/real.json", link.c_str()) == 0);
  REQUIRE(::symlink(link.c_str(), second.c_str()) == 0);
  // First to nothing, then to a file.
  for (const int n : {1, 2}) {
    CHECK(update(second, "a", usage_of(n, 1, 1)).ok);
    CHECK(S_ISLNK(status_of(link).st_mode));
    CHECK(S_ISLNK(status_of(second).st_mode));
    CHECK(S_ISREG(status_of(inner + "/real.json").st_mode));
    CHECK(compare(link, "a", usage_of(n, 1, 1)).ok);
  }
  CHECK(names_in(folder.path()).size() == 3);
  CHECK(names_in(inner).size() == 1);
  ::unlink((inner + "/real.json").c_str());
  ::rmdir(inner.c_str());
  const std::string loop = folder.file("loop.json");
  REQUIRE(::symlink("loop.json", loop.c_str()) == 0);
  CHECK_FALSE(compare(loop, "a", usage_of(1, 1, 1)).ok);
  const baseline_judgement j = update(loop, "a", usage_of(1, 1, 1));
  CHECK_FALSE(j.ok);
  CHECK(has(j.advice, "symbolic link"));
}

TEST_CASE("a folder, a pipe and a place without a folder fail with the reason in both modes") {
  temporary_directory folder;
  const std::string inner = folder.path() + "/inner";
  REQUIRE(::mkdir(inner.c_str(), 0777) == 0);
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  const window_usage u = usage_of(1, 1, 1);
  CHECK(has(compare(inner, "a", u).advice, "cannot be read: Is a directory"));
  CHECK(has(update(inner, "a", u).advice, "Is a directory"));
  CHECK(has(compare(pipe, "a", u).advice, "it is no ordinary file"));
  CHECK(has(update(pipe, "a", u).advice, "it is no ordinary file"));
  CHECK(has(compare("/dev/null", "a", u).advice, "it is no ordinary file"));
  const std::string nowhere = folder.path() + "/none/b.json";
  CHECK(has(compare(nowhere, "a", u).advice, "There is no file"));
  CHECK(has(update(nowhere, "a", u).advice, "its folder does not exist"));
  const std::string in_a_file = pipe + "/b.json";
  CHECK(has(compare(in_a_file, "a", u).advice, "Not a directory"));
  CHECK(has(update(in_a_file, "a", u).advice, "Not a directory"));
  for (const auto& j : {compare(inner, "a", u), update(inner, "a", u), compare(pipe, "a", u), update(pipe, "a", u),
                        compare(nowhere, "a", u), update(nowhere, "a", u)}) {
    CHECK_FALSE(j.ok);
  }
  ::rmdir(inner.c_str());
}

TEST_CASE("a file that cannot be read, or that is protected, fails and stays as it is") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  const window_usage u = usage_of(1, 1, 1);
  REQUIRE(::chmod(file.c_str(), 0000) == 0);
  CHECK(in_child([&] { return has(compare(file, "a", u).advice, "cannot be read: Permission denied") ? 0 : 1; },
                 true) == 0);
  CHECK(in_child([&] { return has(update(file, "a", u).advice, "Permission denied") ? 0 : 1; }, true) == 0);
  REQUIRE(::chmod(file.c_str(), 0444) == 0);
  CHECK(in_child([&] { return has(update(file, "a", u).advice, "Permission denied") ? 0 : 1; }, true) == 0);
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);  // nothing can be put beside it
  CHECK(in_child(
            [&] {
              const baseline_judgement j = update(file, "a", u);
              return !j.ok && has(j.advice, "Permission denied") && has(j.advice, "is as it was") ? 0 : 1;
            },
            true) == 0);
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  CHECK(content(file) == two_entries);
  CHECK(names_in(folder.path()).size() == 1);
}

TEST_CASE("an update that finds no room leaves the old file whole, and nothing beside it") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  write_file(file, two_entries);
  const std::string name(5'000, 'n');
  const int rc = in_child([&] {
    rlimit limit = {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1'000;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const baseline_judgement j = update(file, name, usage_of(1, 1, 1));
    return !j.ok && has(j.advice, "could not be updated, and is as it was: File too large.") ? 0 : 1;
  });
  CHECK(rc == 0);  // not ended by SIGXFSZ either
  CHECK(content(file) == two_entries);
  CHECK(names_in(folder.path()).size() == 1);
}

TEST_CASE("what a process left beside the file when it was killed does not disturb") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const std::string left = folder.file(".tidemark.new");
  const std::string elsewhere = folder.file("elsewhere");
  write_file(file, two_entries);
  write_file(left, "{\"half");
  CHECK(update(file, "a", usage_of(1, 1, 1)).ok);
  write_file(elsewhere, "precious");
  REQUIRE(::symlink("elsewhere", left.c_str()) == 0);
  CHECK(update(file, "a", usage_of(2, 1, 1)).ok);
  CHECK(content(elsewhere) == "precious");
  CHECK(compare(file, "a", usage_of(2, 1, 1)).ok);
  CHECK(compare(file, "tokenizer/encode", usage_of(1'024, 3, 2'048)).ok);
  CHECK(names_in(folder.path()).size() == 2);
}

TEST_CASE("four processes and their threads that update one file at once lose no entry") {
  for (const bool with_folder_locks : {true, false}) {
    CAPTURE(with_folder_locks);
    folders_have_locks = with_folder_locks;
    temporary_directory folder;
    const std::string file = folder.file("b.json");
    write_file(file, two_entries);
    const variable on(update_variable, "1");
    std::vector<pid_t> children;
    for (int p = 0; p < 4; ++p) {
      std::fflush(nullptr);
      const pid_t child = ::fork();
      if (child == 0) {
        bool all = true;
        for (int n = 0; n < 60; ++n) {
          const std::string name = std::to_string(p) + '/' + std::to_string(n);
          all &=
              judge_baseline(name, usage_of(p, static_cast<std::uint64_t>(n), 1), {file, 0.0}, location::current()).ok;
        }
        ::_exit(all ? 0 : 1);
      }
      children.push_back(child);
    }
    std::vector<std::thread> threads;
    bool went_well[3] = {};
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        bool all = true;
        for (int n = 0; n < 30; ++n) {
          const std::string name = "thread " + std::to_string(t) + '/' + std::to_string(n);
          all &=
              judge_baseline(name, usage_of(t, static_cast<std::uint64_t>(n), 1), {file, 0.0}, location::current()).ok;
        }
        went_well[t] = all;
      });
    }
    for (std::thread& t : threads) t.join();
    for (const bool well : went_well) CHECK(well);
    for (const pid_t child : children) {
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(status == 0);
    }
    for (int p = 0; p < 4; ++p) {
      for (int n = 0; n < 60; ++n) {
        const std::string name = std::to_string(p) + '/' + std::to_string(n);
        CHECK(compare(file, name, usage_of(p, static_cast<std::uint64_t>(n), 1)).ok);
      }
    }
    for (int t = 0; t < 3; ++t) {
      for (int n = 0; n < 30; ++n) {
        const std::string name = "thread " + std::to_string(t) + '/' + std::to_string(n);
        CHECK(compare(file, name, usage_of(t, static_cast<std::uint64_t>(n), 1)).ok);
      }
    }
    CHECK(compare(file, "tokenizer/train", usage_of(65'536, 10, 99'999)).ok);
    if (!with_folder_locks) CHECK(::unlink((folder.path() + "/.tidemark.lock").c_str()) == 0);
    CHECK(names_in(folder.path()).size() == 1);
    folders_have_locks = true;
  }
}

TEST_CASE("a reader finds the old figures or the new ones while another process updates") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const std::string long_name(30'000, 'x');  // several writes' worth
  REQUIRE(update(file, long_name, usage_of(1, 1, 1)).ok);
  REQUIRE(update(file, "a", usage_of(1, 1, 1)).ok);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    bool all = true;
    for (int n = 0; n < 300; ++n) all &= update(file, "a", usage_of(1 + n % 2, 1, 1)).ok;
    ::_exit(all ? 0 : 1);
  }
  int status = 0;
  int reads = 0;
  do {
    const baseline_judgement j = compare(file, long_name, usage_of(1, 1, 1));
    if (!j.ok) FAIL_CHECK(j.advice);
    ++reads;
  } while (::waitpid(child, &status, WNOHANG) == 0);
  CHECK(status == 0);
  CHECK(reads > 0);
}

TEST_CASE("a lock that another holds for too long is an answer, and one that is let go is taken") {
  namespace os = tidemark::detail::os;
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  std::optional<os::folder_lock> first(std::in_place, file);
  CHECK(first->error() == 0);
  {
    const os::folder_lock second(file, 1'000'000);
    CHECK(second.error() == ETIMEDOUT);
  }
  // A child that lives on with a copy of the descriptor must not keep the lock.
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    char c = 0;
    ::close(ends[1]);
    ::_exit(::read(ends[0], &c, 1) == 0 ? 0 : 1);  // until the parent closes its end
  }
  ::close(ends[0]);
  first.reset();
  {
    const os::folder_lock third(file, 1'000'000);
    CHECK(third.error() == 0);
  }
  ::close(ends[1]);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a program without standard streams writes nothing of them into the file") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  const int rc = in_child([&] {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    const tidemark::detail::os::open_file opened(file, O_RDWR | O_CREAT, 0666);
    return opened.fd() > 2 ? 0 : 1;
  });
  CHECK(rc == 0);
  ::unlink(file.c_str());
  CHECK(in_child([&] {
          for (int fd = 0; fd <= 2; ++fd) ::close(fd);
          return update(file, "a", usage_of(1, 1, 1)).ok ? 0 : 1;
        }) == 0);
  CHECK(compare(file, "a", usage_of(1, 1, 1)).ok);
}

TEST_CASE("the file is the one of the options, of the environment, or beside the source, in that order") {
  temporary_directory folder;
  const std::string mine = folder.file("mine.json");
  const std::string shared = folder.file("shared.json");
  const std::string beside = folder.file("memory_baselines.json");
  const std::string source = folder.path() + "/some_test.cpp";
  const location where = location::current(source.c_str(), 1, "");
  const variable on(update_variable, "1");
  const window_usage u = usage_of(1, 1, 1);
  const std::string text = "{\n  \"a\": {\"peak_growth_bytes\": 1, \"allocations\": 1, \"allocated_bytes\": 1}\n}\n";
  {
    const variable none("TIDEMARK_BASELINES", nullptr);
    CHECK(judge_baseline("a", u, {}, where).ok);
    CHECK(content(beside) == text);
    CHECK(::unlink(beside.c_str()) == 0);
  }
  {
    const variable empty("TIDEMARK_BASELINES", "");
    CHECK(judge_baseline("a", u, {}, where).ok);
    CHECK(content(beside) == text);
    CHECK(::unlink(beside.c_str()) == 0);
  }
  const variable named("TIDEMARK_BASELINES", shared.c_str());
  CHECK(judge_baseline("a", u, {}, where).ok);
  CHECK(content(shared) == text);
  CHECK(::unlink(shared.c_str()) == 0);
  CHECK(judge_baseline("a", u, {mine, 0.0}, where).ok);
  CHECK(content(mine) == text);
  CHECK(names_in(folder.path()).size() == 1);
  CHECK(tidemark::detail::checks::baseline_path("x", location()) == "x");
  const variable none("TIDEMARK_BASELINES", nullptr);
  CHECK(tidemark::detail::checks::baseline_path("", location::current("t.cpp", 1, "")) == "memory_baselines.json");
  CHECK(tidemark::detail::checks::baseline_path("", location::current("/t.cpp", 1, "")) == "/memory_baselines.json");
}

TEST_CASE("errno is the caller's") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  tidemark::detail::os::folder_lock const held(file);
  std::string text;
  errno = 4'711;
  CHECK(tidemark::detail::os::read_whole(file, 1'000, text) == ENOENT);
  CHECK(tidemark::detail::os::replace_whole(file, "{}\n") == 0);
  CHECK(tidemark::detail::os::replace_whole(file + "/x", "{}\n") == ENOTDIR);
  CHECK(tidemark::detail::os::read_whole(file, 2, text) == EFBIG);
  CHECK(tidemark::detail::os::read_whole(file, 3, text) == 0);
  CHECK(tidemark::detail::os::behind_links(file, text) == 0);
  CHECK(errno == 4'711);
}

#if TIDEMARK_HAS_EXCEPTIONS()
TEST_CASE(
    "an empty name, a name that is no UTF-8 and a senseless tolerance are invalid arguments, and change nothing") {
  temporary_directory folder;
  const std::string file = folder.file("b.json");
  for (const char* mode : {"0", "1"}) {
    const variable v(update_variable, mode);
    const window_usage u = usage_of(1, 1, 1);
    for (const char* name : {"", "\xFF", "a\xC3", "\xED\xA0\x80"}) {
      CHECK_THROWS_AS(static_cast<void>(judge_baseline(name, u, {file, 0.0}, location::current())),
                      std::invalid_argument);
    }
    for (const double t : {-0.1, -1e-300, std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      CHECK_THROWS_AS(static_cast<void>(judge_baseline("a", u, {file, t}, location::current())), std::invalid_argument);
    }
    CHECK(names_in(folder.path()).empty());
  }
}
#endif

// SPDX-License-Identifier: MIT
// Trains a small network on handwritten digits and says where its memory goes: a scope around each stage, a
// domain for each use that the numbers have, a line per epoch and a summary for people, and a JSON line per
// scope for programs. Every byte figure follows from the sizes below, at 4 bytes a number:
//
//   load        1,797 rows x (64 pixels + 1 label) kept, and as much again while the table is split in two
//   initialize  64 x 48 + 48 + 48 x 10 + 10 = 3,610 weights and biases, and a velocity for each
//   forward     rows x (48 + 10) activations: 7,424 bytes for 32 rows, 83,288 for the 359 held out
//   backward    3,610 gradients, and on the way there a slope for each activation
//   update      nothing
//
// With --keep-activations it has the classic fault: each step's results are appended to a list that nobody
// reads. The summary shows them as bytes still owned by `forward`.
#include <tidemark/hook/global_new.hpp>
#include <tidemark/tidemark.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using tidemark::reading;
using namespace tidemark::literals;

constexpr std::size_t pixels = 64;
constexpr std::size_t hidden_units = 48;
constexpr std::size_t classes = 10;
constexpr std::size_t batch_rows = 32;

constexpr int brightest_pixel = 16;
constexpr int default_epochs = 20;
constexpr float learning_rate = 0.1F;
constexpr float momentum = 0.9F;
constexpr double wanted_accuracy = 0.95;

// ---- random numbers ----

/// SplitMix64. The standard's distributions and std::shuffle give other numbers on other standard libraries.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}

  std::uint32_t next() {
    std::uint64_t z = state_ += 0x9E37'79B9'7F4A'7C15;
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EB;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
  }
  /// From 0 to n - 1; the bias of n in 2^32 does not matter here.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(std::uint64_t{next()} * n >> 32); }
  /// From -limit to limit. 24 bits, as many as a float holds.
  float uniform(float limit) { return limit * (static_cast<float>(next() >> 8) * 0x1p-23F - 1.0F); }

 private:
  std::uint64_t state_;
};

/// The numbers below `n` in a random order.
std::vector<std::uint32_t> shuffled(std::size_t n, generator& random) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t left = n; left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

// ---- data ----

/// What the numbers are for. Each use has an account, whatever scope allocates and whatever scope frees.
struct uses {
  tidemark::domain data{"data"};
  tidemark::domain weights{"weights", {16_KiB}};  // 14,440 bytes are wanted; a larger layer is refused
  tidemark::domain velocity{"velocity"};
  tidemark::domain gradients{"gradients"};
  tidemark::domain activations{"activations"};
};

const uses& used_for() {
  static const uses all;
  return all;
}

/// Keeps its domain when it is moved, and hands it to its copies.
using numbers = std::vector<float, tidemark::allocator<float>>;

struct matrix {
  std::size_t rows;
  std::size_t columns;
  numbers values;

  matrix(std::size_t r, std::size_t c, const tidemark::domain& use) : rows(r), columns(c), values(r * c, use) {}
  float* operator[](std::size_t row) { return values.data() + row * columns; }
  const float* operator[](std::size_t row) const { return values.data() + row * columns; }
};

struct dataset {
  matrix images;
  std::vector<int> labels;

  explicit dataset(std::size_t rows) : images(rows, pixels, used_for().data), labels(rows) {}
  std::size_t rows() const { return labels.size(); }
};

/// A copy of `count` rows: those that `order` names from `first` on.
dataset take(const dataset& from, const std::vector<std::uint32_t>& order, std::size_t first, std::size_t count) {
  dataset taken(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t row = order[first + i];
    std::copy_n(from.images[row], pixels, taken.images[i]);
    taken.labels[i] = from.labels[row];
  }
  return taken;
}

// ---- reading the data ----

struct file_closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using file_handle = std::unique_ptr<std::FILE, file_closer>;

/// The whole file in one block of its size. It is read twice: a text that grows would count as more.
reading<std::vector<char>> read_file(const std::string& path) {
  using text_reading = reading<std::vector<char>>;
  const auto system_reason = [] { return text_reading::absent(std::string(std::strerror(errno))); };
  const file_handle file(std::fopen(path.c_str(), "rb"));
  if (!file) return system_reason();
  std::size_t size = 0;
  while (std::fgetc(file.get()) != EOF) ++size;
  if (std::ferror(file.get()) || std::fseek(file.get(), 0, SEEK_SET) != 0) return system_reason();
  std::vector<char> text(size);
  if (std::fread(text.data(), 1, size, file.get()) != size) return text_reading::absent("cannot be read twice");
  return text;
}

/// Takes the part before `separator` off the front of `text`.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

/// A field as a message shows it: short, and safe on a terminal.
std::string quoted(std::string_view field) {
  std::string shown(field.substr(0, 20));
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return '"' + shown + (field.size() > 20 ? "...\"" : "\"");
}

/// Says what is wrong with the field; nothing is good.
std::string parse_field(std::string_view field, const char* what, int highest, int& value) {
  const char* end = field.data() + field.size();
  const auto [stopped, error] = std::from_chars(field.data(), end, value);
  if (error == std::errc::invalid_argument || stopped != end) return quoted(field) + " is not an integer";
  if (error == std::errc{} && value >= 0 && value <= highest) return {};
  return quoted(field) + " is out of range: a " + what + " is 0 to " + std::to_string(highest);
}

/// Says what is wrong with the line; nothing is good.
std::string parse_line(std::string_view line, float* image, int& label) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const auto fields = static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
  if (fields != pixels + 1) {
    const char* unit = fields == 1 ? " field" : " fields";
    return std::to_string(fields) + unit + ", expected 65: 64 pixels and a label";
  }
  const auto in_field = [](std::size_t i, const std::string& why) { return "field " + std::to_string(i) + ": " + why; };
  for (std::size_t i = 0; i < pixels; ++i) {
    int pixel = 0;
    const std::string wrong = parse_field(cut(line, ','), "pixel", brightest_pixel, pixel);
    if (!wrong.empty()) return in_field(i + 1, wrong);
    image[i] = static_cast<float>(pixel) / brightest_pixel;
  }
  const std::string wrong = parse_field(line, "label", classes - 1, label);
  return wrong.empty() ? wrong : in_field(pixels + 1, wrong);
}

reading<dataset> parse(std::string_view text) {
  if (text.empty()) return reading<dataset>::absent("the file is empty");
  if (text.back() == '\n') text.remove_suffix(1);
  dataset table(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string wrong = parse_line(cut(text, '\n'), table.images[row], table.labels[row]);
    if (!wrong.empty()) return reading<dataset>::absent("line " + std::to_string(row + 1) + ": " + wrong);
  }
  return table;
}

reading<dataset> read_dataset(const std::string& path) {
  const reading<std::vector<char>> text = read_file(path);
  if (!text) return reading<dataset>::absent(text.why());
  return parse({text->data(), text->size()});
}

struct split {
  dataset training;
  dataset held_out;
};

/// Reads the file, shuffles its rows, and holds out a fifth. At the peak the table and both its parts exist.
reading<split> load(const std::string& path, generator& random) {
  const tidemark::scope here("load");
  const reading<dataset> table = read_dataset(path);
  if (!table) return reading<split>::absent(path + ": " + std::string(table.why()));
  const std::size_t rows = table->rows();
  const std::size_t held_out = rows / 5;
  if (held_out == 0) return reading<split>::absent(path + ": too few lines to hold out a fifth");
  const std::vector<std::uint32_t> order = shuffled(rows, random);
  return split{take(*table, order, held_out, rows - held_out), take(*table, order, 0, held_out)};
}

// ---- the network ----

/// A fully connected layer, or the gradients or velocities of one.
struct dense {
  matrix weights;  // a row per input
  numbers biases;

  dense(std::size_t inputs, std::size_t outputs, const tidemark::domain& use)
      : weights(inputs, outputs, use), biases(outputs, use) {}
};

struct parameters {
  dense hidden;
  dense output;

  explicit parameters(const tidemark::domain& use)
      : hidden(pixels, hidden_units, use), output(hidden_units, classes, use) {}
};

struct network {
  parameters values{used_for().weights};
  parameters velocity{used_for().velocity};
};

/// What `backward` needs again of a forward pass.
struct activations {
  matrix hidden;
  matrix probabilities;

  explicit activations(std::size_t rows)
      : hidden(rows, hidden_units, used_for().activations), probabilities(rows, classes, used_for().activations) {}
};

/// Uniform within sqrt(6 / inputs), after He et al., 2015: signals keep their size through the rectifier.
void randomize(matrix& weights, generator& random) {
  const float limit = std::sqrt(6.0F / static_cast<float>(weights.rows));
  for (float& w : weights.values) w = random.uniform(limit);
}

network initialize(generator& random) {
  const tidemark::scope here("initialize");
  network fresh;
  randomize(fresh.values.hidden.weights, random);
  randomize(fresh.values.output.weights, random);
  return fresh;
}

/// out = in x weights + biases
void apply(const dense& layer, const matrix& in, matrix& out) {
  for (std::size_t row = 0; row < in.rows; ++row) {
    float* sums = out[row];
    std::copy(layer.biases.begin(), layer.biases.end(), sums);
    for (std::size_t i = 0; i < in.columns; ++i) {
      const float x = in[row][i];
      const float* weights = layer.weights[i];
      for (std::size_t j = 0; j < out.columns; ++j) sums[j] += x * weights[j];
    }
  }
}

void rectify(matrix& m) {
  for (float& x : m.values) x = std::max(x, 0.0F);
}

void softmax(matrix& m) {
  for (std::size_t row = 0; row < m.rows; ++row) {
    float* first = m[row];
    float* last = first + m.columns;
    const float highest = *std::max_element(first, last);  // exp() of what is left cannot overflow
    std::transform(first, last, first, [highest](float x) { return std::exp(x - highest); });
    const float sum = std::accumulate(first, last, 0.0F);
    std::transform(first, last, first, [sum](float x) { return x / sum; });
  }
}

activations forward(const parameters& p, const matrix& images) {
  const tidemark::scope here("forward");
  activations a(images.rows);
  apply(p.hidden, images, a.hidden);
  rectify(a.hidden);
  apply(p.output, a.hidden, a.probabilities);
  softmax(a.probabilities);
  return a;
}

/// The gradients of a layer, from what went in and the slope of the loss at what came out.
void accumulate(dense& gradients, const matrix& in, const matrix& out_slope) {
  for (std::size_t row = 0; row < in.rows; ++row) {
    const float* slope = out_slope[row];
    for (std::size_t j = 0; j < out_slope.columns; ++j) gradients.biases[j] += slope[j];
    for (std::size_t i = 0; i < in.columns; ++i) {
      const float x = in[row][i];
      float* weights = gradients.weights[i];
      for (std::size_t j = 0; j < out_slope.columns; ++j) weights[j] += x * slope[j];
    }
  }
}

/// The slope of the mean cross-entropy before the softmax: probability minus truth.
matrix output_slope(const activations& a, const std::vector<int>& labels) {
  matrix slope = a.probabilities;
  for (std::size_t row = 0; row < slope.rows; ++row) slope[row][labels[row]] -= 1.0F;
  const float scale = 1.0F / static_cast<float>(slope.rows);
  for (float& x : slope.values) x *= scale;
  return slope;
}

/// The same before the rectifier: it passes on what it let through.
matrix hidden_slope(const dense& output, const activations& a, const matrix& slope) {
  matrix result(a.hidden.rows, a.hidden.columns, used_for().activations);
  for (std::size_t row = 0; row < result.rows; ++row) {
    for (std::size_t i = 0; i < result.columns; ++i) {
      if (a.hidden[row][i] <= 0.0F) continue;
      result[row][i] = std::inner_product(slope[row], slope[row] + slope.columns, output.weights[i], 0.0F);
    }
  }
  return result;
}

parameters backward(const parameters& p, const dataset& batch, const activations& a) {
  const tidemark::scope here("backward");
  parameters gradients(used_for().gradients);
  const matrix at_output = output_slope(a, batch.labels);
  accumulate(gradients.output, a.hidden, at_output);
  const matrix at_hidden = hidden_slope(p.output, a, at_output);
  accumulate(gradients.hidden, batch.images, at_hidden);
  return gradients;
}

void descend(numbers& values, numbers& velocity, const numbers& gradients) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    velocity[i] = momentum * velocity[i] - learning_rate * gradients[i];
    values[i] += velocity[i];
  }
}

void descend(dense& values, dense& velocity, const dense& gradients) {
  descend(values.weights.values, velocity.weights.values, gradients.weights.values);
  descend(values.biases, velocity.biases, gradients.biases);
}

void update(network& net, const parameters& gradients) {
  const tidemark::scope here("update");
  descend(net.values.hidden, net.velocity.hidden, gradients.hidden);
  descend(net.values.output, net.velocity.output, gradients.output);
}

// ---- training ----

/// The cross-entropy, summed over the rows.
double loss(const matrix& probabilities, const std::vector<int>& labels) {
  double sum = 0;
  for (std::size_t row = 0; row < probabilities.rows; ++row) {
    const float right = std::max(probabilities[row][labels[row]], std::numeric_limits<float>::min());
    sum -= std::log(static_cast<double>(right));
  }
  return sum;
}

struct epoch_result {
  double mean_loss;
  reading<tidemark::window_usage> memory;
};

/// `kept`, where it is given, gets the results of every step.
epoch_result train_epoch(network& net, const dataset& training, generator& random, std::vector<activations>* kept) {
  const tidemark::scope here("epoch");
  const std::vector<std::uint32_t> order = shuffled(training.rows(), random);
  double sum = 0;
  for (std::size_t first = 0; first < training.rows(); first += batch_rows) {
    const dataset batch = take(training, order, first, std::min(batch_rows, training.rows() - first));
    activations a = forward(net.values, batch.images);
    update(net, backward(net.values, batch, a));
    sum += loss(a.probabilities, batch.labels);
    if (kept != nullptr) kept->push_back(std::move(a));
  }
  return {sum / static_cast<double>(training.rows()), here.usage()};
}

/// The share of rows whose most probable class is the right one.
double evaluate(const parameters& p, const dataset& held_out) {
  const tidemark::scope here("evaluate");
  const activations a = forward(p, held_out.images);
  std::size_t right = 0;
  for (std::size_t row = 0; row < held_out.rows(); ++row) {
    const float* guesses = a.probabilities[row];
    if (std::max_element(guesses, guesses + classes) - guesses == held_out.labels[row]) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(held_out.rows());
}

void print_epoch(int epoch, const epoch_result& result, double accuracy) {
  const auto& memory = result.memory;
  const std::string peak = memory ? '+' + tidemark::format_bytes(memory->peak_growth()) : "unknown";
  std::printf("epoch %2d   loss %.4f   held-out %.2f %%   peak %s\n", epoch, result.mean_loss, 100 * accuracy,
              peak.c_str());
}

/// The accuracy on the held-out digits, or what is wrong with the data.
reading<double> train(const std::string& data_path, int epochs, std::vector<activations>* kept) {
  const tidemark::process_scope here("train digits");
  generator random(1);
  const reading<split> digits = load(data_path, random);
  if (!digits) return reading<double>::absent(digits.why());
  std::printf("%zu digits to train on, %zu held out\n", digits->training.rows(), digits->held_out.rows());
  network net = initialize(random);
  double accuracy = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const epoch_result result = train_epoch(net, digits->training, random, kept);
    accuracy = evaluate(net.values, digits->held_out);
    print_epoch(epoch, result, accuracy);
  }
  return accuracy;
}

// ---- the command line ----

constexpr const char* help =
    "usage: digits_training [--data FILE] [--json FILE] [--epochs N] [--keep-activations]\n"
    "  --data FILE   the digits (default: examples/data/digits.csv)\n"
    "  --json FILE   where the record of each scope goes, a JSON line each (default: digits_training.jsonl)\n"
    "  --epochs N    1 to 1000 (default: 20)\n"
    "  --keep-activations   appends the results of every step to a list that nobody reads: find it in the summary\n";

struct options {
  std::string data_path = "examples/data/digits.csv";
  std::string json_path = "digits_training.jsonl";
  int epochs = default_epochs;
  bool keeps_activations = false;
  bool wants_help = false;
};

reading<options> parse_options(const std::vector<std::string_view>& arguments) {
  const auto wrong = [](std::string_view what, std::string_view argument) {
    return reading<options>::absent(std::string(what) + std::string(argument));
  };
  options asked;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--help") {
      asked.wants_help = true;
      continue;
    }
    if (name == "--keep-activations") {
      asked.keeps_activations = true;
      continue;
    }
    if (name != "--data" && name != "--json" && name != "--epochs") return wrong("unknown argument ", name);
    if (++i == arguments.size()) return wrong("no value after ", name);
    const std::string_view value = arguments[i];
    if (name == "--data") asked.data_path = value;
    if (name == "--json") asked.json_path = value;
    if (name == "--epochs") {
      const bool is_number = parse_field(value, "number of epochs", 1000, asked.epochs).empty();
      if (!is_number || asked.epochs == 0) return wrong("--epochs is 1 to 1000, not ", value);
    }
  }
  return asked;
}

void complain(std::string_view what) {
  std::fprintf(stderr, "digits_training: %.*s\n", static_cast<int>(what.size()), what.data());
}

int run(const options& asked) {
  // Opened here, not by the sink: a sink appends to a path, and each run starts afresh.
  const file_handle json(std::fopen(asked.json_path.c_str(), "wb"));
  if (!json) {
    complain(asked.json_path + ": " + std::strerror(errno));
    return 1;
  }
  std::vector<activations> kept;
  const auto to_file = tidemark::attach(std::make_shared<tidemark::json_sink>(json.get()));
  auto to_summary = tidemark::attach(std::make_shared<tidemark::summary_sink>(stdout));

  const reading<double> accuracy = train(asked.data_path, asked.epochs, asked.keeps_activations ? &kept : nullptr);
  std::putchar('\n');
  to_summary.detach();  // which writes it
  if (!accuracy) {
    complain(accuracy.why());
    return 1;
  }
  if (tidemark::self().dropped_records != 0) return 1;  // the sink has said why
  if (asked.epochs == default_epochs && *accuracy < wanted_accuracy) {
    complain("less than 95 % of the held-out digits are right");
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const reading<options> asked = parse_options({argv + 1, argv + argc});
  if (!asked) {
    complain(asked.why());
    std::fputs(help, stderr);
    return 2;
  }
  if (asked->wants_help) {
    std::fputs(help, stdout);
    return 0;
  }
  return run(*asked);
}

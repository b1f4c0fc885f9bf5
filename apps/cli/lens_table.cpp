#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "apps/cli/lens.h"

namespace pellucid::cli {
namespace {

constexpr int kCellColumns = 11;
constexpr int kLabelColumns = 6;

/// 24 bits where the terminal says so, else the 6x6x6 cube.
std::string painted(std::string_view text, Rgb colour) {
  const char* depth = std::getenv("COLORTERM");
  const bool exact = depth != nullptr &&
                     (std::string_view(depth) == "truecolor" || std::string_view(depth) == "24bit");
  const char* front = is_light(colour) ? "38;5;16" : "38;5;231";
  if (exact)
    return fmt::format("\x1b[{};48;2;{};{};{}m{}\x1b[0m", front, colour.red, colour.green,
                       colour.blue, text);
  const auto level = [](int value) { return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40; };
  const int index = 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
  return fmt::format("\x1b[{};48;5;{}m{}\x1b[0m", front, index, text);
}

std::string cell_text(const LensCell& cell, bool colour) {
  const LensToken& best = cell.top.front();
  if (colour)
    return painted(fitted(" " + visible(best.text), kCellColumns),
                   probability_colour(best.probability));
  // Without colour the probability is said in percent.
  const std::string percent = fmt::format("{:3.0f}", best.probability * 100);
  return fitted(visible(best.text), kCellColumns - 4) + percent + " ";
}

}  // namespace

Rgb probability_colour(double probability) {
  constexpr std::array<Rgb, 5> kStops = {
      {{24, 26, 48}, {38, 70, 120}, {32, 132, 140}, {92, 190, 110}, {250, 224, 70}}};
  const double at = std::clamp(probability, 0.0, 1.0) * (kStops.size() - 1);
  const size_t below = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double share = at - static_cast<double>(below);
  const auto mix = [&](int a, int b) { return static_cast<int>(std::lround(a + (b - a) * share)); };
  const Rgb a = kStops[below], b = kStops[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

bool is_light(Rgb colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue > 128;
}

std::string lens_table(const Lens& lens, int columns, bool colour) {
  const int count = static_cast<int>(lens.tokens.size());
  const int per_chunk = std::max(1, (columns - kLabelColumns) / (kCellColumns + 1));
  std::string out;
  for (int first = 0; first < count; first += per_chunk) {
    const int end = std::min(count, first + per_chunk);
    if (first > 0) out += '\n';
    const auto row = [&](const std::string& label, const auto& text_of) {
      std::string line = fitted(label, kLabelColumns);
      for (int position = first; position < end; ++position) line += text_of(position) + " ";
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    };
    row("", [&](int i) { return fitted(fmt::format(" {}", i), kCellColumns); });
    row("", [&](int i) {
      return styled(fitted(" " + visible(lens.tokens[i].text), kCellColumns), "1", colour);
    });
    for (auto layer = lens.layers.rbegin(); layer != lens.layers.rend(); ++layer) {
      row(layer->label, [&](int i) { return cell_text(layer->cells[i], colour); });
    }
  }
  if (colour) {
    out += fmt::format("\n{}probability ", std::string(kLabelColumns, ' '));
    for (int percent = 0; percent <= 100; percent += 20) {
      out += painted(fmt::format(" {:3} % ", percent), probability_colour(percent / 100.0));
    }
    out += '\n';
  }
  return out;
}

}  // namespace pellucid::cli

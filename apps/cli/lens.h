#pragma once
// The logit lens: what each layer would say if the model ended there.
#include <string>
#include <vector>

#include "apps/cli/common.h"

namespace pellucid::cli {

struct LensToken {
  int64_t id = 0;
  std::string text;  // bytes of the token
  double probability = 0;
  double logit = 0;
};

struct LensCell {
  std::vector<LensToken> top;  // most probable first
  /// Of the token that the whole model puts first at this position.
  int64_t final_rank = 0;  // 1: first here, too
  double final_probability = 0;
};

struct LensLayer {
  std::string site;             // "blocks.3.resid_post"
  std::string label;            // "3"; "embed" for what enters block 0
  std::vector<LensCell> cells;  // by position
};

struct Lens {
  std::string model;
  std::string prompt;
  std::vector<LensToken> tokens;  // of the prompt; id and text only
  std::vector<LensToken>
      answers;  // what the whole model puts first at each position; id and text only
  std::vector<LensLayer> layers;  // in the order of the forward pass
};

/// Runs the model twice: for the final answers, then for every layer's view of them.
Result<Lens> run_lens(const engine::LoadedModel& loaded, const std::string& prompt, int top_count,
                      const engine::CancelFlag& cancelled);

/// Columns are positions, rows are layers from the top; in chunks that fit `columns`.
std::string lens_table(const Lens& lens, int columns, bool colour);
/// A page that needs nothing else: inline style, hover shows the top tokens.
std::string lens_html(const Lens& lens);

struct Rgb {
  int red, green, blue;
};
/// From near black at 0 to yellow at 1.
Rgb probability_colour(double probability);
/// Whether black text reads better than white on it.
bool is_light(Rgb colour);

}  // namespace pellucid::cli

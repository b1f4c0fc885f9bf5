// First light: replace what SmolLM2 holds about "France" with what it holds about "Italy", and the
// capital of France becomes Rome.
//
//     first_light [MODEL]        (default smollm2)
#include <pellucid/pellucid.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  try {
    const pellucid::Model lm = pellucid::load(argc > 1 ? argv[1] : "smollm2");

    // One trace, many prompts: the donor and, for each layer, one that receives its residual.
    pellucid::Trace t(lm);
    const pellucid::Prompt italy = t.prompt("The capital of Italy is");
    const std::vector<int> layers = {0, 10, 15, 20, 25};
    std::vector<pellucid::Value> donated;
    for (const int layer : layers) {
      const pellucid::Value residual = italy.read("blocks." + std::to_string(layer) + ".resid_pre");
      donated.push_back(residual.select(1, italy.at(" Italy")));  // [batch, d_model]
    }

    t.prompt("The capital of France is");
    const pellucid::Saved before = t.save(t.read("logits").select(1, -1).topk(1));
    std::vector<pellucid::Saved> after;
    for (size_t i = 0; i < layers.size(); ++i) {
      const pellucid::Prompt france = t.prompt("The capital of France is");
      const pellucid::Value residual =
          france.read("blocks." + std::to_string(layers[i]) + ".resid_pre");
      residual.select(1, france.at(" France")).copy_(donated[i]);
      after.push_back(t.save(france.read("logits").select(1, -1).topk(1)));
    }
    t.run();

    const auto show = [&](const char* what, const pellucid::Saved& top) {
      std::printf("%-10s %-8s %.3f\n", what, lm.decode(top.value(1).to_vector<int64_t>()).c_str(),
                  top.value(0).item<double>());
    };
    show("untouched", before);
    for (size_t i = 0; i < layers.size(); ++i) {
      show(("layer " + std::to_string(layers[i])).c_str(), after[i]);
    }
  } catch (const pellucid::Error& error) {
    std::fprintf(stderr, "first_light: %s\n", error.what());
    return 1;
  }
  return 0;
}

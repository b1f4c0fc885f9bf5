// Without arguments: the version. With a model: steers "The capital of France is" by the difference
// at the last position to the prompt about Italy, and prints the five best next tokens.
#include <pellucid/pellucid.h>

#include <cstdio>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cout << pellucid::version() << "\n";
    return 0;
  }
  try {
    const pellucid::Model lm = pellucid::load(argv[1]);
    pellucid::Trace t(lm);
    const pellucid::Value italy = t.prompt("The capital of Italy is").read("blocks.24.resid_pre");
    const pellucid::Value france = t.prompt("The capital of France is").read("blocks.24.resid_pre");
    const pellucid::Value v = italy.select(1, -1) - france.select(1, -1);

    t.prompt("The capital of France is");
    const pellucid::Value h = t.read("blocks.24.resid_pre");
    h.select(1, -1).add_(v);
    const pellucid::Saved top = t.save(t.read("logits").select(1, -1).topk(5));
    t.run();

    const std::vector<double> logits = top.value(0).to_vector<double>();
    const std::vector<int64_t> ids = top.value(1).to_vector<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) {
      std::printf("%s %.4f\n", lm.decode({ids[i]}).c_str(), logits[i]);
    }
  } catch (const pellucid::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

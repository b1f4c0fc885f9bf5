// Torch seeds its generator by chance: a test that draws numbers must draw the same in every run.
#include <ATen/CPUGeneratorImpl.h>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(20240229);
  return doctest::Context(argc, argv).run();
}

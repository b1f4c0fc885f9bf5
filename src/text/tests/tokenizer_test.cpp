#include <doctest/doctest.h>

#include "text/tokenizer.h"

namespace pellucid::text {
namespace {
TEST_CASE("x") {}
}
}

#include <doctest/doctest.h>

#include "base/check.h"
#include "base/nearest.h"
#include "base/status.h"

namespace pellucid {

TEST_CASE("status: the message names what went wrong, what to do and where") {
  const Status status =
      error(Code::kNotFound, "see `pellucid models`", "no model named {}", "x").at("a.py:3");
  CHECK(status.message() == "no model named x (see `pellucid models`) [at a.py:3]");
  CHECK(code_info(status.code).name == "not_found");
}

TEST_CASE("result: PELLUCID_ASSIGN hands the error up and the value down") {
  const auto half = [](int n) -> Result<int> {
    if (n % 2 != 0) return error(Code::kInvalidArgument, "", "{} is odd", n);
    return n / 2;
  };
  const auto quarter = [&](int n) -> Result<int> {
    PELLUCID_ASSIGN(const int h, half(n));
    return half(h);
  };
  CHECK(*quarter(8) == 2);
  CHECK(quarter(6).status().what == "3 is odd");
}

TEST_CASE("nearest: a misspelt name finds its neighbours, and nonsense finds nothing") {
  const std::vector<std::string> known{"resid_pre", "resid_post", "mlp.out"};
  CHECK(nearest("resid_pots", known).front() == "resid_post");
  CHECK(did_you_mean("resid_pots", known, "") == "did you mean resid_post or resid_pre?");
  CHECK(did_you_mean("zzzzzzzzzzzzzzzz", known, "none") == "none");
}

TEST_CASE("check: a broken invariant throws and never aborts") {
  CHECK_THROWS_AS([] { PELLUCID_CHECK(1 + 1 == 3, "sum {}", 2); }(), InternalError);
}

}  // namespace pellucid

#pragma once
// One line a family: defined in families/<name>.cpp, listed in families.cpp.
#include "model/family.h"

namespace pellucid::model {

extern const Family kGpt2;
extern const Family kLlama;

}  // namespace pellucid::model

#pragma once
// All of Pellucid's C++ interface, in one include. Standard library only; link pellucid::pellucid.
#include "pellucid/error.h"    // IWYU pragma: export
#include "pellucid/model.h"    // IWYU pragma: export
#include "pellucid/tensor.h"   // IWYU pragma: export
#include "pellucid/trace.h"    // IWYU pragma: export
#include "pellucid/value.h"    // IWYU pragma: export
#include "pellucid/version.h"  // IWYU pragma: export

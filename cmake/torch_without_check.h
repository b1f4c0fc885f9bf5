#pragma once
// Part of the precompiled header. c10's log header defines CHECK over doctest's, silently (the compiler
// does not warn in torch's headers): a test's CHECK would neither be counted nor say both values.
// Included once here, it cannot do so later.
#include <c10/util/Logging.h>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LT
#undef CHECK_LE
#undef CHECK_GT
#undef CHECK_GE

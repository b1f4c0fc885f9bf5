#include "pellucid/version.h"

namespace pellucid {

const char* version() { return PELLUCID_VERSION; }

}  // namespace pellucid

#pragma once
// Which Pellucid this is.

namespace pellucid {

/// "major.minor.patch". Static storage; callable from any thread at any time.
const char* version();

}  // namespace pellucid

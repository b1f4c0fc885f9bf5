#include "pellucid/error.h"

#include "facade/convert.h"

namespace pellucid {

Error::Error(std::string code, std::string message, std::string hint, std::string where)
    : std::runtime_error(Status{Code::kInternal, message, hint, where}.message()),
      code_(std::move(code)),
      message_(std::move(message)),
      hint_(std::move(hint)),
      where_(std::move(where)) {}

namespace facade {

void raise(Status status) {
  throw Error(std::string(code_info(status.code).name), std::move(status.what),
              std::move(status.hint), std::move(status.where));
}

}  // namespace facade
}  // namespace pellucid

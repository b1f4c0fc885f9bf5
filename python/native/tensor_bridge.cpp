#include "tensor_bridge.h"

#include <torch/csrc/autograd/python_variable.h>

namespace pellucid::python {

PyObject* wrap_tensor(const at::Tensor& tensor) { return THPVariable_Wrap(tensor); }

bool is_tensor(PyObject* object) { return THPVariable_Check(object); }

at::Tensor unwrap_tensor(PyObject* object) { return THPVariable_Unpack(object); }

void materialise(at::Tensor placeholder, const at::Tensor& result) {
  // Until here every operation on the placeholder ended in __torch_dispatch__; now it is a tensor
  // like any other.
  placeholder.unsafeGetTensorImpl()->set_python_dispatch(false);
  placeholder.set_data(result);
}

int64_t storage_id(const at::Tensor& tensor) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.storage().unsafeGetStorageImpl()));
}

}  // namespace pellucid::python
